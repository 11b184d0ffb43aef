"""The usage of upstreams: their open sessions, and the requests in flight.

A `CountedUpstream` counts its open sessions. When a reload of the config replaces a server, it
calls `redirect_to` of the old upstream: new sessions open at the successor. Then it awaits
`wait_idle`, which returns when the last session has closed, and closes the old upstream. Sessions
count requests in flight in a `RequestCounter`, for a metric and for a drain. If tracing is on, each
request also has a span (`upstream_tracing`).
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from taskgate.domain.versions import Era, Peer
from taskgate.protocol.messages import Response
from taskgate.protocol.meta import with_trace_keys
from taskgate.sessions.upstream_tracing import CallSpans, keys_of, traced
from taskgate.upstream.base import Upstream, UpstreamSession, Vitals
from taskgate.upstream.call_listener import CallListener, SessionCallListener
from taskgate.upstream.calls import UpstreamCall
from taskgate.upstream.principal import PrincipalSource


class RequestCounter:
    """The requests of hosts and calls of tasks in flight, by the name of their upstream.

    A replaced server and its successor have the same name, so they count together.
    """

    def __init__(self) -> None:
        self.in_flight: Counter[str] = Counter()
        """The counts, kept by the sessions. A request ends when it is answered, fails, or is
        cancelled."""
        self.ended: asyncio.Event | None = None
        """Set by a session at the end of each request; None until a drain waits."""

    def read(self) -> dict[tuple[str], int]:
        """Present counts by name, as label values of a metric; idle upstreams may be missing."""
        return {(name,): count for name, count in self.in_flight.items()}

    async def wait_idle(self) -> None:
        """Wait until no request is in flight, at any upstream; used by a drain."""
        self.ended = ended = self.ended or asyncio.Event()
        while self.in_flight.total():
            ended.clear()
            await ended.wait()


class CountedUpstream:
    """An Upstream that counts the open sessions of `inner`, and their requests in `requests`.

    `requests` is shared by all upstreams of the process. `spans` starts the span of each request,
    None without tracing. `open` starts the upstream, and `vitals` returns its health, both of
    `inner`.
    """

    def __init__(self, inner: Upstream, requests: RequestCounter | None = None, spans: CallSpans | None = None) -> None:
        self.name = inner.name
        self._spans = spans
        self._inner = inner
        self._requests = requests or RequestCounter()
        self._successor: Callable[[], Upstream | None] | None = None
        self._sessions = 0
        self._closing: asyncio.Task[None] | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    def open(self) -> None:
        self._inner.open()

    def vitals(self) -> Vitals:
        return self._inner.vitals()

    def session(
        self, listener: SessionCallListener, principal_source: PrincipalSource, host: Peer | None = None
    ) -> UpstreamSession:
        """Return a new session: of the successor if there is one, else of this server."""
        successor = None if self._successor is None else self._successor()
        if successor is not None:
            return successor.session(listener, principal_source, host)
        session = self._inner.session(listener, principal_source, host)
        self._sessions += 1
        self._empty.clear()
        return _CountedSession(session, self._on_closed, self.name, self._requests, self._spans)

    def redirect_to(self, successor: Callable[[], Upstream | None]) -> None:
        """Open further sessions at what `successor` returns; None means at this server.

        `successor` is called for each new session, and nothing of it is stored. Otherwise each
        reload would keep the upstreams of all reloads since in memory.
        """
        self._successor = successor

    async def wait_idle(self) -> None:
        """Wait until every session that was opened here is closed; closes nothing itself."""
        await self._empty.wait()

    async def close(self) -> None:
        """Close the server and its sessions, once. A cancelled caller does not stop that."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._inner.close())
        await asyncio.shield(self._closing)

    def _on_closed(self) -> None:
        self._sessions -= 1
        if not self._sessions:
            self._empty.set()


class _CountedSession:
    """A session that counts and traces its requests, and calls `on_closed` once when it is closed.

    The other methods are those of `inner`.
    """

    __slots__ = (
        "_inner",
        "_name",
        "_on_closed",
        "_requests",
        "_spans",
        "grants",
        "listed",
        "open",
        "outcome",
        "tell",
        "tools",
        "welcome",
    )

    def __init__(
        self,
        inner: UpstreamSession,
        on_closed: Callable[[], None],
        name: str,
        requests: RequestCounter,
        spans: CallSpans | None,
    ) -> None:
        self._inner = inner
        self._on_closed: Callable[[], None] | None = on_closed
        self._name = name
        self._requests = requests
        self._spans = spans
        self.grants = inner.grants
        self.listed = inner.listed
        self.open = inner.open
        self.outcome = inner.outcome
        self.tell = inner.tell
        self.tools = inner.tools
        self.welcome = inner.welcome

    @property
    def era(self) -> Era:
        return self._inner.era

    async def call(self, call: UpstreamCall, listener: CallListener) -> Response:
        requests, name = self._requests, self._name
        requests.in_flight[name] += 1
        try:
            span = None if self._spans is None else self._spans.start(call.method, call.tool, self.listed)
            if span is None:
                return await self._inner.call(call, listener)
            call = replace(call, params=with_trace_keys(call.params, keys_of(span)))
            return await traced(span, self._inner.call(call, listener))
        finally:
            requests.in_flight[name] -= 1
            if requests.ended is not None:
                requests.ended.set()

    async def close(self) -> None:
        try:
            await self._inner.close()
        finally:
            on_closed, self._on_closed = self._on_closed, None
            if on_closed is not None:
                on_closed()
