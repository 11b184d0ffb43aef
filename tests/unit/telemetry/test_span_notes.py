"""Spans are told of what happens during their request, and of nothing else."""

import asyncio
from datetime import timedelta

from helpers.noted_spans import NotedSpan
from helpers.records import new_record
from taskgate.telemetry.events import CallsRunning, TaskCreated, TaskDispatched, ToolCalled
from taskgate.telemetry.request_context import RequestContext, within
from taskgate.telemetry.span_notes import SpanNotes, waited


def visited() -> tuple[RequestContext, NotedSpan]:
    request_context, span = RequestContext("v", "127.0.0.1", "POST", "/"), NotedSpan("s", "1" * 16)
    request_context.span = span
    return request_context, span


def test_the_call_of_a_listed_tool_names_its_span_and_what_became_of_it() -> None:
    request_context, span = visited()
    with within(request_context):
        SpanNotes().emit(ToolCalled("reports", "add", "direct"))
    assert (span.tools, span.said) == (["add"], {"taskgate.disposition": "direct"})


def test_one_that_no_server_lists_names_nothing() -> None:
    request_context, span = visited()
    with within(request_context):
        SpanNotes().emit(ToolCalled("reports", None, "rejected"))
    assert (span.tools, span.said) == ([], {"taskgate.disposition": "rejected"})


def test_a_request_that_makes_a_task_is_about_it() -> None:
    request_context, span = visited()
    record = new_record()
    with within(request_context):
        SpanNotes().emit(TaskCreated(record, None))
    assert span.tasks == [record.id]


def test_what_is_nobodys_is_told_to_nobody() -> None:
    notes = SpanNotes()
    for request_context in (None, RequestContext("v", "127.0.0.1", "POST", "/")):
        with within(request_context):
            notes.emit(ToolCalled("reports", "add", "direct"))
            notes.emit(TaskCreated(new_record(), None))
            notes.emit(CallsRunning("reports", 1))


async def test_a_call_knows_how_long_it_waited_and_no_other_call_does() -> None:
    async def run(seconds: float | None) -> float | None:
        if seconds is not None:
            SpanNotes().emit(TaskDispatched(new_record(), timedelta(seconds=seconds)))
        await asyncio.sleep(0)
        return waited()

    assert await asyncio.gather(run(1.5), run(None), run(0.25)) == [1.5, None, 0.25]
    assert waited() is None
