"""Connection pool of one server: `Pool` opens connections on demand and reuses idle ones.

`Origin` takes connections from it. The pool is the only owner of the connections: after `close`
there are none, not even one that is being opened. Connections and their timers run in an empty
context, because they serve many callers.
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
    """One connection for each concurrent request. `connect` and `reuse_within` are seconds.

    A connection is in use, from `dial` or `take` until its `keep`, or idle. An idle one is dropped
    after `reuse_within`. The creation raises TlsFileRefused.
    """

    def __init__(self, origin: URL, *, connect: float, reuse_within: float, tls: UpstreamTls) -> None:
        self._way = Dialer(origin, tls)
        self._connect = connect
        self._reuse_within = reuse_within
        # Idle connections and since when; all open connections; connections being opened.
        self._idle: dict[Connection, float] = {}
        self._standing: set[Connection] = set()
        self._dials: set[asyncio.Timeout] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None
        self._closed = False

    def take(self) -> Connection | None:
        """Return the idle connection that was used last; None if there is none.

        The last one is the safest: a server closes the longest idle one first.
        """
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
        """Open a connection, which is then in use. `until` is the loop time at which the caller's
        wait ends. Raises UpstreamFailed."""
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
        # ValueError: an impossible host name is only noticed here.
        except (OSError, ValueError) as error:
            if self._closed:
                raise failures.let_go(dispatched=False) from None
            if isinstance(error, OSError) and descriptors.is_exhaustion(error):
                raise failures.no_descriptor() from None
            raise _unmade(in_a_hurry=hurried and scope.expired()) from None
        finally:
            self._dials.discard(scope)
            self._tell_if_empty()
        return connection

    async def close(self) -> None:
        """Drop every connection, also those in use or being opened; wait until they are gone."""
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

    # --- the observer of its connections ------------------------------------------------------------------------------

    def made(self, connection: Connection) -> None:
        self._standing.add(connection)

    def keep(self, connection: Connection) -> None:
        """Store the connection for the next request, for a limited time."""
        loop = asyncio.get_running_loop()
        self._idle[connection] = loop.time()
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._reuse_within, self._sweep, context=Context())

    def forget(self, connection: Connection) -> None:
        self._idle.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        self._idle.pop(connection, None)
        self._standing.discard(connection)
        self._tell_if_empty()

    def _sweep(self) -> None:
        """Drop connections that were idle for too long."""
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
    """Return the failure without a connection; `in_a_hurry`: the caller's time ended before the
    connect timeout."""
    return failures.too_late(dispatched=False) if in_a_hurry else failures.unreachable()
