"""Tracing of requests to servers: `TracedUpstream` makes a client span around each of them.

The span begins when a request or call is sent, and ends with its response, failure or cancellation.
Its trace context is sent along in `_meta`. `wiring` wraps the maker of upstreams in `with_tracing`.
A server is wrapped only if tracing is on, because calls are the most frequent operation.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from taskgate.clock import Clock
from taskgate.domain.versions import Peer
from taskgate.errors import GatewayError
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.meta import TraceKeys, with_trace_keys
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.sessions.upstream_usage import DelegatingSession
from taskgate.streams.exchange import error_of
from taskgate.telemetry import request_context
from taskgate.telemetry.span_annotations import QUEUE_WAIT, queue_wait
from taskgate.telemetry.tracing import NO_TRACING, Span, Tracing
from taskgate.upstream.base import Upstream, UpstreamSession, Vitals
from taskgate.upstream.call_listener import CallListener, SessionCallListener
from taskgate.upstream.principal import Principal, PrincipalSource
from taskgate.upstream.resume_points import Resumes
from taskgate.upstream.settings import UpstreamObserver, UpstreamSettings

ADDRESS: Final = "server.address"
PORT: Final = "server.port"
TRANSPORT: Final = "network.transport"
PROTOCOL: Final = "network.protocol.name"
CANCELLED: Final = "cancelled"
OTHER: Final = "_OTHER"
"""The error type of an unexpected failure."""

_PORTS: Final = {"http": 80, "https": 443}

UpstreamFactory = Callable[[UpstreamSettings, UpstreamObserver, Clock], Upstream]


def with_tracing(make: UpstreamFactory, tracing: Tracing) -> UpstreamFactory:
    """Return a factory of traced upstreams; `make` itself if tracing is off."""
    if tracing is NO_TRACING:
        return make

    def make_traced(settings: UpstreamSettings, observer: UpstreamObserver, clock: Clock) -> Upstream:
        return TracedUpstream(make(settings, observer, clock), tracing, settings.url)

    return make_traced


class TracedUpstream:
    """An Upstream that traces the calls of `inner`. `url` is its address; None for a program."""

    def __init__(self, inner: Upstream, tracing: Tracing, url: str | None) -> None:
        self.name = inner.name
        self._inner = inner
        self._tracing = tracing
        self._network = _network_attributes(url)

    def open(self) -> None:
        self._inner.open()

    def vitals(self) -> Vitals:
        return self._inner.vitals()

    def session(
        self, listener: SessionCallListener, principal_source: PrincipalSource, host: Peer | None = None
    ) -> UpstreamSession:
        start_span = _SpanStarter(self._tracing, self.name, self._network)
        return _TracedSession(self._inner.session(listener, principal_source, host), start_span)

    async def close(self) -> None:
        await self._inner.close()


class _SpanStarter:
    """Starts the spans of requests to one server. Calling it with a method and a tool returns a
    span, which must be ended once; None if this request is not traced.
    """

    __slots__ = ("_mount", "_network", "_tracing")

    def __init__(self, tracing: Tracing, mount: str, network: Mapping[str, str | int]) -> None:
        self._tracing = tracing
        self._mount = mount
        self._network = network

    def __call__(self, method: str, tool: str | None) -> Span | None:
        here = request_context.current()
        origin = None if here is None else here.span
        is_task = here is not None and here.background
        # The request that created a task ends long before the call, so its span is linked instead
        # of being the parent.
        link = origin.traceparent if origin is not None and is_task else None
        parent = None if is_task else origin
        span = self._tracing.start_client_span(method, mount=self._mount, tool=tool, parent=parent, link=link)
        if span is None:
            return None
        for key, value in self._network.items():
            span.set_attribute(key, value)
        if here is not None and is_task:
            _set_task_attributes(span, here)
        return span


class _TracedSession(DelegatingSession):
    """A session with a span around each request and call."""

    __slots__ = ("_start_span",)

    def __init__(self, inner: UpstreamSession, start_span: _SpanStarter) -> None:
        super().__init__(inner)
        self._start_span = start_span

    async def relay(
        self,
        method: str,
        params: Params | None,
        *,
        listener: CallListener,
        tool: str | None = None,
        principal: Principal | None = None,
        log_level: str | None = None,
        repeated: Mapping[str, str] | None = None,
    ) -> Response:
        span = self._start_span(method, self._known(tool))
        if span is not None:
            params = with_trace_keys(params, _trace_keys(span))
        return await _traced(
            span,
            self._inner.relay(
                method,
                params,
                listener=listener,
                tool=tool,
                principal=principal,
                log_level=log_level,
                repeated=repeated,
            ),
        )

    async def run(
        self,
        tool: str,
        params: RawJson,
        *,
        within: timedelta,
        listener: CallListener,
        principal: Principal | None = None,
        log_level: str | None = None,
        repeated: Mapping[str, str] | None = None,
        resumes: Resumes | None = None,
    ) -> Response:
        span = self._start_span(TOOLS_CALL, self._known(tool))
        if span is not None:
            params = with_trace_keys(Params(params), _trace_keys(span)).head
        return await _traced(
            span,
            self._inner.run(
                tool,
                params,
                within=within,
                listener=listener,
                principal=principal,
                log_level=log_level,
                repeated=repeated,
                resumes=resumes,
            ),
        )

    async def close(self) -> None:
        await self._inner.close()

    def _known(self, tool: str | None) -> str | None:
        """Return the tool if the server lists it, else None: other names come from hosts, and their
        number has no bound.
        """
        return tool if tool is not None and self._inner.listed(tool) is not None else None


def _network_attributes(url: str | None) -> Mapping[str, str | int]:
    if url is None:
        return {TRANSPORT: "pipe"}
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    return {TRANSPORT: "tcp", PROTOCOL: "http", ADDRESS: parts.hostname or "", PORT: port}


def _set_task_attributes(span: Span, here: request_context.RequestContext) -> None:
    if here.task is not None:
        span.set_task(here.task)
    seconds = queue_wait()
    if seconds is not None:
        span.set_attribute(QUEUE_WAIT, seconds)


async def _traced(span: Span | None, call: Coroutine[Any, Any, Response]) -> Response:
    """Await a call, return its response, and end its span with the error type, None on success."""
    if span is None:
        return await call
    error: str | None = OTHER
    try:
        response = await call
        error = error_of(response)
    except GatewayError as failure:
        error = failure.reason
        raise
    except asyncio.CancelledError:
        error = CANCELLED
        raise
    finally:
        span.end(error)
    return response


def _trace_keys(span: Span) -> TraceKeys:
    return TraceKeys(span.traceparent, span.tracestate)
