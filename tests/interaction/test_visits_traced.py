"""Spans of requests: each has one that ends once, with what came of it, and what is no request has none."""

import asyncio

import pytest

from helpers.mcp_host import McpHost
from helpers.noted_spans import NotedTracing
from helpers.scripted_upstream import Hold, ScriptedServer
from helpers.waiting import eventually
from helpers.whole_gateway import WholeGateway
from interaction.limiting import both_eras, come
from interaction.visiting import Visits

NAMES = {"initialize": "2025-11-25", "stateless": "2026-07-28"}


@pytest.fixture
def spans(heard: WholeGateway) -> NotedTracing:
    """The spans of that gateway."""
    tracing = NotedTracing()
    assert heard.service._runtime is not None
    heard.service._runtime.gateway.trace(tracing)
    return tracing


@both_eras
async def test_every_request_has_a_span_that_ends_once_with_what_came_of_it(
    heard: WholeGateway, request_contexts: Visits, spans: NotedTracing, era: str
) -> None:
    host = await come(heard, era)
    spans.spans.clear()
    await host.call("echo")
    await host.ask("no/such", {})
    called, unknown = spans.spans
    assert (called.name, called.ends) == ("serving tools/call", [None])
    assert called.said["mount"] == "reports"
    assert called.said["revision"] == NAMES[era]
    assert dict(called.said["fields"])["Content-Type"] == "application/json"
    assert (unknown.name, unknown.ends) == ("serving no/such", ["-32601"])
    assert [request_context.span for request_context in request_contexts.closed()[-2:]] == [called, unknown]


async def test_a_span_ends_though_its_request_is_cut_off(
    heard: WholeGateway, server: ScriptedServer, spans: NotedTracing
) -> None:
    server.script["report"] = Hold()
    asking = asyncio.create_task(heard.modern().call("report"))
    await eventually(lambda: server.heard("tools/call"))
    await heard.close()
    await asyncio.wait([asking])
    asking.exception()
    assert [span.ends for span in spans.spans] == [["cancelled"]]


async def test_what_is_no_request_has_no_span(heard: WholeGateway, spans: NotedTracing) -> None:
    host: McpHost = await heard.greeted()
    spans.spans.clear()
    await host.tell("notifications/unknown")
    await host.leave()
    assert spans.spans == []


@both_eras
async def test_where_spans_are_wanted_of_nothing_requests_have_none(
    heard: WholeGateway, request_contexts: Visits, spans: NotedTracing, era: str
) -> None:
    spans.is_off = True
    host = await come(heard, era)
    assert (await host.call("echo")).status == 200
    assert request_contexts.last().span is None


@both_eras
async def test_the_span_of_a_request_about_a_task_points_at_it(
    heard: WholeGateway, spans: NotedTracing, era: str
) -> None:
    task = (await (await heard.greeted()).start("echo", {}))["taskId"]
    host = await come(heard, era)
    for method in ("tasks/get", "tasks/cancel"):
        spans.spans.clear()
        await host.ask(method, {"taskId": task})
        assert spans.spans[0].tasks == [task]
        assert len(spans.spans[0].links) == 1
