"""The public listener: where hosts connect.

What lives here: opening, draining and closing. What must not: what happens on a connection (`protocol`) or to a request
(`endpoint`). What holds: after `close` no socket, task or stream of the listener is left, whatever its hosts do.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from aiohttp import web

from taskgate.clock import Clock, Entropy, SystemEntropy
from taskgate.downstream.body import Bodies
from taskgate.downstream.documents import Documents
from taskgate.downstream.door import Door, Refusal
from taskgate.downstream.endpoint import Endpoint
from taskgate.downstream.patience import HEAD_TIMEOUT, WRITE_TIMEOUT, Bounds
from taskgate.downstream.peers import Network, Peers
from taskgate.downstream.protocol import HostConnection
from taskgate.downstream.stream import Terms
from taskgate.downstream.tls import Certificates, TlsSettings
from taskgate.downstream.turning_away import make_deaf
from taskgate.downstream.visits import Visits
from taskgate.downstream.wire import TlsWire
from taskgate.engine.messages import Answer
from taskgate.telemetry.audit import Audit, NoTrail, Trail

_BACKLOG = 512
_LAST_ANSWERS = 1.0
"""Seconds in which an answer that is known by now reaches its host, before that is sent elsewhere for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """What an operator decides about the listener; sizes are bytes, names as `names` makes them."""

    allowed_hosts: frozenset[str]
    allowed_origins: frozenset[str]
    max_body: int
    max_header: int
    read_timeout: timedelta
    idle_timeout: timedelta
    sse_keepalive: timedelta
    trusted_proxies: tuple[Network, ...] = ()
    tls: TlsSettings | None = None
    head_timeout: timedelta = HEAD_TIMEOUT
    write_timeout: timedelta = WRITE_TIMEOUT


class PublicListener:
    """Serves hosts on one address, from `start` to `close`."""

    def __init__(
        self,
        settings: ListenerSettings,
        *,
        answer: Answer,
        documents: Mapping[str, bytes],
        is_mount: Callable[[str], bool],
        audit: Audit,
        clock: Clock,
        entropy: Entropy | None = None,
        trail: Trail | None = None,
    ) -> None:
        """`answer` is the engine; `is_mount` tells whether a path, byte by byte, leads to a server now.

        `documents` are for everybody, by their paths. `trail` has a record of every request, where there is one.
        """
        self._bounds = Bounds(
            max_header=settings.max_header,
            idle_timeout=settings.idle_timeout,
            head_timeout=settings.head_timeout,
            write_timeout=settings.write_timeout,
        )
        self._documents = Documents(documents)
        self._endpoint = Endpoint(
            door=Door(
                hosts=settings.allowed_hosts,
                origins=settings.allowed_origins,
                is_mount=is_mount,
                max_body=settings.max_body,
            ),
            documents=self._documents,
            engine=answer,
            visits=Visits(Peers(settings.trusted_proxies), entropy or SystemEntropy()),
            audit=audit,
            trail=trail or NoTrail(),
            clock=clock,
            max_header=settings.max_header,
            terms=Terms(
                audit=audit,
                bodies=Bodies(max_body=settings.max_body, read_timeout=settings.read_timeout),
                silence=settings.sse_keepalive.total_seconds(),
            ),
        )
        self._tls = settings.tls
        self._certificates: Certificates | None = None
        self._connections: _Connections | None = None
        self._server: asyncio.Server | None = None
        self._bound: socket.socket | None = None
        self._factory: Callable[[], asyncio.Protocol] | None = None
        self._late: set[asyncio.Task[Any]] = set()

    async def start(self, bound: socket.socket) -> tuple[str, int]:
        """Listen on a socket that is bound already, and own it; the address it has.

        Bound before, because which names the listener answers to depends on its port. Raises TlsRefused.
        """
        self._connections = connections = _Connections(self._endpoint, self._bounds)
        factory: Callable[[], asyncio.Protocol] = connections
        if self._tls is not None:
            self._certificates = certificates = Certificates(self._tls)
            certificates.load()
            factory = partial(connections.behind_tls, certificates, self._tls.handshake_timeout)
        loop = asyncio.get_running_loop()
        self._bound, self._factory = bound, factory
        self._server = await loop.create_server(factory, sock=bound, backlog=_BACKLOG)
        if self._certificates is not None:
            self._certificates.watch()
        host, port, *_ = bound.getsockname()
        return host, port

    def show(self, documents: Mapping[str, bytes]) -> None:
        """Have other documents for everybody, by their paths."""
        self._documents.replace(documents)

    def active(self) -> dict[tuple[str], int]:
        """How many requests are being answered, by the label of their route; safe on any thread."""
        return self._endpoint.active()

    def retire(self) -> None:
        """Serve on, but have each answer end its connection, so that hosts find another gateway in good time."""
        if self._connections is not None:
            self._connections.retire()

    def turn_away(self) -> None:
        """Have no further connection begin, before `stop_accepting`: those that are being made can be taken up."""
        if self._bound is not None:
            make_deaf(self._bound)

    def stop_accepting(self) -> None:
        """Refuse new connections. Those that are open go on, and so do those that were made, but not taken up yet."""
        if self._server is not None and self._server.is_serving():
            self._take_up()
            self._server.close()

    def wind_down(self) -> None:
        """End what hosts can have elsewhere: connections without a request, and streams that go on somewhere else."""
        if self._connections is not None:
            self._connections.wind_down()

    def _take_up(self) -> None:
        # Closing the socket would reset them, with the requests that they brought along.
        assert self._bound is not None
        assert self._factory is not None
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            for _ in range(_BACKLOG):
                peer, _ = self._bound.accept()
                peer.setblocking(False)
                task = loop.create_task(loop.connect_accepted_socket(self._factory, peer))
                self._late.add(task)
                task.add_done_callback(self._late.discard)

    async def close(self, grace: timedelta) -> None:
        """End GET streams, give what is under way `grace` to finish, then drop what is left. May be called again."""
        if self._server is not None:
            self._server.close()
        if self._late:
            await asyncio.wait(self._late)
        if self._certificates is not None:
            self._certificates.close()
        if self._connections is None or self._server is None:
            return
        await self._connections.close(grace.total_seconds())
        await self._server.wait_closed()


class _Connections(web.Server):
    """Makes a connection of each that is accepted, and knows those that are open."""

    def __init__(self, endpoint: Endpoint, bounds: Bounds) -> None:
        super().__init__(endpoint.answer)
        self._bounds = bounds
        self._note_garbage: Callable[[web.BaseRequest, Refusal], None] = endpoint.note_garbage
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: set[HostConnection] = set()
        self._wires: set[TlsWire] = set()
        self._retired = False

    def __call__(self) -> HostConnection:
        connection = HostConnection(self, self._bounds, self._tasks, self._note_garbage)
        connection.leaving = self._retired
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    def behind_tls(self, certificates: Certificates, timeout: timedelta) -> TlsWire:
        """A connection that is none of these before its handshake is done, for which it has `timeout`."""
        wire = TlsWire(certificates.context, self, timeout)
        self._wires.add(wire)
        wire.lost.add_done_callback(lambda _: self._wires.discard(wire))
        return wire

    def retire(self) -> None:
        """See PublicListener."""
        self._retired = True
        for connection in self._open:
            connection.leaving = True

    def wind_down(self) -> None:
        """End every connection after the exchange under way, at once where there is none."""
        for wire in list(self._wires):
            if not wire.greeted:
                wire.abort()
        for connection in list(self._open):
            connection.wind_down()

    async def close(self, grace: float) -> None:
        """End every connection, and every exchange, those of departed hosts too."""
        self.wind_down()
        brief = min(grace, _LAST_ANSWERS)
        await self._settled(brief)
        for connection in list(self._open):
            if connection.exchange is not None:
                connection.exchange.send_elsewhere()
        await self._settled(grace - brief)
        for connection in list(self._open):
            connection.drop()
        for task in self._tasks:
            task.cancel()
        await self._settled(None)

    async def _settled(self, patience: float | None) -> None:
        ends = {*self._tasks, *(connection.lost for connection in self._open), *(wire.lost for wire in self._wires)}
        if ends:
            await asyncio.wait(ends, timeout=patience)
