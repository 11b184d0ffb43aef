"""What a running gateway counts, as a scrape of it shows, and that no host makes that more than was foreseen."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import orjson

from helpers.gateway.configuration import GatewayConfig, configuration, written
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.gateway.process import taskgate
from helpers.host.raw import raw_host, request_head
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.idempotency import call_with_key, start_with_key, upgrade
from requirements import covers

METHODS = (
    *("initialize", "ping", "logging/setLevel", "completion/complete", "server/discover", "subscriptions/listen"),
    *("tools/list", "tools/call", "prompts/list", "prompts/get", "resources/list", "resources/templates/list"),
    *("resources/read", "resources/subscribe", "resources/unsubscribe", "tasks/get", "tasks/result", "tasks/cancel"),
    *("tasks/list", "tasks/update"),
)
METRICS = {"max_tools": 3, "tool_histograms": True}
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "2031-01-01", "")


async def shown(gateway: Gateway, *names: str) -> dict[str, float]:
    """The samples whose names begin with one of those, as they stand on the page."""
    lines = [line for line in (await gateway.metrics()).splitlines() if line.startswith(names)]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


# --- however strange hosts are ---------------------------------------------------------------------------------------


def strange_request(random: Random, gateway: Gateway, session: str) -> bytes:
    """A request of whoever wants to see what happens, with the session of somebody: sometimes a good one."""
    (address, port), path = gateway.address, gateway.paths["reports"]
    method = random.choice([*METHODS, "evil/method", f"made-up/{random.random()}"])
    name = random.choice(["echo", "", *(f"tool-{number}" for number in range(8)), f"made-up {random.random()}"])
    revision = random.choice(REVISIONS)
    meta = {"io.modelcontextprotocol/protocolVersion": revision} if random.random() < 0.5 else {}
    params = random.choice([{"name": name, "arguments": {}, "_meta": meta}, {"taskId": name}, {"_meta": meta}, {}, 7])
    message: Any = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    body = random.choice([orjson.dumps(message)] * 9 + [b"{", b"[]", b"\xff"])
    verb = random.choice(["POST"] * 9 + ["GET", "DELETE", "PUT", "BREW"])
    head = request_head(
        verb,
        random.choice([path] * 9 + ["/nowhere", f"/{random.random()}"]),
        Host=random.choice([f"{address}:{port}"] * 19 + ["evil.example"]),
        Content_Type=random.choice(["application/json"] * 9 + ["text/plain"]),
        Accept="application/json, text/event-stream",
        Content_Length=str(len(body)),
        Connection="close",
        **({"Mcp-Protocol-Version": revision} if random.random() < 0.7 else {}),
        **({"Mcp-Method": method, "Mcp-Name": name} if random.random() < 0.5 else {}),
        # Nobody ends the session for the others.
        **({"Mcp-Session-Id": session} if verb != "DELETE" and random.random() < 0.7 else {}),
    )
    return head + body


def bound_of(config: GatewayConfig, file: Path) -> int:
    """How many series operators are told that there can be."""
    file.write_text(json.dumps(written(config)))
    told = taskgate("metrics", "--config", file, folder=file.parent).stdout.splitlines()[-1]
    assert told.endswith("series at most, with this configuration")
    return int(told.split()[0])


@covers("O-AUD-4")
async def test_no_host_makes_more_series_than_the_bound(tmp_path: Path) -> None:
    """Hosts of every revision and of none, in sessions and without, who ask for all that there is and is not."""
    random = Random(11)
    # A server of its own, since it is sent whatever hosts send.
    async with ScriptedServer() as server:
        server.tools = [{"name": f"tool-{number}", "inputSchema": {"type": "object"}} for number in range(8)]
        config = configuration({"reports": server.url}, metrics=METRICS)
        async with serve(config) as gateway:
            host = await gateway.greeted()
            await host.call("tool-0", task={})
            for tool in (*(f"tool-{number}" for number in range(8)), "made-up"):
                await host.call(tool)
            for _ in range(600):
                async with raw_host(gateway.address) as stranger:
                    await stranger.send(strange_request(random, gateway, host.session or ""))
                    # What is answered with a stream is heard no further.
                    await stranger.some(12)
            page = await gateway.metrics()
            series = [line for line in page.splitlines() if not line.startswith("#")]
            assert len(series) <= bound_of(config, tmp_path / "taskgate.yaml")
            assert await gateway.count("mcp_server_operation_duration_seconds_count") > 200, "most of it was JSON-RPC"
            assert await gateway.count("taskgate_metrics_label_overflows_total", label="tool") > 0
    assert "evil" not in page
    assert "made-up" not in page
    tools = {line.partition('tool="')[2].partition('"')[0] for line in series if "taskgate_tool_calls" in line}
    assert len(tools - {"_OTHER"}) == 3


# --- what is asked for at a scrape -----------------------------------------------------------------------------------


async def test_what_is_under_way_is_shown_while_it_is(server: ScriptedServer, gateway: Gateway) -> None:
    server.script["echo"] = hold = Hold()
    host = await gateway.greeted()
    call = asyncio.ensure_future(host.call("echo"))
    async with bounded():
        await hold.begun.wait()
    assert await gateway.count("http_server_active_requests", http_route="mcp") == 1
    assert await gateway.count("taskgate_upstream_requests_in_flight", upstream="reports") == 1
    hold.release({"content": []})
    async with bounded():
        await call
    assert await gateway.count("http_server_active_requests") == 0
    assert await gateway.count("taskgate_upstream_requests_in_flight") == 0


async def test_callers_are_counted_and_so_are_those_at_a_cap(server: ScriptedServer, issuer: TokenIssuer) -> None:
    clock = ManualClock(datetime.now(UTC))
    server.script["report"] = hold = Hold()
    limits = {"rate": [], "concurrency": {"tasks_per_context": 1}}
    config = guarded({"reports": server.url}, issuer, limits=limits, tasks=upgrade())
    async with serve(config, Environment(clock=clock)) as gateway:
        ann, bob = [await gateway.greeted(token=issuer.token(gateway.url(), subject=who)) for who in ("ann", "bob")]
        assert await gateway.count("taskgate_active_contexts") == 2
        started = await start_with_key(ann, key=None)
        assert await gateway.count("taskgate_saturated_contexts") == 0, "she has what she may have, and was not refused"
        assert (await call_with_key(ann, key=None)).error["code"] == 429
        await start_with_key(bob, key=None)
        assert await gateway.count("taskgate_saturated_contexts") == 1
        hold.release({"content": []})
        async with bounded():
            await ann.ask("tasks/result", {"taskId": started})
        assert await gateway.count("taskgate_saturated_contexts") == 0
        clock.advance(timedelta(seconds=301))
        assert await gateway.count("taskgate_active_contexts") == 0


# --- times and tools -------------------------------------------------------------------------------------------------


async def test_times_of_calls_name_the_tools_that_the_server_lists(server: ScriptedServer) -> None:
    config = configuration({"reports": server.url}, metrics={"tool_histograms": True})
    async with serve(config) as gateway:
        host = await gateway.greeted()
        # To make a task the list is read.
        await host.call("report", task={})
        await host.call("echo")
        await host.call("unlisted")
        name = "mcp_server_operation_duration_seconds_count"
        for tool, times in (("report", 1), ("echo", 1), ("_OTHER", 1), ("broken", 0)):
            assert await gateway.count(name, mcp_method_name="tools/call", gen_ai_tool_name=tool) == times
        assert await gateway.count(name, mcp_method_name="initialize", gen_ai_tool_name="") == 1


async def test_tenants_are_counted_where_the_operator_lists_them(server: ScriptedServer, issuer: TokenIssuer) -> None:
    section = {**issuer.section, "claims": {"tenant": "org"}}
    config = guarded(
        {"reports": server.url},
        issuer,
        auth={"issuers": {"corp": section}},
        metrics={"tenant_label": True, "tenants": ["acme"]},
    )
    async with serve(config) as gateway:
        for org in ("acme", "acme", "umbrella"):
            host = await gateway.greeted(token=issuer.token(gateway.url(), org=org))
            await host.call("echo")
        for tenant, times in (("acme", 2), ("_OTHER", 1)):
            assert await gateway.count("taskgate_tool_calls_total", tenant=tenant) == times
        assert "umbrella" not in await gateway.metrics()


# --- what changes while it runs --------------------------------------------------------------------------------------


async def test_another_configuration_shows_at_once_and_leaves_what_it_does_not_touch(
    server: ScriptedServer, gateway: Gateway
) -> None:
    host = await gateway.greeted()
    await host.call("echo")
    told = await gateway.reload(
        configuration({"reports": server.url}, metrics={"buckets": {"mcp_server_operation_duration_seconds": [1, 2]}})
    )
    assert told.needs_restart == ()
    found = await shown(gateway, "mcp_server_operation_duration_seconds_bucket")
    assert found == {}, "it begins again"
    assert await gateway.count("taskgate_tool_calls_total") == 1
    await host.call("echo")
    buckets = await shown(gateway, "mcp_server_operation_duration_seconds_bucket")
    assert [name.partition('le="')[2].partition('"')[0] for name in buckets] == ["1.0", "2.0", "+Inf"]


async def test_metrics_that_are_switched_off_are_not_there(server: ScriptedServer, gateway: Gateway) -> None:
    await gateway.reload(configuration({"reports": server.url}, metrics={"enabled": False}))
    assert "taskgate" not in await gateway.metrics()
    await gateway.reload(configuration({"reports": server.url}))
    assert "taskgate_ready 1.0" in await gateway.metrics()
