"""Each call to a server has a client span, and sends its trace context to the server."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from helpers.noted_spans import NotedSpan, NotedTracing
from helpers.recording_upstream import RecordingUpstream, response
from helpers.records import new_record
from helpers.upstream_calls import task_call
from helpers.waiting import bounded
from taskgate.domain.versions import Era
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.lifecycle.task_listener import NOBODY
from taskgate.protocol.messages import Params, Response
from taskgate.sessions.upstream_tracing import call_spans
from taskgate.sessions.upstream_usage import CountedUpstream
from taskgate.telemetry.events import TaskDispatched
from taskgate.telemetry.request_context import RequestContext, in_request
from taskgate.telemetry.ring import EventRing
from taskgate.telemetry.span_annotations import ANNOTATIONS
from taskgate.telemetry.tracing import NO_TRACING
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.calls import Principal, UpstreamCall

PRINCIPAL = Principal(context="c")
HOST_TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def server() -> RecordingUpstream:
    return RecordingUpstream()


@pytest.fixture
def tracing() -> NotedTracing:
    return NotedTracing()


@pytest.fixture
def session(server: RecordingUpstream, tracing: NotedTracing) -> UpstreamSession:
    return traced(server, tracing, "https://reports.internal/mcp").session(NOBODY, lambda: PRINCIPAL)


def traced(server: RecordingUpstream, tracing: NotedTracing, url: str | None) -> CountedUpstream:
    return CountedUpstream(server, tracer=call_spans(tracing, server.name, url))


def host_request() -> tuple[RequestContext, NotedSpan]:
    request_context, span = RequestContext("v", "127.0.0.1", "POST", "/"), NotedSpan("serving", "f" * 16)
    request_context.span = span
    return request_context, span


async def test_the_span_of_a_call_is_a_child_of_the_hosts_request(
    session: UpstreamSession, server: RecordingUpstream, tracing: NotedTracing
) -> None:
    request_context, serving = host_request()
    call = UpstreamCall(
        "tools/call", Params('{"name":"add"}'), "add", principal=PRINCIPAL, log_level="info", repeated={"a": "1"}
    )
    with in_request(request_context):
        answered = await session.call(call, NOBODY)
    (span,) = tracing.spans
    assert (span.name, span.parent, span.links, span.ends) == ("calling tools/call", serving, [], [None])
    assert span.said == {
        "mount": "reports",
        "tool": "add",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "server.address": "reports.internal",
        "server.port": 443,
    }
    sent = Params(f'{{"name":"add","_meta":{{"traceparent":"{span.traceparent}"}}}}')
    assert server.sessions[0].asked == [("call", replace(call, params=sent), NOBODY)]
    assert answered == response()


async def test_the_trace_context_of_the_host_is_replaced_and_its_baggage_dropped(
    session: UpstreamSession, server: RecordingUpstream, tracing: NotedTracing
) -> None:
    head = f'{{"_meta":{{"traceparent":"{HOST_TRACEPARENT}","tracestate":"a=1","baggage":"b=2","progressToken":'
    await session.call(UpstreamCall("tools/list", Params(head, "}}")), NOBODY)
    (span,) = tracing.spans
    assert server.sessions[0].asked[0][1].params == Params(
        f'{{"_meta":{{"traceparent":"{span.traceparent}","progressToken":', "}}"
    )


async def test_the_tracestate_is_sent_with_the_traceparent(
    session: UpstreamSession, server: RecordingUpstream, tracing: NotedTracing
) -> None:
    begin = tracing.begin

    def begun(name: str, **said: Any) -> NotedSpan | None:
        span = begin(name, **said)
        assert span is not None
        span.tracestate = "a=1"
        return span

    tracing.begin = begun  # type: ignore[method-assign]
    await session.call(UpstreamCall("ping", None), NOBODY)
    place = tracing.spans[0].traceparent
    assert server.sessions[0].asked[0][1].params == Params(
        f'{{"_meta":{{"traceparent":"{place}","tracestate":"a=1"}}}}'
    )


async def test_the_span_of_a_tasks_call_links_to_the_request_that_created_the_task(
    session: UpstreamSession, server: RecordingUpstream, tracing: NotedTracing
) -> None:
    request_context, serving = host_request()
    background = request_context.for_background()
    background.task = "task-1"
    call = task_call("add", '{"name":"add"}', timedelta(seconds=9))
    event_sink = EventRing()
    event_sink.annotate(ANNOTATIONS)
    with in_request(background):
        event_sink.emit(TaskDispatched(new_record(), timedelta(seconds=1.5)))
        await session.call(call, NOBODY)
    (span,) = tracing.spans
    assert (span.parent, span.links, span.tasks) == (None, [serving.traceparent], ["task-1"])
    assert span.said["taskgate.queue_wait_s"] == 1.5
    sent = Params(f'{{"name":"add","_meta":{{"traceparent":"{span.traceparent}"}}}}')
    assert server.sessions[0].asked == [("call", replace(call, params=sent), NOBODY)]


async def test_the_span_of_a_task_whose_request_is_unknown_has_no_parent_and_no_link(
    session: UpstreamSession, tracing: NotedTracing
) -> None:
    """Such as a task of an earlier process."""
    request_context, _ = host_request()
    background = request_context.for_background()
    background.span = None
    for each in (background, None):
        with in_request(each):
            await session.call(task_call("add", "{}", timedelta(seconds=9)), NOBODY)
    for span in tracing.spans:
        assert (span.parent, span.links, span.tasks) == (None, [], [])
        assert "taskgate.queue_wait_s" not in span.said


async def test_a_span_names_only_tools_that_the_server_lists(session: UpstreamSession, tracing: NotedTracing) -> None:
    await session.call(UpstreamCall("tools/call", None, tool="made up"), NOBODY)
    await session.call(task_call("made up", "{}", timedelta(seconds=9)), NOBODY)
    await session.call(UpstreamCall("tools/list", None), NOBODY)
    assert [span.said["tool"] for span in tracing.spans] == [None, None, None]


# --- ends of spans ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('"result":{}', None),
        ('"result":{"isError":true}', "tool_error"),
        ('"error":{"code":-32603,"message":"x"}', "-32603"),
    ],
)
async def test_a_span_ends_with_the_error_of_the_response(
    session: UpstreamSession, server: RecordingUpstream, tracing: NotedTracing, text: str, error: str | None
) -> None:
    async def answer() -> Response:
        return response(text)

    server.sessions[0].answer = answer
    await session.call(UpstreamCall("tools/call", None), NOBODY)
    assert tracing.spans[0].ends == [error]


@pytest.mark.parametrize(
    ("failure", "error"),
    [(UpstreamFailed(UpstreamReason.TIMEOUT, "late", dispatched=True), "timeout"), (ValueError("x"), "_OTHER")],
)
async def test_a_span_ends_with_the_reason_of_a_failure(
    session: UpstreamSession, server: RecordingUpstream, tracing: NotedTracing, failure: Exception, error: str
) -> None:
    async def answer() -> Response:
        raise failure

    server.sessions[0].answer = answer
    with pytest.raises(type(failure)):
        await session.call(task_call("add", "{}", timedelta(seconds=9)), NOBODY)
    assert tracing.spans[0].ends == [error]


async def test_a_cancelled_call_ends_its_span(
    session: UpstreamSession, server: RecordingUpstream, tracing: NotedTracing
) -> None:
    begun = asyncio.Event()

    async def answer() -> Response:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError("the call was not cancelled")

    server.sessions[0].answer = answer
    calling = asyncio.ensure_future(session.call(UpstreamCall("tools/call", None), NOBODY))
    async with bounded():
        await begun.wait()
        calling.cancel()
        await asyncio.wait((calling,))
    assert calling.cancelled()
    assert tracing.spans[0].ends == ["cancelled"]


async def test_a_call_without_a_span_is_sent_unchanged(
    session: UpstreamSession, server: RecordingUpstream, tracing: NotedTracing
) -> None:
    tracing.is_off = True
    params = Params(f'{{"_meta":{{"traceparent":"{HOST_TRACEPARENT}","baggage":"a=1"}}}}')
    assert await session.call(UpstreamCall("tools/list", params), NOBODY) == response()
    await session.call(task_call("add", params, timedelta(seconds=9)), NOBODY)
    assert [asked[1].params for asked in server.sessions[0].asked] == [params, params]


def test_without_tracing_nothing_starts_spans() -> None:
    assert call_spans(NO_TRACING, "reports", "http://127.0.0.1/mcp") is None


# --- delegation -------------------------------------------------------------------------------------------------------


async def test_everything_but_calls_is_delegated_to_the_server(
    server: RecordingUpstream, tracing: NotedTracing
) -> None:
    upstream = traced(server, tracing, "http://127.0.0.1/mcp")
    upstream.open()
    host = cast("Any", "host")
    session = upstream.session(NOBODY, lambda: PRINCIPAL, host)
    assert (upstream.name, upstream.vitals().up, session.era) == ("reports", True, Era.MODERN)
    assert await session.open() == cast("Any", "opened")
    assert await session.tools() == {"add": "add"}
    assert session.listed("add") == cast("Any", "add")
    session.tell(cast("Any", "note"))
    session.outcome(cast("Any", "response"))
    await session.call(UpstreamCall("ping", None), NOBODY)
    await session.close()
    await upstream.close()
    assert server.asked == ["open", "close"]
    assert (server.sessions[0].listener, server.sessions[0].host) == (NOBODY, host)
    assert [asked[:2] for asked in server.sessions[0].asked] == [
        ("tell", "note"),
        ("outcome", "response"),
        ("call", UpstreamCall("ping", Params(f'{{"_meta":{{"traceparent":"{tracing.spans[0].traceparent}"}}}}'))),
        ("close",),
    ]
    assert (tracing.spans[0].said["server.address"], tracing.spans[0].said["server.port"]) == ("127.0.0.1", 80)


async def test_a_program_has_the_transport_pipe_and_no_address(
    server: RecordingUpstream, tracing: NotedTracing
) -> None:
    session = traced(server, tracing, None).session(NOBODY, lambda: PRINCIPAL)
    await session.call(UpstreamCall("ping", None), NOBODY)
    assert tracing.spans[0].said == {"mount": "reports", "tool": None, "network.transport": "pipe"}
