"""The usage of upstreams: their open sessions, and the requests in flight.

A `CountedUpstream` counts its open sessions. When a reload of the config replaces a server, it
calls `redirect_to` of the old upstream: new sessions open at the successor. Then it awaits `wait_idle`,
which returns when the last session has closed, and closes the old upstream. A `RequestCounter`
counts requests in flight, for a metric and for a drain. `DelegatingSession` is the base of wrappers
around server sessions.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.versions import Era, Peer
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.discovery import ListedTool, ServerDescription
from taskgate.protocol.messages import Notification, Params, Response
from taskgate.upstream.base import Upstream, UpstreamSession, Vitals
from taskgate.upstream.call_listener import CallListener, SessionCallListener
from taskgate.upstream.principal import Principal, PrincipalSource
from taskgate.upstream.resume_points import Resumes


class RequestCounter:
    """The requests of hosts and calls of tasks in flight, by the name of their upstream.

    A replaced server and its successor have the same name, so they count together.
    """

    def __init__(self) -> None:
        self._in_flight: Counter[str] = Counter()
        self._ended: asyncio.Event | None = None

    def read(self) -> dict[tuple[str], int]:
        """Present counts by name, as label values of a metric; idle upstreams may be missing."""
        return {(name,): count for name, count in self._in_flight.items()}

    def begin(self, name: str) -> None:
        """Count the start of a request."""
        self._in_flight[name] += 1

    def end(self, name: str) -> None:
        """Count the end of a request: it was answered, failed, or was cancelled."""
        self._in_flight[name] -= 1
        if self._ended is not None:
            self._ended.set()

    async def wait_idle(self) -> None:
        """Wait until no request is in flight, at any upstream; used by a drain."""
        self._ended = ended = self._ended or asyncio.Event()
        while self._in_flight.total():
            ended.clear()
            await ended.wait()


class DelegatingSession:
    """An UpstreamSession that delegates to `inner`; subclasses add `relay`, `run` and `close`.

    `UpstreamSession` describes the methods. Here none has an effect of its own.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: UpstreamSession) -> None:
        self._inner = inner

    @property
    def era(self) -> Era:
        return self._inner.era

    def open(self) -> Coroutine[Any, Any, ServerDescription]:
        return self._inner.open()

    def welcome(self) -> Coroutine[Any, Any, ServerDescription]:
        return self._inner.welcome()

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        return self._inner.outcome(response)

    def tell(self, notification: Notification) -> None:
        self._inner.tell(notification)

    def tools(self) -> Coroutine[Any, Any, Mapping[str, ListedTool]]:
        return self._inner.tools()

    def listed(self, tool: str) -> ListedTool | None:
        return self._inner.listed(tool)

    def grants(self, filters: frozenset[str]) -> frozenset[str]:
        return self._inner.grants(filters)


class CountedUpstream:
    """An Upstream that counts the open sessions of `inner`, and their requests in `requests`.

    `requests` is shared by all upstreams of the process. `open` starts the upstream, and `vitals`
    returns its health, both of `inner`.
    """

    def __init__(self, inner: Upstream, requests: RequestCounter | None = None) -> None:
        self.name = inner.name
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
        return _CountedSession(session, self._on_closed, self.name, self._requests)

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


class _CountedSession(DelegatingSession):
    """A session that counts its requests, and calls `on_closed` once when it is closed."""

    __slots__ = ("_name", "_on_closed", "_requests")

    def __init__(
        self, inner: UpstreamSession, on_closed: Callable[[], None], name: str, requests: RequestCounter
    ) -> None:
        super().__init__(inner)
        self._on_closed: Callable[[], None] | None = on_closed
        self._name = name
        self._requests = requests

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
        self._requests.begin(self._name)
        try:
            return await self._inner.relay(
                method,
                params,
                listener=listener,
                tool=tool,
                principal=principal,
                log_level=log_level,
                repeated=repeated,
            )
        finally:
            self._requests.end(self._name)

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
        self._requests.begin(self._name)
        try:
            return await self._inner.run(
                tool,
                params,
                within=within,
                listener=listener,
                principal=principal,
                log_level=log_level,
                repeated=repeated,
                resumes=resumes,
            )
        finally:
            self._requests.end(self._name)

    async def close(self) -> None:
        try:
            await self._inner.close()
        finally:
            on_closed, self._on_closed = self._on_closed, None
            if on_closed is not None:
                on_closed()
