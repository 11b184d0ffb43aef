"""The usage of upstreams: their open sessions, for the reload of the configuration.

A `CountedUpstream` counts its open sessions. When a reload of the config replaces a server, it calls
`redirect_to` of the old upstream: new sessions open at the successor. Then it awaits `wait_idle`,
which returns when the last session has closed, and closes the old upstream. Its sessions count their
requests in flight, and trace them if tracing is on (`upstream_tracing`).
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from taskgate.domain.versions import Peer
from taskgate.upstream.base import Upstream, UpstreamSession, Vitals
from taskgate.upstream.calls import PrincipalSource, SessionCallListener
from taskgate.upstream.session import CallTracer, RequestCounter, SessionUsage
from taskgate.upstream.settings import UpstreamSettings


class CountableUpstream(Upstream, Protocol):
    """An upstream whose sessions count and trace their calls by a `SessionUsage`."""

    def counted_session(
        self,
        usage: SessionUsage,
        listener: SessionCallListener,
        principal_source: PrincipalSource,
        host: Peer | None = None,
    ) -> UpstreamSession:
        """Return a session as `session` does."""
        ...

    def renew(self, settings: UpstreamSettings) -> None:
        """Use the secrets of these settings from the next request on, if its own are of that form."""
        ...


class CountedUpstream:
    """An Upstream that counts the open sessions of `inner`, and their requests in `requests`.

    `requests` is shared by all upstreams of the process. `tracer` traces each request, None without
    tracing. `open` starts the upstream, and `vitals` returns its health, both of
    `inner`.
    """

    def __init__(
        self, inner: CountableUpstream, requests: RequestCounter | None = None, tracer: CallTracer | None = None
    ) -> None:
        self.name = inner.name
        self._tracer = tracer
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
        usage = SessionUsage(self.name, self._requests, self._tracer, self._on_closed)
        session = self._inner.counted_session(usage, listener, principal_source, host)
        self._sessions += 1
        self._empty.clear()
        return session

    def renew(self, settings: UpstreamSettings) -> None:
        """Use the secrets of these settings from the next request on, in all sessions."""
        self._inner.renew(settings)

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
