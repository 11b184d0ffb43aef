"""An upstream whose calls are traced: a span around each, and its place in the request that leaves.

What must not live here: what a span says of itself (`telemetry`), and any decision. It is put around a server only
where tracing is on.
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
from taskgate.sessions.around import AroundSession
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
"""What a failure is called that nobody foresaw."""

_PORTS: Final = {"http": 80, "https": 443}

Make = Callable[[UpstreamSettings, UpstreamObserver, Clock], Upstream]


def traced(make: Make, tracing: Tracing) -> Make:
    """What makes servers as `make` does, with all their calls traced; `make` itself where nothing is."""
    if tracing is NO_TRACING:
        return make

    def made(settings: UpstreamSettings, observer: UpstreamObserver, clock: Clock) -> Upstream:
        return TracedUpstream(make(settings, observer, clock), tracing, settings.url)

    return made


class TracedUpstream:
    """Hands everything to `inner`, and traces its calls; see Upstream. It is at `url`, None for a program."""

    def __init__(self, inner: Upstream, tracing: Tracing, url: str | None) -> None:
        self.name = inner.name
        self._inner = inner
        self._tracing = tracing
        self._way = _way(url)

    def open(self) -> None:
        """See Upstream."""
        self._inner.open()

    def vitals(self) -> Vitals:
        """See Upstream."""
        return self._inner.vitals()

    def session(
        self, listener: SessionCallListener, principal_source: PrincipalSource, host: Peer | None = None
    ) -> UpstreamSession:
        """See Upstream."""
        begin = _Beginning(self._tracing, self.name, self._way)
        return _TracedSession(self._inner.session(listener, principal_source, host), begin)

    async def close(self) -> None:
        """See Upstream."""
        await self._inner.close()


class _Beginning:
    """Begins spans of calls to one server."""

    __slots__ = ("_mount", "_tracing", "_way")

    def __init__(self, tracing: Tracing, mount: str, way: Mapping[str, str | int]) -> None:
        self._tracing = tracing
        self._mount = mount
        self._way = way

    def __call__(self, method: str, tool: str | None) -> Span | None:
        here = request_context.current()
        origin = None if here is None else here.span
        is_task = here is not None and here.background
        # The request that made a task is answered long before, and its duration is not that of the call.
        link = origin.traceparent if origin is not None and is_task else None
        parent = None if is_task else origin
        span = self._tracing.start_client_span(method, mount=self._mount, tool=tool, parent=parent, link=link)
        if span is None:
            return None
        for key, value in self._way.items():
            span.set_attribute(key, value)
        if here is not None and is_task:
            _tell_of_task(span, here)
        return span


class _TracedSession(AroundSession):
    """See UpstreamSession."""

    __slots__ = ("_begin",)

    def __init__(self, inner: UpstreamSession, begin: _Beginning) -> None:
        super().__init__(inner)
        self._begin = begin

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
        span = self._begin(method, self._known(tool))
        if span is not None:
            params = with_trace_keys(params, _keys(span))
        return await _through(
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
        span = self._begin(TOOLS_CALL, self._known(tool))
        if span is not None:
            params = with_trace_keys(Params(params), _keys(span)).head
        return await _through(
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
        return tool if tool is not None and self._inner.listed(tool) is not None else None


def _way(url: str | None) -> Mapping[str, str | int]:
    """What is said of how a server is spoken to, and where."""
    if url is None:
        return {TRANSPORT: "pipe"}
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    return {TRANSPORT: "tcp", PROTOCOL: "http", ADDRESS: parts.hostname or "", PORT: port}


def _tell_of_task(span: Span, here: request_context.RequestContext) -> None:
    if here.task is not None:
        span.set_task(here.task)
    seconds = queue_wait()
    if seconds is not None:
        span.set_attribute(QUEUE_WAIT, seconds)


async def _through(span: Span | None, call: Coroutine[Any, Any, Response]) -> Response:
    """What a call comes to, which is also how its span ends."""
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


def _keys(span: Span) -> TraceKeys:
    return TraceKeys(span.traceparent, span.tracestate)
