"""The line that the audit log has of each request: who asked what from where, and what came of it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway
from helpers.host.host import ACCEPT, both_eras
from helpers.host.wire import head_of
from helpers.otlp_collector import CLIENT, SERVER, OtlpCollector, serve_traced
from helpers.server import Hold, ScriptedServer, error, result
from helpers.waiting import bounded, eventually
from interaction.audit_logs import REQUESTS, audited, kept, lines, of, said

HEAD = {"Content_Type": "application/json", "Accept": ACCEPT}
NAMES = {"legacy": "2025-11-25", "modern": "2026-07-28"}
COUNTED = "mcp_server_operation_duration_seconds_count"
BY_PROTOCOL = "taskgate_requests_by_protocol_total"
Written = Callable[[], Awaitable[list[dict[str, Any]]]]


@pytest.fixture
async def gateway(server: ScriptedServer, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway that keeps an audit log."""
    async with kept(tmp_path, configuration({"reports": server.url}, audit=audited(tmp_path))) as gateway:
        yield gateway


@pytest.fixture
def written(gateway: Gateway, tmp_path: Path) -> Written:
    """Ends the gateway, and gives the lines that it wrote of requests."""

    async def close() -> list[dict[str, Any]]:
        async with bounded():
            await gateway.close()
        return of(lines(tmp_path), *REQUESTS)

    return close


# --- calls ---------------------------------------------------------------------------------------------------------


@both_eras
async def test_a_call_is_accounted_for_with_all_that_is_known_of_it(
    gateway: Gateway, written: Written, era: str
) -> None:
    host = await gateway.greeted(era=era)
    await host.call("echo", {"a": 1})
    line = (await written())[-1]
    assert said(line) == ("rpc.call", "success", None)
    http, mcp = line["http"], line["mcp"]
    assert (http["verb"], http["path"], http["peer"], http["status"]) == ("POST", "/reports/mcp", "127.0.0.1", 200)
    assert http["user_agent"].startswith("Python/")
    assert line["actor"]["ctx"] == "c_anonymous"
    assert (mcp["method"], mcp["protocol"], mcp["upstream"]) == ("tools/call", NAMES[era], "reports")
    assert mcp["client"]["name"] == "host"
    assert line["data"].get("messages") is None
    assert line["data"]["result"]["bytes"] > len('{"a":1}')


@both_eras
async def test_a_host_that_lists_before_it_calls_has_its_calls_told_of_by_name(gateway: Gateway, era: str) -> None:
    """The gateway need not have read the server's catalogue itself."""
    host = await gateway.greeted(era=era)
    await host.ask("tools/list", {})
    await host.call("echo")
    await host.call("unlisted")
    assert await gateway.counts("taskgate_tool_calls_total", "tool") == {"echo": 1, "_OTHER": 1}


@both_eras
async def test_what_a_call_sets_off_is_told_once(gateway: Gateway, written: Written, era: str) -> None:
    host = await gateway.greeted(era=era)
    for times in (1, 2):
        await host.call("echo")
        call = {"mcp_method_name": "tools/call"}
        assert await gateway.count("taskgate_tool_calls_total") == times
        assert await gateway.count("mcp_client_operation_duration_seconds_count", **call) == times
        assert await gateway.count(COUNTED, **call) == times
    assert [line["event"] for line in await written()].count("rpc.call") == 2


@both_eras
@pytest.mark.parametrize(
    ("answer", "expected"),
    [(result({"content": [], "isError": True}), "tool_error"), (error(-32050, "no"), "-32050")],
    ids=["a tool's error", "a server's error"],
)
async def test_an_error_of_a_server_is_an_error_and_no_refusal(
    gateway: Gateway, server: ScriptedServer, written: Written, era: str, answer: Any, expected: str
) -> None:
    server.script["broken"] = answer
    await (await gateway.greeted(era=era)).call("broken")
    line = (await written())[-1]
    assert said(line) == ("rpc.call", "failure", expected)
    assert ("result" in line["data"]) is (expected == "tool_error")


async def test_a_handshake_tells_who_begins_it(gateway: Gateway, written: Written) -> None:
    await gateway.host().ask(
        "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "n", "version": "v"}}
    )
    mcp = (await written())[-1]["mcp"]
    assert (mcp["method"], mcp["protocol"], mcp["client"]) == (
        "initialize",
        "2025-06-18",
        {"name": "n", "version": "v"},
    )


async def test_what_has_no_message_is_accounted_for_with_its_session(gateway: Gateway, written: Written) -> None:
    await (await gateway.greeted("2025-06-18")).leave()
    line = (await written())[-1]
    assert (line["http"]["verb"], line["http"]["status"]) == ("DELETE", 200)
    assert (line["mcp"]["method"], line["mcp"]["protocol"]) == (None, "2025-06-18")
    assert line["mcp"]["client"] == {"name": "host", "version": "1"}


async def test_a_request_that_its_host_gives_up_is_told_of_as_such(
    gateway: Gateway, server: ScriptedServer, written: Written
) -> None:
    server.script["report"] = Hold()
    host = await gateway.greeted()
    asking = asyncio.create_task(host.ask("tools/call", {"name": "report", "arguments": {}}, id="mine"))
    await eventually(lambda: server.heard("tools/call"))
    await host.tell("notifications/cancelled", {"requestId": "mine"})
    async with bounded():
        assert (await asking).status == 202
    assert await gateway.counts(COUNTED, "mcp_method_name", error_type="cancelled") == {"tools/call": 1}
    [call] = of(await written(), "rpc.call")
    assert said(call) == ("rpc.call", "failure", "cancelled")


async def test_a_request_whose_host_leaves_is_counted_as_given_up(gateway: Gateway, server: ScriptedServer) -> None:
    """Hosts whose patience always ends before the answer would show nowhere else."""
    server.script["report"] = Hold()
    async with gateway.modern().asking("tools/call", {"name": "report", "arguments": {}}) as asked:
        await eventually(lambda: server.heard("tools/call"))
        await asked.leave()
    await gateway.counted(COUNTED)
    assert await gateway.counts(COUNTED, "mcp_method_name", "error_type") == {("tools/call", "cancelled"): 1}
    assert await gateway.counts(BY_PROTOCOL, "mcp_protocol_version") == {"2026-07-28": 1}


# --- batches -------------------------------------------------------------------------------------------------------


async def test_messages_that_come_together_have_a_line_each_and_their_request_one_more(
    gateway: Gateway, written: Written
) -> None:
    host = await gateway.greeted("2025-03-26")
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {}}},
        {"jsonrpc": "2.0", "id": 3, "method": "no/such"},
        {"jsonrpc": "2.0", "method": "notifications/unknown"},
        {"jsonrpc": "2.0", "id": 4},
    ]
    async with host.http.post(host.url, data=json.dumps(batch), headers=head_of(host, **HEAD)) as response:
        assert len(await response.json()) == 4
    counted = await gateway.counts(COUNTED, "mcp_method_name")
    assert counted == {"initialize": 1, "ping": 1, "tools/call": 1, "_OTHER": 1}
    assert await gateway.counts(BY_PROTOCOL, "mcp_protocol_version") == {"2025-03-26": 4}
    *parts, whole = (await written())[-6:]
    # The request as a whole is told of when all of its messages have been.
    assert (said(whole), whole["data"]["messages"]) == (("rpc.request", "success", None), 5)
    assert (whole["mcp"]["method"], whole["mcp"]["protocol"]) == (None, "2025-03-26")
    assert whole["mcp"]["client"] == {"name": "host", "version": "1"}
    methods = {part["mcp"]["method"]: part for part in parts}
    assert set(methods) == {"ping", "tools/call", "no/such", "notifications/unknown", None}
    assert {part["http"]["request_id"] for part in parts} == {whole["http"]["request_id"]}
    assert {part["mcp"]["upstream"] for part in parts} == {"reports"}
    assert said(methods["no/such"]) == ("rpc.rejected", "denied", "unknown_method")
    assert said(methods[None]) == ("rpc.rejected", "denied", "bad_message")
    assert methods["tools/call"]["data"]["result"]["bytes"] > 0
    assert said(methods["ping"]) == ("rpc.request", "success", None)
    assert methods["ping"]["data"].get("messages") is None


async def test_a_part_that_the_end_of_the_listener_cuts_off_is_accounted_for_too(
    gateway: Gateway, server: ScriptedServer, written: Written
) -> None:
    server.script["report"] = Hold()
    host = await gateway.greeted("2025-03-26")
    batch = [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "report", "arguments": {}}}]
    asking = asyncio.ensure_future(host.http.post(host.url, data=json.dumps(batch), headers=head_of(host, **HEAD)))
    await eventually(lambda: server.heard("tools/call"))
    part, whole = (await written())[-2:]
    await asyncio.wait([asking])
    asking.exception()
    assert said(part) == ("rpc.call", "failure", "cancelled")
    assert whole["http"]["status"] is None


# --- what is shared ------------------------------------------------------------------------------------------------


@both_eras
async def test_what_serves_many_is_done_in_nobodys_name(server: ScriptedServer, era: str) -> None:
    """The session at the server is opened by the first call, and is there for all that come after."""
    async with OtlpCollector() as collector:
        async with serve_traced(collector, {"reports": server.url}) as gateway:
            await (await gateway.greeted(era=era)).call("echo")
            await server.streaming()
            _, page = await gateway.operators("/metrics", Accept="application/openmetrics-text")
        (call,) = [span for span in collector.of(CLIENT) if span.name.startswith("tools/call")]
        (serving,) = [span for span in collector.of(SERVER) if span.name.startswith("tools/call")]
        assert call.parent == serving.place
        # Of what the server was asked, each has a place in a trace where it was done for one request.
        asked = re.findall(r'client_operation_duration_seconds_bucket.*method_name="(.*?)".*?} [0-9.]+(.*)', page)
        assert {method for method, _ in asked} == {"initialize", "tools/list", "tools/call"}
        traces = {method: found[1] for method, shown in asked if (found := re.search('trace_id="(.*?)"', shown))}
        assert traces == {"tools/call": serving.place.trace}
