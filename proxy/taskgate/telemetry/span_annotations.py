"""Attributes and links that the span of the current request gets on its way: `ANNOTATIONS`.

They are taken from the events that metrics and the audit log get, at the time of the event.
`annotate_task` adds what requests about an existing task show. `opentelemetry` has the attributes
that every span starts with.
"""

from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

from taskgate.domain.record import TaskRecord
from taskgate.telemetry.events import TaskCreated, TaskDispatched, ToolCalled
from taskgate.telemetry.request_context import current
from taskgate.telemetry.ring import Handlers
from taskgate.telemetry.tracing import Span

DISPOSITION: Final = "taskgate.disposition"
"""The `disposition` of a `tools/call`, as in metrics."""
QUEUE_WAIT: Final = "taskgate.queue_wait_s"
"""Seconds from the creation of a task to the dispatch of its call."""

_QUEUE_WAIT: Final[ContextVar[float | None]] = ContextVar("taskgate_queue_wait", default=None)

queue_wait = _QUEUE_WAIT.get
"""The queue wait of the call that is being dispatched, in seconds; None outside of a task."""


def annotate_task(span: Span, record: TaskRecord) -> None:
    """Name the task in the span, and link to the span of the request that created the task."""
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


ANNOTATIONS: Final[Handlers] = MappingProxyType(
    {ToolCalled: _tool_called, TaskCreated: _task_created, TaskDispatched: _task_dispatched}
)
"""The functions that annotate the span of the current request, by the type of the event.

The dispatch of a task's call is an exception: its span does not exist yet. So the queue wait is
kept, and the code that starts the span next reads it by `queue_wait`.
"""
