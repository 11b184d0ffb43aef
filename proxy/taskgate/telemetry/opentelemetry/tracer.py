"""When spans begin, what they are called, and what they say of what they are about; by the conventions for MCP.

What must not live here: the SDK (`exporting`). What holds: no name, and no attribute that one would count by, is of a
host's choosing; no token, session id or task id is told.
"""

from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final

from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Tracer,
    set_span_in_context,
)

from taskgate.clock import Clock
from taskgate.protocol.envelope import Request
from taskgate.protocol.trace_keys import TraceKeys, trace_keys
from taskgate.protocol.vocabulary import METHODS_OF_HOSTS, TOOLS_CALL
from taskgate.telemetry import request_context
from taskgate.telemetry.opentelemetry import places, words
from taskgate.telemetry.opentelemetry.spans import SPAN_OF, LiveSpan, SpanServices, known_revision, time_of
from taskgate.telemetry.tracing import Span, Tracing

OTHER: Final = "_OTHER"
"""What a method is called that neither a revision nor an extension has."""
LONGEST: Final = 8 * 1024
"""Letters of arguments that a span keeps; of longer ones it has the beginning."""


class OpenTelemetryTracing:
    """See Tracing. Of a host that is not believed (`trusts` False) a span is no child, but points at what it said.

    `methods` has those that extensions have, beside those of the core. `finish` is called at the end: it has everything
    exported, or gives up.
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
        finish: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._tracer = tracer
        self._means = SpanServices(clock, task_ref)
        self._trusts = trusts
        self._records_arguments = records_arguments
        self._methods = methods
        self._finish = finish

    def serving(
        self, request: Request, *, mount: str, revision: str | None, fields: Collection[tuple[str, str]]
    ) -> Span | None:
        """See Tracing."""
        told, around = places.read(trace_keys(request.params)), places.read(places.in_headers(fields))
        # What the message says comes first: it was written by whoever asks, headers by whoever is on the way.
        links = [place for place in (told, around) if place is not None]
        parent = links.pop(0) if links and self._trusts else None
        said = {words.REQUEST_ID: str(request.id), words.TRANSPORT: "tcp", words.PROTOCOL: "http"}
        known = known_revision(revision)
        if known is not None:
            said[words.REVISION] = known
        here = request_context.current()
        if here is not None:
            said[words.VISIT] = here.id
            if here.caller is not None:
                said[words.CONTEXT] = f"c_{here.caller.key}"
        method = request.method if request.method in METHODS_OF_HOSTS or request.method in self._methods() else OTHER
        span = self._begin(SpanKind.SERVER, method, mount, said, parent, links)
        if self._records_arguments and span is not None and method == TOOLS_CALL:
            arguments = request.params.get("arguments")
            if arguments is not None:
                span.note(words.ARGUMENTS, request.text[arguments.start : arguments.end][:LONGEST])
        return span

    def calling(
        self, method: str, *, mount: str, tool: str | None, parent: Span | None, link: str | None = None
    ) -> Span | None:
        """See Tracing."""
        place = None if parent is None else _place(parent)
        pointed_at = None if link is None else places.read(TraceKeys(link))
        span = self._begin(SpanKind.CLIENT, method, mount, {}, place, [] if pointed_at is None else [pointed_at])
        if span is not None and tool is not None:
            span.calls(tool)
        return span

    async def close(self) -> None:
        """See Tracing."""
        await self._finish()

    def _begin(
        self,
        kind: SpanKind,
        method: str,
        mount: str,
        said: dict[str, str],
        parent: SpanContext | None,
        links: Collection[SpanContext],
    ) -> LiveSpan | None:
        said |= {words.METHOD: method, words.UPSTREAM: mount}
        if method == TOOLS_CALL:
            said[words.OPERATION] = words.EXECUTE_TOOL
        started = time_of(self._means.clock.now())
        span = self._tracer.start_span(
            method,
            # Never what happens to be the current one of some library.
            set_span_in_context(NonRecordingSpan(parent or INVALID_SPAN_CONTEXT)),
            kind,
            said,
            [Link(place) for place in links],
            started,
        )
        # Where the environment turned the SDK off.
        if not span.get_span_context().is_valid:
            return None
        return SPAN_OF[kind](span, method, self._means, started)


def _place(span: Span) -> SpanContext | None:
    return span.context if isinstance(span, LiveSpan) else places.read(TraceKeys(span.traceparent))


_: type[Tracing] = OpenTelemetryTracing
