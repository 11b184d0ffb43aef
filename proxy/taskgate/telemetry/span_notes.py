"""What spans are told of what happens during their request: out of the events that metrics and the audit log get.

What must not live here: how a span says it (`opentelemetry`).
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final

from taskgate.telemetry.events import Event, EventSink, TaskCreated, TaskDispatched, ToolCalled
from taskgate.telemetry.request_context import current
from taskgate.telemetry.tracing import Span

DISPOSITION: Final = "taskgate.disposition"
"""What became of a call of a tool."""
QUEUE_WAIT: Final = "taskgate.queue_wait_s"
"""How long the call of a task waited before it left."""

_WAITED: Final[ContextVar[float | None]] = ContextVar("taskgate_waited", default=None)

waited = _WAITED.get
"""Seconds that the call which leaves now waited as a task; None for one that is no task's."""


class SpanNotes:
    """Tells the span of the present request; see EventSink."""

    def emit(self, event: Event) -> None:
        """See EventSink."""
        take = _TAKERS.get(type(event))
        if take is not None:
            take(event)


def _called(called: ToolCalled) -> None:
    span = _present()
    if span is not None:
        if called.tool is not None:
            span.calls(called.tool)
        span.note(DISPOSITION, called.disposition)


def _created(created: TaskCreated) -> None:
    span = _present()
    if span is not None:
        span.about(created.task.id)


def _dispatched(dispatched: TaskDispatched) -> None:
    # In the asyncio task that makes the call next, and for that alone.
    _WAITED.set(dispatched.waited.total_seconds())


def _present() -> Span | None:
    request_context = current()
    return None if request_context is None else request_context.span


_TAKERS: Final[Mapping[type, Callable[[Any], None]]] = MappingProxyType(
    {ToolCalled: _called, TaskCreated: _created, TaskDispatched: _dispatched}
)
_: type[EventSink] = SpanNotes
