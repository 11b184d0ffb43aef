"""The account of a request, as the whole gateway fills it in: who asked what from where, and what came of it."""

import asyncio
import json
from typing import Any

import pytest

from helpers.event_streams import head_of
from helpers.mcp_host import ACCEPT
from helpers.scripted_upstream import Hold, ScriptedServer, error, result
from helpers.waiting import bounded, eventually
from helpers.whole_gateway import WholeGateway
from interaction.limiting import both_eras, come
from interaction.visiting import Visits
from taskgate.telemetry.events import (
    ConcurrencyChanged,
    HttpAnswered,
    RpcAnswered,
    StreamOpened,
    ToolCalled,
    UpstreamAnswered,
)
from taskgate.telemetry.request_context import RequestContext

HEAD = {"Content_Type": "application/json", "Accept": ACCEPT}
NAMES = {"initialize": "2025-11-25", "stateless": "2026-07-28"}


def method_of(request_context: RequestContext) -> str:
    message: Any = request_context.message
    return str(message.method)


def counted_in(request_contexts: Visits, request_context: RequestContext) -> list[tuple[str, str | None, str | None]]:
    """What the requests of that visit count as: method, revision and error."""
    counted = [event for event in request_contexts.told_in(request_context) if isinstance(event, RpcAnswered)]
    return [(event.method, event.revision, event.error) for event in counted]


# --- calls ---------------------------------------------------------------------------------------------------------


@both_eras
async def test_a_call_is_accounted_for_with_all_that_is_known_of_it(
    heard: WholeGateway, request_contexts: Visits, era: str
) -> None:
    host = await come(heard, era)
    await host.call("echo", {"a": 1})
    request_context = request_contexts.last()
    assert (request_context.verb, request_context.path, request_context.mount, request_context.address) == (
        "POST",
        "/reports/mcp",
        "reports",
        "127.0.0.1",
    )
    assert request_context.agent is not None
    assert request_context.agent.startswith("Python/")
    assert request_context.caller is not None
    assert request_context.caller.key == "anonymous"
    assert (method_of(request_context), request_context.revision) == ("tools/call", NAMES[era])
    assert request_context.client is not None
    assert request_context.client.name == "host" if era == "initialize" else request_context.client.name is not None
    assert (request_context.status, request_context.error, request_context.refusal, request_context.parts) == (
        200,
        None,
        None,
        0,
    )
    assert request_context.result_bytes is not None
    assert request_context.result_bytes > len('{"a":1}')


@both_eras
async def test_a_host_that_lists_before_it_calls_has_its_calls_told_of_by_name(
    heard: WholeGateway, request_contexts: Visits, era: str
) -> None:
    """The gateway need not have read the server's catalogue itself."""
    host = await come(heard, era)
    await host.ask("tools/list", {})
    await host.call("echo")
    await host.call("unlisted")
    assert [event.tool for event, _ in request_contexts.all if isinstance(event, ToolCalled)] == ["echo", None]


@both_eras
async def test_what_a_call_sets_off_is_told_in_its_visit_and_ends_with_its_answer(
    heard: WholeGateway, request_contexts: Visits, era: str
) -> None:
    host = await come(heard, era)
    await host.call("echo")
    await host.call("echo")
    for request_context in request_contexts.closed()[-2:]:
        kinds = [type(event) for event in request_contexts.told_of(request_context)]
        assert kinds.count(ToolCalled) == kinds.count(UpstreamAnswered) == 1
        assert kinds[-2:] == [RpcAnswered, HttpAnswered]


@both_eras
@pytest.mark.parametrize(
    ("answer", "expected"),
    [(result({"content": [], "isError": True}), "tool_error"), (error(-32050, "no"), "-32050")],
    ids=["a tool's error", "a server's error"],
)
async def test_an_error_of_a_server_is_an_error_and_no_refusal(
    heard: WholeGateway, server: ScriptedServer, request_contexts: Visits, era: str, answer: Any, expected: str
) -> None:
    server.script["broken"] = answer
    host = await come(heard, era)
    await host.call("broken")
    request_context = request_contexts.last()
    assert (request_context.error, request_context.refusal) == (expected, None)
    assert (request_context.result_bytes is None) is (expected != "tool_error")


async def test_a_handshake_tells_who_begins_it(heard: WholeGateway, request_contexts: Visits) -> None:
    await heard.host().ask(
        "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "n", "version": "v"}}
    )
    request_context = request_contexts.last()
    assert (method_of(request_context), request_context.revision, request_context.client) == (
        "initialize",
        "2025-06-18",
        ("n", "v"),
    )


async def test_what_has_no_message_is_accounted_for_with_its_session(
    heard: WholeGateway, request_contexts: Visits
) -> None:
    host = await heard.greeted("2025-06-18")
    await host.leave()
    request_context = request_contexts.last()
    assert (request_context.verb, request_context.message, request_context.revision, request_context.status) == (
        "DELETE",
        None,
        "2025-06-18",
        200,
    )
    assert request_context.client == ("host", "1")


async def test_a_request_that_its_host_gives_up_is_told_of_as_such(
    heard: WholeGateway, server: ScriptedServer, request_contexts: Visits
) -> None:
    server.script["report"] = Hold()
    host = await heard.greeted()
    asking = asyncio.create_task(host.ask("tools/call", {"name": "report", "arguments": {}}, id="mine"))
    await eventually(lambda: server.heard("tools/call"))
    await host.tell("notifications/cancelled", {"requestId": "mine"})
    async with bounded():
        assert (await asking).status == 202
    (request_context,) = [each for each in request_contexts.closed() if each.error == "cancelled"]
    assert (method_of(request_context), request_context.refusal) == ("tools/call", None)
    assert counted_in(request_contexts, request_context) == [("tools/call", "2025-11-25", "cancelled")]


async def test_a_request_whose_host_leaves_is_counted_as_given_up(
    heard: WholeGateway, server: ScriptedServer, request_contexts: Visits
) -> None:
    """Hosts whose patience always ends before the answer would show nowhere else."""
    server.script["report"] = Hold()
    async with heard.modern().asking("tools/call", {"name": "report", "arguments": {}}) as asked:
        await eventually(lambda: server.heard("tools/call"))
        await asked.leave()
    await eventually(request_contexts.closed)
    assert counted_in(request_contexts, request_contexts.last()) == [("tools/call", "2026-07-28", "cancelled")]


# --- batches -------------------------------------------------------------------------------------------------------


async def test_messages_that_come_together_have_a_visit_each_and_their_request_one_more(
    heard: WholeGateway, request_contexts: Visits
) -> None:
    host = await heard.greeted("2025-03-26")
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {}}},
        {"jsonrpc": "2.0", "id": 3, "method": "no/such"},
        {"jsonrpc": "2.0", "method": "notifications/unknown"},
        {"jsonrpc": "2.0", "id": 4},
    ]
    async with host.http.post(host.url, data=json.dumps(batch), headers=head_of(host, **HEAD)) as response:
        assert len(await response.json()) == 4
    whole, parts = request_contexts.last(), request_contexts.parts()
    assert (whole.parts, whole.message, whole.refusal, whole.revision) == (5, None, None, "2025-03-26")
    assert whole.client == ("host", "1")
    methods = {None if part.message is None else method_of(part): part for part in parts}
    assert set(methods) == {"ping", "tools/call", "no/such", "notifications/unknown", None}
    assert {part.id for part in parts} == {whole.id}
    assert {part.mount for part in parts} == {"reports"}
    assert methods["no/such"].refusal == "unknown_method"
    assert methods[None].refusal == "bad_message"
    assert methods[None].error == "-32600"
    assert methods["tools/call"].result_bytes is not None
    assert [methods["ping"].error, methods["ping"].refusal, methods["ping"].parts] == [None, None, 0]
    for name, part in methods.items():
        kinds = [type(event).__name__ for event in request_contexts.told_in(part)]
        # A request is counted, and only then is its part over.
        assert kinds[-1] == "BatchItemAnswered"
        assert kinds.count("RpcAnswered") == (name in ("ping", "tools/call", "no/such"))
    # Nothing but its own end is told of the request as a whole, once its messages are known.
    assert [type(event) for event in request_contexts.told_in(whole)][-1] is HttpAnswered


async def test_a_part_that_the_end_of_the_listener_cuts_off_is_accounted_for_too(
    heard: WholeGateway, server: ScriptedServer, request_contexts: Visits
) -> None:
    server.script["report"] = Hold()
    host = await heard.greeted("2025-03-26")
    batch = [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "report", "arguments": {}}}]
    asking = asyncio.ensure_future(host.http.post(host.url, data=json.dumps(batch), headers=head_of(host, **HEAD)))
    await eventually(lambda: server.heard("tools/call"))
    await heard.close()
    await asyncio.wait([asking])
    asking.exception()
    (part,) = request_contexts.parts()
    assert part.error == "cancelled"
    assert counted_in(request_contexts, part) == [("tools/call", "2025-03-26", "cancelled")]
    assert request_contexts.last().status is None


# --- what is shared ------------------------------------------------------------------------------------------------


@both_eras
async def test_what_serves_many_is_told_in_nobodys_visit(
    heard: WholeGateway, server: ScriptedServer, request_contexts: Visits, era: str
) -> None:
    """The session at the server is opened by the first call, and is there for all that come after."""
    host = await come(heard, era)
    await host.call("echo")
    await server.streaming()
    await eventually(lambda: request_contexts.of(ConcurrencyChanged))
    opened = [
        request_context for event, request_context in request_contexts.all if event == StreamOpened("upstream", "get")
    ]
    assert opened == [None] * len(opened) != []
    assert set(request_contexts.of(ConcurrencyChanged)) == {None}
    by_method = {
        event.method: request_context
        for event, request_context in request_contexts.all
        if isinstance(event, UpstreamAnswered)
    }
    assert by_method["initialize"] is None
    called = by_method["tools/call"]
    assert called is not None
    assert called.id == request_contexts.last().id
