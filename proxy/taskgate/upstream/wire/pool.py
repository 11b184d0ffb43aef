"""The connections to one server: made when they are needed, and kept for a moment after.

What must not live here: HTTP. What holds: nobody else knows which connections there are, and after `close` there are
none, nor one that is being made. A connection and its timers are of nobody whom they serve: nothing that is ambient
where one is asked for is ambient in them.
"""

import asyncio
from contextvars import Context

from yarl import URL

from taskgate.errors import UpstreamFailed
from taskgate.system import descriptors
from taskgate.upstream import failures
from taskgate.upstream.settings import UpstreamTls
from taskgate.upstream.wire.connection import Connection
from taskgate.upstream.wire.dialing import Dialer


class Pool:
    """As many connections as there are requests at once. `connect` and `reuse_within` are seconds.

    Raises TlsFileRefused.
    """

    def __init__(self, origin: URL, *, connect: float, reuse_within: float, tls: UpstreamTls) -> None:
        self._way = Dialer(origin, tls)
        self._connect = connect
        self._reuse_within = reuse_within
        self._idle: dict[Connection, float] = {}
        self._standing: set[Connection] = set()
        self._dials: set[asyncio.Timeout] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None
        self._closed = False

    def take(self) -> Connection | None:
        """The connection that was used last, since the longest idle is what a server closes first."""
        idle = self._idle
        if not idle:
            return None
        expired = asyncio.get_running_loop().time() - self._reuse_within
        while idle:
            connection, since = idle.popitem()
            if since > expired and connection.usable:
                return connection
            connection.drop()
        return None

    async def dial(self, until: float | None) -> Connection:
        """A new connection. `until` is the loop's time at which the caller's patience ends. Raises UpstreamFailed."""
        if self._closed:
            raise failures.let_go(dispatched=False)
        loop = asyncio.get_running_loop()
        last = loop.time() + self._connect
        hurried = until is not None and until < last
        scope = asyncio.timeout_at(until if hurried else last)
        self._dials.add(scope)
        try:
            async with scope:
                connection = await self._way.connect(lambda: Connection(loop, self))
        # ValueError: a host name that cannot be one is noticed only here.
        except (OSError, ValueError) as error:
            if self._closed:
                raise failures.let_go(dispatched=False) from None
            if isinstance(error, OSError) and descriptors.ran_out(error):
                raise failures.no_descriptor() from None
            raise _unmade(in_a_hurry=hurried and scope.expired()) from None
        finally:
            self._dials.discard(scope)
            self._tell_if_empty()
        return connection

    async def close(self) -> None:
        """Drop every connection, those too that carry a request or are being made; wait until they are gone."""
        self._closed = True
        loop = asyncio.get_running_loop()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for scope in self._dials:
            if not scope.expired():
                scope.reschedule(loop.time())
        for connection in tuple(self._standing):
            connection.drop()
        while self._standing or self._dials:
            self._empty = self._empty or loop.create_future()
            await asyncio.shield(self._empty)

    # What connections tell; see ConnectionObserver.

    def made(self, connection: Connection) -> None:
        """Count it."""
        self._standing.add(connection)

    def keep(self, connection: Connection) -> None:
        """Have it wait for the next request, but not for long."""
        loop = asyncio.get_running_loop()
        self._idle[connection] = loop.time()
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._reuse_within, self._sweep, context=Context())

    def forget(self, connection: Connection) -> None:
        """Give it to nobody."""
        self._idle.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        """Count it no more."""
        self._idle.pop(connection, None)
        self._standing.discard(connection)
        self._tell_if_empty()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._sweeping = None
        for connection, since in tuple(self._idle.items()):
            due = since + self._reuse_within
            if due > now:
                self._sweeping = loop.call_at(due, self._sweep)
                return
            connection.drop()

    def _tell_if_empty(self) -> None:
        if self._empty is not None and not self._standing and not self._dials and not self._empty.done():
            self._empty.set_result(None)


def _unmade(*, in_a_hurry: bool) -> UpstreamFailed:
    return failures.too_late(dispatched=False) if in_a_hurry else failures.unreachable()
