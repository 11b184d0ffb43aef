"""Connection pool of one server: `Pool` opens connections on demand and reuses idle ones.

For each request `HttpTransport` calls `take`, and `dial` if there is no idle connection. `Dialer`
resolves the address, races addresses ("happy eyeballs"), and adds TLS. Each connection reports to
the pool, its `ConnectionObserver`. It calls `made` when it is open, and `keep` when its answer was
read and it can be reused. It calls `forget` before it is closed, and `lost` after. The pool owns all
of them: when `close` returns, there are none, not even one that was being opened. Connections and
their timers run in an empty context, because they serve many callers.
"""

import asyncio
import socket
from collections.abc import Callable
from contextvars import Context
from errno import EMFILE
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Final

from yarl import URL

from taskgate.errors import UpstreamFailed
from taskgate.system import descriptors
from taskgate.upstream import failures
from taskgate.upstream.settings import UpstreamTls
from taskgate.upstream.wire.connection import Connection
from taskgate.upstream.wire.trust import tls_context

NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address is tried beside the current one."""


class Dialer:
    """Connects to one http or https origin. Its creation raises TlsFileRefused."""

    __slots__ = ("_ceiling", "_host", "_name", "_port", "_tls")

    def __init__(self, origin: URL, tls: UpstreamTls) -> None:
        assert origin.raw_host is not None, "a target has a host"
        assert origin.port is not None, "a target has a port"
        self._host = origin.raw_host
        self._port = origin.port
        # Descriptors from this number on are reserved for the gateway itself.
        self._ceiling = descriptors.server_ceiling()
        self._tls = tls_context(tls) if origin.scheme == "https" else None
        # Certificates name a host without the trailing dot of a full name.
        self._name = None if self._tls is None else tls.server_name or self._host.rstrip(".")

    async def connect(self, new: Callable[[], Connection]) -> Connection:
        """Return an open connection made by `new`. Raises OSError if no address can be reached,
        ValueError for an impossible host name."""
        return await self._first_of(await self._addresses(), new)

    async def _addresses(self) -> list[str]:
        try:
            ip_address(self._host)
        except ValueError:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            return _families_in_turn([(family, str(address[0])) for family, _, _, _, address in found])
        return [self._host]

    async def _reach(self, address: str, new: Callable[[], Connection]) -> Connection:
        """Connect to one address."""
        # Does not use the race in asyncio: cancelled at a bad moment, that loses a socket.
        transport, connection = await asyncio.get_running_loop().create_connection(
            new, address, self._port, ssl=self._tls, server_hostname=self._name
        )
        if transport.get_extra_info("socket").fileno() >= self._ceiling:
            connection.drop()
            raise OSError(EMFILE, "the remaining file descriptors are reserved for the gateway")
        return connection

    async def _first_of(self, addresses: list[str], new: Callable[[], Connection]) -> Connection:
        """Return the first connection; end all other attempts."""
        loop = asyncio.get_running_loop()
        started: set[asyncio.Task[Connection]] = set()
        running: set[asyncio.Task[Connection]] = set()
        winner: asyncio.Task[Connection] | None = None
        try:
            while winner is None and (addresses or running):
                if addresses:
                    # An empty context: the connection will serve other requests later.
                    attempt = loop.create_task(self._reach(addresses.pop(0), new), context=Context())
                    started.add(attempt)
                    running.add(attempt)
                patience = NEXT_ADDRESS if addresses else None
                done, running = await asyncio.wait(running, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                winner = next((attempt for attempt in done if attempt.exception() is None), None)
        finally:
            try:
                await _end({attempt for attempt in started if attempt is not winner})
            except asyncio.CancelledError:
                # The caller is cancelled, so the connection has no user.
                if winner is not None:
                    winner.result().drop()
                raise
        if winner is None:
            errors = (attempt.exception() for attempt in started)
            lacks = (error for error in errors if isinstance(error, OSError) and descriptors.is_exhaustion(error))
            raise next(lacks, OSError("no address of the host is reachable"))
        return winner.result()


async def _end(attempts: set[asyncio.Task[Connection]]) -> None:
    """Cancel attempts, and drop connections that were made all the same."""
    for attempt in attempts:
        attempt.cancel()
    if attempts:
        await asyncio.wait(attempts)
    for attempt in attempts:
        if not attempt.cancelled() and attempt.exception() is None:
            attempt.result().drop()


def _families_in_turn(found: list[tuple[int, str]]) -> list[str]:
    """Return the addresses alternating between families, in the order of the system's resolver."""
    families: dict[int, list[str]] = {}
    for family, address in found:
        families.setdefault(family, []).append(address)
    return [address for address in chain(*zip_longest(*families.values())) if address is not None]


class Pool:
    """One connection for each concurrent request, without a limit on their number.

    A connection is in use, from `dial` or `take` until its `keep`, or idle. An idle one is dropped
    after `reuse_within` seconds. `connect` is the connect timeout in seconds. The creation raises
    TlsFileRefused.
    """

    def __init__(self, origin: URL, *, connect: float, reuse_within: float, tls: UpstreamTls) -> None:
        self._dialer = Dialer(origin, tls)
        self._connect = connect
        self._reuse_within = reuse_within
        # Idle connections, the longest idle one first, and the loop times since when they are.
        self._idle: dict[Connection, float] = {}
        # All open connections, in use or idle.
        self._standing: set[Connection] = set()
        # Time limits of the connections being opened; `close` ends the attempts by them.
        self._dials: set[asyncio.Timeout] = set()
        # Runs while there are idle connections.
        self._sweeping: asyncio.TimerHandle | None = None
        # Set while `close` waits; done when nothing is open or being opened.
        self._empty: asyncio.Future[None] | None = None
        self._closed = False
        # Kept: to ask for the running loop is a system call in Python 3.11.
        self._loop: asyncio.AbstractEventLoop | None = None

    def take(self) -> Connection | None:
        """Return the idle connection that was used last, which is then in use; None if there is
        none.

        The last one is the safest: a server closes the longest idle one first. Older ones that are
        past their time are dropped on the way.
        """
        idle, loop = self._idle, self._loop
        if not idle or loop is None:
            return None
        # The time before which one must have become idle to be too old.
        cutoff = loop.time() - self._reuse_within
        while idle:
            connection, since = idle.popitem()
            transport = connection.transport
            if since > cutoff and transport is not None and not transport.is_closing():
                return connection
            connection.drop()
        return None

    async def dial(self, until: float | None) -> Connection:
        """Open a connection, which is then in use.

        The connect timeout bounds this, or the loop time `until`, at which the caller's wait ends,
        if that is sooner. Raises UpstreamFailed. A `close` at the same moment may have dropped the
        connection that is returned; `Connection.ask` then fails.
        """
        if self._closed:
            raise failures.let_go(dispatched=False)
        self._loop = loop = asyncio.get_running_loop()
        last = loop.time() + self._connect
        # Whether the caller's time ends first: a timeout then says nothing about the server.
        hurried = until is not None and until < last
        scope = asyncio.timeout_at(until if hurried else last)
        self._dials.add(scope)
        try:
            async with scope:
                connection = await self._dialer.connect(lambda: Connection(loop, self))
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
        """Drop every connection, also those in use or being opened; wait until they are gone.

        Later calls of `dial` fail.
        """
        self._closed = True
        loop = asyncio.get_running_loop()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        # `dial` then sees a timeout, which it reports as the end of the pool.
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
        self._loop = loop = self._loop or asyncio.get_running_loop()
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
        """Drop connections that were idle for too long; run again when the next one is due."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._sweeping = None
        for connection, since in tuple(self._idle.items()):
            due = since + self._reuse_within
            if due > now:
                # Inherits the empty context, in which this runs.
                self._sweeping = loop.call_at(due, self._sweep)
                return
            connection.drop()

    def _tell_if_empty(self) -> None:
        """Wake `close` if it waits and nothing is open or being opened."""
        if self._empty is not None and not self._standing and not self._dials and not self._empty.done():
            self._empty.set_result(None)


def _unmade(*, in_a_hurry: bool) -> UpstreamFailed:
    """Return the failure of a connection that could not be opened. With `in_a_hurry` the caller's
    time ended before the connect timeout."""
    return failures.too_late(dispatched=False) if in_a_hurry else failures.unreachable()
