"""A request of a host can be followed through the gateway to its server."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from helpers.host.host import ACCEPT
from helpers.otlp_collector import CLIENT, SERVER, OtlpCollector, Place, serve_traced
from helpers.server import ScriptedServer, error, result
from helpers.waiting import bounded
from interaction.programs import program
from interaction.traces import META, PARENT, THEIRS, TRACE, heard_by, place


@pytest.fixture
async def collector() -> AsyncIterator[OtlpCollector]:
    """Who takes the spans."""
    async with OtlpCollector() as collector:
        yield collector


async def test_a_call_is_one_trace_from_its_host_to_its_server(
    server: ScriptedServer, collector: OtlpCollector
) -> None:
    async with serve_traced(collector, {"reports": server.url}) as gateway:
        host = await gateway.greeted()
        await host.ask("tools/call", {"name": "echo", "arguments": {}, "_meta": {**META, "x": 1}})
    serving, calling = collector.only(SERVER, "tools/call echo"), collector.only(CLIENT, "tools/call echo")
    assert serving.parent == Place(TRACE, PARENT)
    assert (calling.place.trace, calling.parent) == (TRACE, serving.place)
    told = heard_by(server)
    assert place(told["traceparent"]) == calling.place
    # What is ours is ours alone: nothing of the host's is left beside it.
    assert {name: told[name] for name in told if name != "traceparent"} == {"x": 1, "tracestate": "vendor=a"}


async def test_a_request_without_a_trace_begins_one(server: ScriptedServer, collector: OtlpCollector) -> None:
    async with serve_traced(collector, {"reports": server.url}) as gateway:
        await (await gateway.greeted()).call("echo")
    serving = collector.only(SERVER, "tools/call echo")
    assert (serving.parent, serving.links) == (None, ())
    assert place(heard_by(server)["traceparent"]).trace == serving.place.trace


async def test_a_trace_that_is_named_around_a_request_goes_on_too(
    server: ScriptedServer, collector: OtlpCollector
) -> None:
    async with serve_traced(collector, {"reports": server.url}) as gateway:
        host = await gateway.greeted()
        around = {"traceparent": f"00-{PARENT}{PARENT}-{PARENT}-01"}
        await host.ask("tools/list", headers=around)
        await host.ask("ping", {"_meta": META}, headers=around)
    alone, both = collector.only(SERVER, "tools/list"), collector.only(SERVER, "ping")
    assert (alone.parent, alone.links) == (Place(f"{PARENT}{PARENT}", PARENT), ())
    assert (both.parent, both.links) == (Place(TRACE, PARENT), (alone.parent,))


async def test_spans_say_what_the_conventions_name(server: ScriptedServer, collector: OtlpCollector) -> None:
    async with serve_traced(collector, {"reports": server.url}) as gateway:
        host = await gateway.greeted()
        await host.call("echo")
    serving, calling = collector.only(SERVER, "tools/call echo"), collector.only(CLIENT, "tools/call echo")
    both = {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "taskgate.upstream": "reports",
    }
    port = int(server.origin.rpartition(":")[2])
    assert calling.attributes == {**both, "server.address": "127.0.0.1", "server.port": port}
    own = {name: serving.attributes[name] for name in ("jsonrpc.request.id", "taskgate.request.id", "taskgate.context")}
    assert serving.attributes == {
        **both,
        **own,
        "mcp.protocol.version": "2025-11-25",
        "taskgate.disposition": "direct",
    }
    assert own["taskgate.context"].startswith("c_")
    assert (serving.resource["service.name"], serving.status, calling.status) == ("taskgate", 0, 0)


async def test_nothing_that_a_host_makes_up_names_a_span(server: ScriptedServer, collector: OtlpCollector) -> None:
    async with serve_traced(collector, {"reports": server.url}) as gateway:
        host = await gateway.greeted()
        await host.call("made-up")
        await host.ask("made/up")
    assert {span.name for span in collector.spans} == {"initialize", "tools/call", "_OTHER"}
    assert not any("made" in str(value) for span in collector.spans for value in span.attributes.values())


async def test_an_error_is_told_on_both_sides(server: ScriptedServer, collector: OtlpCollector) -> None:
    server.script["broken"] = error(-32050, "no")
    server.script["report"] = result({"content": [], "isError": True})
    async with serve_traced(collector, {"reports": server.url}) as gateway:
        host = await gateway.greeted()
        await host.call("broken")
        await host.call("report")
    told = {
        (span.kind, span.name): (span.attributes["error.type"], span.attributes.get("rpc.response.status_code"))
        for span in collector.spans
        if span.status == 2
    }
    assert told == {
        (SERVER, "tools/call broken"): ("-32050", "-32050"),
        (CLIENT, "tools/call broken"): ("-32050", "-32050"),
        (SERVER, "tools/call report"): ("tool_error", None),
        (CLIENT, "tools/call report"): ("tool_error", None),
    }


async def test_a_server_that_fails_is_told_by_how(server: ScriptedServer, collector: OtlpCollector) -> None:
    async with serve_traced(collector, {"reports": server.url}) as gateway:
        host = await gateway.greeted()
        await host.call("echo")
        await server.stop()
        await host.call("echo")
    (calling,) = [span for span in collector.of(CLIENT) if span.status == 2]
    (serving,) = [span for span in collector.of(SERVER) if span.status == 2]
    assert (calling.attributes["error.type"], calling.parent) == ("unreachable", serving.place)
    assert serving.attributes["error.type"] == "-32603"


async def test_what_is_refused_has_a_span_that_says_why(server: ScriptedServer, collector: OtlpCollector) -> None:
    rate = {"name": "calls", "scope": "context", "rate": "1/h", "burst": 1, "methods": ["tools/call"]}
    async with serve_traced(collector, {"reports": server.url}, limits={"rate": [rate]}) as gateway:
        host = await gateway.greeted()
        await host.call("echo")
        await host.call("echo")
    (refused,) = [span for span in collector.of(SERVER) if span.status == 2]
    assert (refused.attributes["error.type"], refused.attributes["taskgate.refusal"]) == ("429", "rate")


async def test_each_part_of_a_batch_has_a_span(server: ScriptedServer, collector: OtlpCollector) -> None:
    server.revision = "2025-03-26"
    section = {"reports": {"path": "/reports/mcp", "url": server.url, "protocol_version": "2025-03-26"}}
    async with serve_traced(collector, {"reports": server.url}, upstreams=section) as gateway:
        host = await gateway.greeted("2025-03-26")
        batch = [
            {"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"_meta": {"traceparent": THEIRS}}},
            {"jsonrpc": "2.0", "id": 8, "method": "tools/list"},
        ]
        head = {"Content-Type": "application/json", "Accept": ACCEPT, "Mcp-Session-Id": str(host.session)}
        async with bounded(), gateway.http.post(gateway.url(), data=json.dumps(batch), headers=head) as response:
            assert len(await response.json()) == 2
    ping, listing = collector.only(SERVER, "ping"), collector.only(SERVER, "tools/list")
    assert (ping.parent, listing.parent) == (Place(TRACE, PARENT), None)
    assert collector.only(CLIENT, "tools/list").parent == listing.place


async def test_many_calls_at_once_each_have_a_trace_of_their_own(
    server: ScriptedServer, collector: OtlpCollector
) -> None:
    async with serve_traced(collector, {"reports": server.url}) as gateway:
        host = await gateway.greeted()
        places = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 33)]
        await asyncio.gather(
            *(
                host.ask("tools/call", {"name": "echo", "arguments": {}, "_meta": {"traceparent": each}})
                for each in places
            )
        )
    of = {span.place: span for span in collector.of(SERVER, "tools/call echo")}
    assert {span.parent for span in of.values()} == {place(each) for each in places}
    calls = collector.of(CLIENT, "tools/call echo")
    assert {call.parent for call in calls} == of.keys()
    assert {call.place for call in calls} == {
        place(message["params"]["_meta"]["traceparent"]) for message in server.heard("tools/call")
    }


async def test_spans_of_calls_to_a_program_say_that_they_go_through_a_pipe(collector: OtlpCollector) -> None:
    async with serve_traced(collector, {}, upstreams={"reports": program()}) as gateway:
        await (await gateway.greeted()).call("echo")
    calling = collector.only(CLIENT, "tools/call echo")
    assert calling.attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "network.transport": "pipe",
        "taskgate.upstream": "reports",
    }
