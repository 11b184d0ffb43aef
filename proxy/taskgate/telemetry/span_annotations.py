"""Attributes and links that the span of the current request gets on its way: `SpanAnnotator`.

The annotator takes them from the events that metrics and the audit log get. `annotate_task` adds
what requests about an existing task show. `opentelemetry` has the attributes that every span starts
with.
"""

from contextvars import ContextVar
from logging import getLogger
from types import MappingProxyType
from typing import Final

from taskgate.domain.record import TaskRecord
from taskgate.telemetry.events import Event, EventFanout, Handlers, TaskCreated, TaskDispatched, ToolCalled
from taskgate.telemetry.request_context import current
from taskgate.telemetry.tracing import Span

DISPOSITION: Final = "taskgate.disposition"
"""The `disposition` of a `tools/call`, as in metrics."""
QUEUE_WAIT: Final = "taskgate.queue_wait_s"
"""Seconds from the creation of a task to the dispatch of its call."""

_log = getLogger(__name__)
_QUEUE_WAIT: Final[ContextVar[float | None]] = ContextVar("taskgate_queue_wait", default=None)

queue_wait = _QUEUE_WAIT.get
"""The queue wait of the call that is being dispatched, in seconds; None outside of a task."""


class SpanAnnotator:
    """A reader of events that annotates the span of the current request, if there is one.

    The dispatch of a task's call is an exception: its span does not exist yet. So the annotator
    keeps the queue wait, and the code that starts the span next reads it by `queue_wait`.
    """

    def __init__(self, event_sink: EventFanout) -> None:
        event_sink.subscribe(self, _ANNOTATIONS)

    def note_failure(self, event: Event) -> None:
        _log.exception("an event was not shown in a span", extra={"fact": type(event).__name__})


def annotate_task(record: TaskRecord) -> None:
    """Name the task in the current span, and link to the span of the request that created it."""
    request_context = current()
    if request_context is not None and (span := request_context.span) is not None:
        span.set_task(record.id)
        if record.trace is not None:
            span.add_link(record.trace)


def _tool_called(event: ToolCalled) -> None:
    span = _current_span()
    if span is not None:
        if event.tool is not None:
            span.set_tool(event.tool)
        span.set_attribute(DISPOSITION, event.disposition)


def _task_created(event: TaskCreated) -> None:
    span = _current_span()
    if span is not None:
        span.set_task(event.task.id)


def _task_dispatched(event: TaskDispatched) -> None:
    # The same asyncio task makes the call next, and no other one sees the variable.
    _QUEUE_WAIT.set(event.waited.total_seconds())


def _current_span() -> Span | None:
    request_context = current()
    return None if request_context is None else request_context.span


_ANNOTATIONS: Final[Handlers] = MappingProxyType(
    {ToolCalled: _tool_called, TaskCreated: _task_created, TaskDispatched: _task_dispatched}
)
