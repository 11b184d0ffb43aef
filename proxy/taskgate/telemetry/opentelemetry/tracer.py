"""Spans by the semantic conventions for MCP: `OpenTelemetryTracing` and `LiveSpan`.

It needs the OpenTelemetry API alone; `sdk` builds the tracer. Span names, and attributes that
one would group by, come from closed sets and not from hosts. No attribute holds a token, a session
id or a task id.
"""

from collections.abc import Callable, Collection, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from taskgate.clock import Clock
from taskgate.domain.versions import find_modern_revision, find_revision
from taskgate.protocol.messages import Request
from taskgate.protocol.meta import TraceKeys, read_trace_keys
from taskgate.protocol.vocabulary import METHODS_OF_HOSTS, TOOLS_CALL, TRACEPARENT, TRACESTATE
from taskgate.telemetry import request_context
from taskgate.telemetry.tracing import Span, Tracing

METHOD: Final = "mcp.method.name"
REVISION: Final = "mcp.protocol.version"
REQUEST_ID: Final = "jsonrpc.request.id"
STATUS_CODE: Final = "rpc.response.status_code"
ERROR_TYPE: Final = "error.type"
OPERATION: Final = "gen_ai.operation.name"
EXECUTE_TOOL: Final = "execute_tool"
"""The value of `OPERATION` for `tools/call`."""
TOOL: Final = "gen_ai.tool.name"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TRANSPORT: Final = "network.transport"
PROTOCOL: Final = "network.protocol.name"

UPSTREAM: Final = "taskgate.upstream"
"""The name of the server in the configuration."""
REQUEST_CONTEXT: Final = "taskgate.request.id"
"""The id of the request in the audit log and in log lines."""
CONTEXT: Final = "taskgate.context"
"""The caller, as in the audit log."""
TASK: Final = "taskgate.task.ref"
"""The public reference of the task, as in the audit log."""
REFUSAL: Final = "taskgate.refusal"
"""Why the request was refused."""


OTHER: Final = "_OTHER"
"""The name of a method that is neither in a revision nor in an extension."""
MAX_ARGUMENTS: Final = 8 * 1024
"""Characters of tool arguments that a span records; longer ones are cut."""


class OpenTelemetryTracing:
    """The `Tracing` over an OpenTelemetry tracer.

    The trace context of a trusted host (`trusts`) is the parent of its SERVER span. That of another
    host is only linked. `task_ref` makes the public reference of a task id, None if
    spans show none. `methods` returns the methods of extensions. `close` calls `shutdown`.
    """

    def __init__(
        self,
        tracer: Tracer,
        *,
        clock: Clock,
        trusts: bool,
        records_arguments: bool,
        task_ref: Callable[[str], str] | None,
        methods: Callable[[], Collection[str]],
        shutdown: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._tracer = tracer
        self.clock = clock
        self.task_ref = task_ref
        self._trusts = trusts
        self._records_arguments = records_arguments
        self._methods = methods
        self._shutdown = shutdown

    def start_server_span(
        self, request: Request, *, mount: str, revision: str | None, fields: Collection[tuple[str, str]]
    ) -> Span | None:
        # The message comes first: the caller wrote it, while proxies on the way can set headers.
        contexts = (span_context(read_trace_keys(request.params)), span_context(trace_keys_of_headers(fields)))
        links = [context for context in contexts if context is not None]
        parent = links.pop(0) if links and self._trusts else None
        start = {REQUEST_ID: str(request.id), TRANSPORT: "tcp", PROTOCOL: "http"}
        known = known_revision(revision)
        if known is not None:
            start[REVISION] = known
        here = request_context.current()
        if here is not None:
            start[REQUEST_CONTEXT] = here.id
            if here.caller is not None:
                start[CONTEXT] = f"c_{here.caller.key}"
        method = request.method if request.method in METHODS_OF_HOSTS or request.method in self._methods() else OTHER
        span = self._start(SpanKind.SERVER, method, mount, start, parent, links)
        if self._records_arguments and span is not None and method == TOOLS_CALL:
            arguments = request.params.get("arguments")
            if arguments is not None:
                text = request.text[arguments.start : arguments.end]
                span.set_attribute(ARGUMENTS, text[:MAX_ARGUMENTS])
        return span

    def start_client_span(
        self, method: str, *, mount: str, tool: str | None, parent: Span | None, link: str | None = None
    ) -> Span | None:
        linked = None if link is None else span_context(TraceKeys(link))
        span = self._start(SpanKind.CLIENT, method, mount, {}, _context_of(parent), [] if linked is None else [linked])
        if span is not None and tool is not None:
            span.set_tool(tool)
        return span

    async def close(self) -> None:
        await self._shutdown()

    def _start(
        self,
        kind: SpanKind,
        method: str,
        mount: str,
        start: dict[str, str],
        parent: SpanContext | None,
        links: Collection[SpanContext],
    ) -> "LiveSpan | None":
        start |= {METHOD: method, UPSTREAM: mount}
        if method == TOOLS_CALL:
            start[OPERATION] = EXECUTE_TOOL
        started = nanoseconds_since_epoch(self.clock.now())
        span = self._tracer.start_span(
            method,
            # Without a parent of its own, a span would be a child of what another library made current.
            set_span_in_context(NonRecordingSpan(parent or INVALID_SPAN_CONTEXT)),
            kind,
            start,
            [Link(context) for context in links],
            started,
        )
        # OTEL_SDK_DISABLED makes the SDK return invalid spans.
        if not span.get_span_context().is_valid:
            return None
        return _SPAN_CLASSES[kind](span, method, self, started)


# --- spans -----------------------------------------------------------------------------------------------------------


class LiveSpan:
    """A `Span` over one of OpenTelemetry.

    `method` is its name as long as the tool is unknown. `started` is in nanoseconds since 1970.
    `_started_elapsed` is the same moment by the monotonic clock.
    """

    __slots__ = ("_is_ended", "_method", "_span", "_started", "_started_elapsed", "_tracing", "context", "is_sampled")

    def __init__(self, span: OtelSpan, method: str, tracing: OpenTelemetryTracing, started: int) -> None:
        self._span = span
        self._method = method
        self._tracing = tracing
        self._started = started
        self._started_elapsed = tracing.clock.elapsed()
        self._is_ended = False
        self.context: SpanContext = span.get_span_context()
        self.is_sampled: bool = self.context.trace_flags.sampled

    @property
    def trace_id(self) -> str:
        return f"{self.context.trace_id:032x}"

    @property
    def span_id(self) -> str:
        return f"{self.context.span_id:016x}"

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.context.trace_flags:02x}"

    @property
    def tracestate(self) -> str | None:
        return self.context.trace_state.to_header() or None

    def add_link(self, traceparent: str) -> None:
        context = span_context(TraceKeys(traceparent)) if self._is_recording else None
        if context is not None:
            self._span.add_link(context)

    def set_attribute(self, name: str, value: str | int | float) -> None:
        if self._is_recording:
            self._span.set_attribute(name, value)

    def set_task(self, task: str) -> None:
        task_ref = self._tracing.task_ref
        if task_ref is not None and self._is_recording:
            self._span.set_attribute(TASK, task_ref(task))

    def set_tool(self, tool: str) -> None:
        if self._is_recording:
            self._span.update_name(f"{self._method} {tool}")
            self._span.set_attribute(TOOL, tool)

    def end(self, error: str | None = None) -> None:
        if self._is_ended:
            return
        if error is not None and self.is_sampled:
            self._span.set_attribute(ERROR_TYPE, error)
            if error.removeprefix("-").isdecimal():
                self._span.set_attribute(STATUS_CODE, error)
            self._span.set_status(Status(StatusCode.ERROR))
        self._is_ended = True
        # The monotonic clock, so that a change of the wall clock does not change the duration.
        taken = timedelta(seconds=self._tracing.clock.elapsed() - self._started_elapsed)
        self._span.end(self._started + _nanoseconds(taken))

    @property
    def _is_recording(self) -> bool:
        return self.is_sampled and not self._is_ended


class ServerSpan(LiveSpan):
    """The span of a host's request; its end adds what the request context learned meanwhile."""

    __slots__ = ()

    def end(self, error: str | None = None) -> None:
        here = request_context.current()
        if here is not None and here.span is self:
            revision = known_revision(here.revision)
            if revision is not None:
                self.set_attribute(REVISION, revision)
            if here.refusal is not None:
                self.set_attribute(REFUSAL, here.refusal)
        super().end(error)


_SPAN_CLASSES: Final = {SpanKind.SERVER: ServerSpan, SpanKind.CLIENT: LiveSpan}


def known_revision(text: str | None) -> str | None:
    """A known revision of the protocol; None for anything else that a host sends."""
    found = find_revision(text) or find_modern_revision(text)
    return None if found is None else found.value


def nanoseconds_since_epoch(time: datetime) -> int:
    """A time as OpenTelemetry takes it: nanoseconds since 1970."""
    return _nanoseconds(time - _EPOCH)


def _nanoseconds(span: timedelta) -> int:
    return span // _MICROSECOND * 1000


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


# --- trace context ---------------------------------------------------------------------------------------------------


def span_context(keys: TraceKeys | None) -> SpanContext | None:
    """The span context of W3C keys; None if it is invalid. An invalid tracestate is left out."""
    if keys is None:
        return None
    carrier = {TRACEPARENT: keys.traceparent}
    if keys.tracestate is not None:
        carrier[TRACESTATE] = keys.tracestate
    context = get_current_span(_PROPAGATOR.extract(carrier)).get_span_context()
    return context if context.is_valid else None


def trace_keys_of_headers(fields: Collection[tuple[str, str]]) -> TraceKeys | None:
    """The W3C keys in the header fields of a request; None unless there is exactly one traceparent."""
    parents: list[str] = []
    states: list[str] = []
    for field, value in fields:
        # Most fields are others, so their first letter spares lower().
        if field[:1] in "Tt":
            name = field.lower()
            if name == TRACEPARENT:
                parents.append(value)
            elif name == TRACESTATE:
                states.append(value)
    return TraceKeys(parents[0], ",".join(states) or None) if len(parents) == 1 else None


def _context_of(span: Span | None) -> SpanContext | None:
    if span is None:
        return None
    return span.context if isinstance(span, LiveSpan) else span_context(TraceKeys(span.traceparent))


_PROPAGATOR: Final = TraceContextTextMapPropagator()
_: type[Tracing] = OpenTelemetryTracing
