"""The span of a request shows what happens during the request, and the task that it is about."""

import asyncio
from datetime import timedelta

from helpers.noted_spans import NotedSpan
from helpers.records import new_record
from taskgate.telemetry.events import ConcurrencyChanged, Event, TaskCreated, TaskDispatched, ToolCalled
from taskgate.telemetry.request_context import RequestContext, in_request
from taskgate.telemetry.ring import EventRing
from taskgate.telemetry.span_annotations import ANNOTATIONS, annotate_task, queue_wait

PLACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def annotate(event: Event) -> None:
    """Emit an event where spans are annotated."""
    event_sink = EventRing()
    event_sink.annotate(ANNOTATIONS)
    event_sink.emit(event)


def traced_request() -> tuple[RequestContext, NotedSpan]:
    request_context, span = RequestContext("v", "127.0.0.1", "POST", "/"), NotedSpan("s", "1" * 16)
    request_context.span = span
    return request_context, span


def test_the_call_of_a_listed_tool_names_its_span_and_what_became_of_it() -> None:
    request_context, span = traced_request()
    with in_request(request_context):
        annotate(ToolCalled("reports", "add", "direct"))
    assert (span.tools, span.said) == (["add"], {"taskgate.disposition": "direct"})


def test_one_that_no_server_lists_names_nothing() -> None:
    request_context, span = traced_request()
    with in_request(request_context):
        annotate(ToolCalled("reports", None, "rejected"))
    assert (span.tools, span.said) == ([], {"taskgate.disposition": "rejected"})


def test_a_request_that_makes_a_task_is_about_it() -> None:
    request_context, span = traced_request()
    record = new_record()
    with in_request(request_context):
        annotate(TaskCreated(record, None))
    assert span.tasks == [record.id]


def test_what_is_nobodys_is_told_to_nobody() -> None:
    for request_context in (None, RequestContext("v", "127.0.0.1", "POST", "/")):
        with in_request(request_context):
            annotate(ToolCalled("reports", "add", "direct"))
            annotate(TaskCreated(new_record(), None))
            annotate(ConcurrencyChanged("reports", 1, 32, 0))


async def test_a_call_knows_how_long_it_waited_and_no_other_call_does() -> None:
    async def run(seconds: float | None) -> float | None:
        if seconds is not None:
            annotate(TaskDispatched(new_record(), timedelta(seconds=seconds)))
        await asyncio.sleep(0)
        return queue_wait()

    assert await asyncio.gather(run(1.5), run(None), run(0.25)) == [1.5, None, 0.25]
    assert queue_wait() is None


# --- requests about a task -------------------------------------------------------------------------------------------


def annotated(trace: str | None) -> NotedSpan:
    _, span = traced_request()
    record = new_record(trace=trace)
    annotate_task(span, record)
    assert span.tasks == [record.id]
    return span


def test_it_points_at_the_request_that_made_the_task() -> None:
    assert annotated(PLACE).links == [PLACE]


def test_it_says_what_task_it_is_about_where_that_was_not_traced() -> None:
    assert annotated(None).links == []
