"""One span, as the rest of the house knows it.

What must not live here: when spans begin (`tracer`), and where they go (`exporting`).
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode

from taskgate.clock import Clock
from taskgate.domain.versions import find_modern_revision, find_revision
from taskgate.protocol.trace_keys import TraceKeys
from taskgate.telemetry import request_context
from taskgate.telemetry.opentelemetry import places, words


class SpanServices(NamedTuple):
    """What every span needs: the time, and how a task is told of; None where no task is."""

    clock: Clock
    task_ref: Callable[[str], str] | None


class LiveSpan:
    """See taskgate.telemetry.tracing.Span. `name` is what it is called as long as no tool is known."""

    __slots__ = ("_begun", "_context", "_is_over", "_name", "_services", "_span", "_started", "is_sampled")

    def __init__(self, span: Span, name: str, services: SpanServices, started: int) -> None:
        self._span = span
        self._name = name
        self._services = services
        self._started = started
        self._begun = services.clock.elapsed()
        self._is_over = False
        self._context: SpanContext = span.get_span_context()
        self.is_sampled: bool = self._context.trace_flags.sampled

    @property
    def context(self) -> SpanContext:
        """Its place, as OpenTelemetry has it."""
        return self._context

    @property
    def trace_id(self) -> str:
        """See Span."""
        return f"{self._context.trace_id:032x}"

    @property
    def span_id(self) -> str:
        """See Span."""
        return f"{self._context.span_id:016x}"

    @property
    def traceparent(self) -> str:
        """See Span."""
        return f"00-{self.trace_id}-{self.span_id}-{self._context.trace_flags:02x}"

    @property
    def tracestate(self) -> str | None:
        """See Span."""
        return self._context.trace_state.to_header() or None

    def link(self, traceparent: str) -> None:
        """See Span."""
        place = None if self._is_silent else places.read(TraceKeys(traceparent))
        if place is not None:
            self._span.add_link(place)

    def note(self, name: str, value: str | int | float) -> None:
        """See Span."""
        if not self._is_silent:
            self._span.set_attribute(name, value)

    def about(self, task: str) -> None:
        """See Span."""
        if self._services.task_ref is not None and not self._is_silent:
            self._span.set_attribute(words.TASK, self._services.task_ref(task))

    def calls(self, tool: str) -> None:
        """See Span."""
        if not self._is_silent:
            self._span.update_name(f"{self._name} {tool}")
            self._span.set_attribute(words.TOOL, tool)

    def finish(self, error: str | None = None) -> None:
        """See Span."""
        if self._is_over:
            return
        if error is not None and self.is_sampled:
            self._blame(error)
        self._is_over = True
        taken = timedelta(seconds=self._services.clock.elapsed() - self._begun)
        self._span.end(self._started + _nanoseconds(taken))

    @property
    def _is_silent(self) -> bool:
        return self._is_over or not self.is_sampled

    def _blame(self, error: str) -> None:
        self._span.set_attribute(words.ERROR_TYPE, error)
        if error.removeprefix("-").isdecimal():
            self._span.set_attribute(words.STATUS_CODE, error)
        self._span.set_status(Status(StatusCode.ERROR))


class ServingSpan(LiveSpan):
    """That of a request of a host. At its end it tells what came to be known of the request meanwhile."""

    __slots__ = ()

    def finish(self, error: str | None = None) -> None:
        """See Span."""
        here = request_context.current()
        if here is not None and here.span is self:
            for name, value in ((words.REVISION, known_revision(here.revision)), (words.REFUSAL, here.refusal)):
                if value is not None:
                    self.note(name, value)
        super().finish(error)


SPAN_OF: Final = {SpanKind.SERVER: ServingSpan, SpanKind.CLIENT: LiveSpan}


def known_revision(said: str | None) -> str | None:
    """A revision of the protocol; None for what is none, whatever a host says."""
    found = find_revision(said) or find_modern_revision(said)
    return None if found is None else found.value


def time_of(now: datetime) -> int:
    """Nanoseconds since 1970, as spans have their beginning and end."""
    return _nanoseconds(now - _EPOCH)


def _nanoseconds(span: timedelta) -> int:
    return span // _MICROSECOND * 1000


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
