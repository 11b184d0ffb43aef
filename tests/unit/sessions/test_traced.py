"""A call to a server has a span, and the request that leaves says where in the trace it is."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from helpers.manual_clock import ManualClock
from helpers.noted_spans import NotedSpan, NotedTracing
from helpers.noted_upstream import Server, response
from helpers.records import new_record
from helpers.waiting import bounded
from taskgate.domain.versions import Era
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.lifecycle.hearing import NOBODY
from taskgate.protocol.messages import Params, Response
from taskgate.sessions.traced import TracedUpstream, traced
from taskgate.telemetry.events import TaskDispatched
from taskgate.telemetry.request_context import RequestContext, in_request
from taskgate.telemetry.span_annotations import SpanAnnotator
from taskgate.telemetry.tracing import NO_TRACING
from taskgate.upstream.base import Upstream, UpstreamSession
from taskgate.upstream.principal import Principal

SPEAKER = Principal(context="c")
THEIRS = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def tracing() -> NotedTracing:
    return NotedTracing()


@pytest.fixture
def session(server: Server, tracing: NotedTracing) -> UpstreamSession:
    upstream = TracedUpstream(cast("Upstream", server), tracing, "https://reports.internal/mcp")
    return upstream.session(NOBODY, lambda: SPEAKER)


def visited() -> tuple[RequestContext, NotedSpan]:
    request_context, span = RequestContext("v", "127.0.0.1", "POST", "/"), NotedSpan("serving", "f" * 16)
    request_context.span = span
    return request_context, span


async def test_a_call_is_below_the_request_that_it_is_made_for(
    session: UpstreamSession, server: Server, tracing: NotedTracing
) -> None:
    request_context, around = visited()
    more: dict[str, Any] = {"listener": NOBODY, "principal": SPEAKER, "log_level": "info", "repeated": {"a": "1"}}
    with in_request(request_context):
        answered = await session.relay("tools/call", Params('{"name":"add"}'), tool="add", **more)
    (span,) = tracing.spans
    assert (span.name, span.parent, span.links, span.ends) == ("calling tools/call", around, [], [None])
    assert span.said == {
        "mount": "reports",
        "tool": "add",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "server.address": "reports.internal",
        "server.port": 443,
    }
    sent = Params(f'{{"name":"add","_meta":{{"traceparent":"{span.traceparent}"}}}}')
    assert server.inner.asked == [("relay", "tools/call", sent, {**more, "tool": "add"})]
    assert answered == response()


async def test_what_the_host_said_of_its_trace_is_replaced(
    session: UpstreamSession, server: Server, tracing: NotedTracing
) -> None:
    """And what it sent along with it goes no further: it was for us."""
    head = f'{{"_meta":{{"traceparent":"{THEIRS}","tracestate":"a=1","baggage":"b=2","progressToken":'
    await session.relay("tools/list", Params(head, "}}"), listener=NOBODY)
    (span,) = tracing.spans
    assert server.inner.asked[0][2] == Params(f'{{"_meta":{{"traceparent":"{span.traceparent}","progressToken":', "}}")


async def test_what_vendors_say_goes_along(session: UpstreamSession, server: Server, tracing: NotedTracing) -> None:
    begin = tracing.begin

    def begun(name: str, **said: Any) -> NotedSpan | None:
        span = begin(name, **said)
        assert span is not None
        span.tracestate = "a=1"
        return span

    tracing.begin = begun  # type: ignore[method-assign]
    await session.relay("ping", None, listener=NOBODY)
    place = tracing.spans[0].traceparent
    assert server.inner.asked[0][2] == Params(f'{{"_meta":{{"traceparent":"{place}","tracestate":"a=1"}}}}')


async def test_the_call_of_a_task_points_at_the_request_that_made_it(
    session: UpstreamSession, server: Server, tracing: NotedTracing
) -> None:
    request_context, around = visited()
    behind = request_context.for_background()
    behind.task = "task-1"
    more: dict[str, Any] = {"listener": NOBODY, "principal": None, "log_level": None, "repeated": None, "resumes": None}
    with in_request(behind):
        SpanAnnotator().emit(TaskDispatched(new_record(), timedelta(seconds=1.5)))
        await session.run("add", '{"name":"add"}', within=timedelta(seconds=9), **more)
    (span,) = tracing.spans
    assert (span.parent, span.links, span.tasks) == (None, [around.traceparent], ["task-1"])
    assert span.said["taskgate.queue_wait_s"] == 1.5
    sent = f'{{"name":"add","_meta":{{"traceparent":"{span.traceparent}"}}}}'
    assert server.inner.asked == [("run", "add", sent, {**more, "within": timedelta(seconds=9)})]


async def test_where_that_is_not_known_it_stands_alone(session: UpstreamSession, tracing: NotedTracing) -> None:
    """A task of an earlier process, and one whose wait nobody knows."""
    request_context, _ = visited()
    behind = request_context.for_background()
    behind.span = None
    for each in (behind, None):
        with in_request(each):
            await session.run("add", "{}", within=timedelta(seconds=9), listener=NOBODY)
    for span in tracing.spans:
        assert (span.parent, span.links, span.tasks) == (None, [], [])
        assert "taskgate.queue_wait_s" not in span.said


async def test_a_tool_that_no_server_lists_names_no_span(session: UpstreamSession, tracing: NotedTracing) -> None:
    await session.relay("tools/call", None, tool="made up", listener=NOBODY)
    await session.run("made up", "{}", within=timedelta(seconds=9), listener=NOBODY)
    await session.relay("tools/list", None, listener=NOBODY)
    assert [span.said["tool"] for span in tracing.spans] == [None, None, None]


# --- how it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('"result":{}', None),
        ('"result":{"isError":true}', "tool_error"),
        ('"error":{"code":-32603,"message":"x"}', "-32603"),
    ],
)
async def test_a_span_ends_as_its_call_does(
    session: UpstreamSession, server: Server, tracing: NotedTracing, text: str, error: str | None
) -> None:
    async def answer() -> Response:
        return response(text)

    server.inner.answer = answer
    await session.relay("tools/call", None, listener=NOBODY)
    assert tracing.spans[0].ends == [error]


@pytest.mark.parametrize(
    ("failure", "error"),
    [(UpstreamFailed(UpstreamReason.TIMEOUT, "late", dispatched=True), "timeout"), (ValueError("x"), "_OTHER")],
)
async def test_and_as_it_fails(
    session: UpstreamSession, server: Server, tracing: NotedTracing, failure: Exception, error: str
) -> None:
    async def answer() -> Response:
        raise failure

    server.inner.answer = answer
    with pytest.raises(type(failure)):
        await session.run("add", "{}", within=timedelta(seconds=9), listener=NOBODY)
    assert tracing.spans[0].ends == [error]


async def test_and_as_it_is_given_up(session: UpstreamSession, server: Server, tracing: NotedTracing) -> None:
    begun = asyncio.Event()

    async def answer() -> Response:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody answers")

    server.inner.answer = answer
    calling = asyncio.ensure_future(session.relay("tools/call", None, listener=NOBODY))
    async with bounded():
        await begun.wait()
        calling.cancel()
        await asyncio.wait((calling,))
    assert calling.cancelled()
    assert tracing.spans[0].ends == ["cancelled"]


async def test_without_a_span_a_request_goes_as_it_came(
    session: UpstreamSession, server: Server, tracing: NotedTracing
) -> None:
    tracing.is_off = True
    params = Params(f'{{"_meta":{{"traceparent":"{THEIRS}","baggage":"a=1"}}}}')
    assert await session.relay("tools/list", params, listener=NOBODY) == response()
    await session.run("add", params.head, within=timedelta(seconds=9), listener=NOBODY)
    assert [asked[2] for asked in server.inner.asked] == [params, params.head]


def test_without_tracing_nothing_stands_between(server: Server) -> None:
    """A call is the busiest thing that there is: it is not to pay for what nobody wants."""

    def make(*_: Any) -> Upstream:
        return cast("Upstream", server)

    assert traced(make, NO_TRACING) is make


# --- everything else -------------------------------------------------------------------------------------------------


async def test_everything_else_is_the_servers_own(server: Server, tracing: NotedTracing) -> None:
    upstream = traced(lambda *_: cast("Upstream", server), tracing)(
        cast("Any", type("Settings", (), {"url": "http://127.0.0.1/mcp"})), cast("Any", None), ManualClock()
    )
    upstream.open()
    host = cast("Any", "host")
    session = upstream.session(NOBODY, lambda: SPEAKER, host)
    assert (upstream.name, upstream.vitals().up, session.era) == ("reports", True, Era.MODERN)
    assert await session.open() == cast("Any", "opened")
    assert await session.welcome() == cast("Any", "welcomed")
    assert await session.tools() == {"add": "add"}
    assert session.listed("add") == cast("Any", "add")
    session.tell(cast("Any", "note"))
    session.outcome(cast("Any", "response"))
    await session.relay("ping", None, listener=NOBODY)
    await session.close()
    await upstream.close()
    assert server.told == ["open", (NOBODY, host), "close"]
    assert [asked[:2] for asked in server.inner.asked] == [
        ("tell", "note"),
        ("outcome", "response"),
        ("relay", "ping"),
        ("close",),
    ]
    assert (tracing.spans[0].said["server.address"], tracing.spans[0].said["server.port"]) == ("127.0.0.1", 80)


async def test_a_program_has_no_address(server: Server, tracing: NotedTracing) -> None:
    session = TracedUpstream(cast("Upstream", server), tracing, None).session(NOBODY, lambda: SPEAKER)
    await session.relay("ping", None, listener=NOBODY)
    assert tracing.spans[0].said == {"mount": "reports", "tool": None, "network.transport": "pipe"}
