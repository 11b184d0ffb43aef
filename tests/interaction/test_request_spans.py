"""Spans of requests: each has one that ends once, with what came of it, and what is no request has none."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.host.host import both_eras
from helpers.otlp_collector import CLIENT, SERVER, OtlpCollector, serve_traced
from helpers.server import Hold, ScriptedServer
from helpers.waiting import eventually
from interaction.audit_logs import REQUESTS, audited, lines, of

NAMES = {"legacy": "2025-11-25", "modern": "2026-07-28"}


@pytest.fixture
async def collector() -> AsyncIterator[OtlpCollector]:
    """Who takes the spans."""
    async with OtlpCollector() as collector:
        yield collector


@both_eras
async def test_every_request_has_a_span_that_ends_once_with_what_came_of_it(
    server: ScriptedServer, collector: OtlpCollector, tmp_path: Path, era: str
) -> None:
    async with serve_traced(collector, {"reports": server.url}, audit=audited(tmp_path)) as gateway:
        host = await gateway.greeted(era=era)
        await host.call("echo")
        await host.ask("no/such", {})
    called, unknown = collector.only(SERVER, "tools/call echo"), collector.only(SERVER, "_OTHER")
    assert (called.status, "error.type" in called.attributes) == (0, False)
    assert (called.attributes["taskgate.upstream"], called.attributes["mcp.protocol.version"]) == (
        "reports",
        NAMES[era],
    )
    assert (unknown.status, unknown.attributes["error.type"]) == (2, "-32601")
    told = of(lines(tmp_path), *REQUESTS)[-2:]
    assert [(line["trace"]["trace_id"], line["trace"]["span_id"]) for line in told] == [called.place, unknown.place]
    assert [line["http"]["request_id"] for line in told] == [
        span.attributes["taskgate.request.id"] for span in (called, unknown)
    ]


async def test_a_span_ends_though_its_request_is_cut_off(server: ScriptedServer, collector: OtlpCollector) -> None:
    server.script["report"] = Hold()
    async with serve_traced(collector, {"reports": server.url}) as gateway:
        asking = asyncio.create_task(gateway.modern().call("report"))
        await eventually(lambda: server.heard("tools/call"))
        await gateway.close()
        await asyncio.wait([asking])
        asking.exception()
    assert [span.attributes["error.type"] for span in collector.of(SERVER)] == ["cancelled"]


async def test_what_is_no_request_has_no_span(server: ScriptedServer, collector: OtlpCollector) -> None:
    async with serve_traced(collector, {"reports": server.url}) as gateway:
        host = await gateway.greeted()
        await host.tell("notifications/unknown")
        await host.leave()
    assert [span.name for span in collector.of(SERVER)] == ["initialize"]


@both_eras
async def test_where_spans_are_wanted_of_nothing_requests_have_none(
    server: ScriptedServer, collector: OtlpCollector, era: str
) -> None:
    async with serve_traced(collector, {"reports": server.url}, tracing={"sample_ratio": 0}) as gateway:
        assert (await (await gateway.greeted(era=era)).call("echo")).status == 200
    assert collector.spans == []


@both_eras
async def test_the_span_of_a_request_about_a_task_points_at_it(
    server: ScriptedServer, collector: OtlpCollector, tmp_path: Path, era: str
) -> None:
    async with serve_traced(collector, {"reports": server.url}, folder=tmp_path, audit=audited(tmp_path)) as gateway:
        task = (await (await gateway.greeted()).start("echo", {}))["taskId"]
        host = await gateway.greeted(era=era)
        for method in ("tasks/get", "tasks/cancel"):
            await host.ask(method, {"taskId": task})
    made = collector.only(SERVER, "tools/call echo")
    (ref,) = {line["task"]["ref"] for line in of(lines(tmp_path), "task.created")}
    for method in ("tasks/get", "tasks/cancel"):
        asked = collector.only(SERVER, method)
        assert (asked.attributes["taskgate.task.ref"], set(asked.links)) == (ref, {made.place})
    assert collector.of(CLIENT, "tools/call echo")[0].attributes["taskgate.task.ref"] == ref
