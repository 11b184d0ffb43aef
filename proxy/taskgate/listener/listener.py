"""The public listener, to which hosts connect: `PublicListener`.

`wiring` creates, starts, drains and closes it. It accepts connections (`Acceptor`), and makes each
a `HostConnection`, which passes requests to `Endpoint`. A shutdown calls these methods, in order:

- `retire`, only if there are other replicas: each connection closes after its next answer;
- `turn_away`, then `stop_accepting`: no new connections;
- `wind_down`, only if there are other replicas: idle connections and GET streams end;
- `close`: the rest ends, in time or by force.

After `close` no socket, task or stream of the listener is left, whatever its hosts do.
"""

import asyncio
import socket
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from taskgate.clock import Clock, Entropy, SystemEntropy
from taskgate.ip_addresses import Network
from taskgate.listener.acceptor import Acceptor
from taskgate.listener.chunks import request_parser
from taskgate.listener.door import AdmissionGeneration, Door
from taskgate.listener.endpoint import Endpoint, RequestContexts
from taskgate.listener.patience import HEAD_TIMEOUT, WAITING_BYTES, WRITE_TIMEOUT, ConnectionSettings
from taskgate.listener.peers import ForwardedHeader, Peers
from taskgate.listener.protocol import FIRST_REQUEST, ConnectionTerms, HostConnection
from taskgate.listener.stream import ExchangeTerms
from taskgate.listener.tls import Certificates, TlsSettings, TlsWire
from taskgate.streams.exchange import ExchangeHandler
from taskgate.system.timer_wheel import TimerWheel
from taskgate.telemetry.events import AuditCapacity, EventSink, UnlimitedAuditCapacity

_LAST_ANSWERS = 1.0
"""Seconds in which answers that are ready reach their hosts, before streams of running calls are
ended so that hosts resume them in another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """The operator's settings of the listener. Sizes are bytes; names are as `door` makes them."""

    allowed_hosts: frozenset[str]
    allowed_origins: frozenset[str]
    cors_origins: frozenset[str] = frozenset()
    max_body: int
    max_header: int
    read_timeout: timedelta
    idle_timeout: timedelta
    sse_keepalive: timedelta
    tcp_keepalive: timedelta | None = None
    allowed_clients: tuple[Network, ...] = ()
    trusted_proxies: tuple[Network, ...] = ()
    forwarded_header: ForwardedHeader = "x-forwarded-for"
    tls: TlsSettings | None = None
    head_timeout: timedelta = HEAD_TIMEOUT
    write_timeout: timedelta = WRITE_TIMEOUT
    waiting_bytes: int = WAITING_BYTES


class PublicListener:
    """The listener of one address, from `start` to `close`."""

    def __init__(
        self,
        settings: ListenerSettings,
        *,
        answer: ExchangeHandler,
        documents: Mapping[str, bytes],
        paths: Container[str],
        event_sink: EventSink,
        clock: Clock,
        entropy: Entropy | None = None,
        audit_capacity: AuditCapacity | None = None,
    ) -> None:
        """`answer` is the gateway. `paths` are those that lead to a server, at every moment.

        `documents` are public, by path. `audit_capacity` is that of the audit log: each request first
        waits for room in it.
        """
        self._bounds = ConnectionSettings(
            max_header=settings.max_header,
            idle_timeout=settings.idle_timeout,
            head_timeout=settings.head_timeout,
            write_timeout=settings.write_timeout,
            waiting_bytes=settings.waiting_bytes,
        )
        self._documents = dict(documents)
        self._generation = AdmissionGeneration()
        self._endpoint = Endpoint(
            door=Door(
                hosts=settings.allowed_hosts,
                origins=settings.allowed_origins,
                cors_origins=settings.cors_origins,
                clients=settings.allowed_clients,
                paths=paths,
                max_body=settings.max_body,
                generation=self._generation,
            ),
            documents=self._documents,
            engine=answer,
            request_contexts=RequestContexts(
                Peers(settings.trusted_proxies, settings.forwarded_header), entropy or SystemEntropy()
            ),
            event_sink=event_sink,
            audit_capacity=audit_capacity or UnlimitedAuditCapacity(),
            clock=clock,
            terms=ExchangeTerms(
                event_sink=event_sink,
                max_body=settings.max_body,
                read_timeout=settings.read_timeout,
                silence=settings.sse_keepalive.total_seconds(),
            ),
        )
        self._tls = settings.tls
        self._tcp_keepalive = settings.tcp_keepalive
        self._certificates: Certificates | None = None
        self._connections: _Connections | None = None
        self._acceptor: Acceptor | None = None

    async def start(self, bound: socket.socket) -> tuple[str, int]:
        """Listen on a bound socket, own it, and return its address. Raises TlsRefused.

        The socket is bound by the caller, because the allowed host names depend on its port.
        """
        self._connections = connections = _Connections(self._endpoint, self._bounds)
        factory: Callable[[], asyncio.Protocol] = connections.connect
        if self._tls is not None:
            self._certificates = certificates = Certificates(self._tls)
            certificates.load()
            factory = partial(connections.behind_tls, certificates)
        self._acceptor = Acceptor(bound, factory, self._tcp_keepalive)
        if self._certificates is not None:
            self._certificates.watch()
        host, port, *_ = bound.getsockname()
        return host, port

    def show(self, documents: Mapping[str, bytes]) -> None:
        """Replace the public documents."""
        self._documents.clear()
        self._documents.update(documents)

    def forget_admissions(self) -> None:
        """Have each connection check the head of its next request anew: something that admission
        depends on has changed.

        Connections are aborted on which a request of a revoked API key is answered.
        """
        self._generation.end()
        if self._connections is not None:
            self._connections.drop_revoked()

    def active(self) -> dict[tuple[str], int]:
        """Return the number of requests under way, by route label. Safe on any thread."""
        return self._endpoint.active()

    def retire(self) -> None:
        """Serve on, but close each connection after its next answer.

        The host then connects again, and gets to another replica.
        """
        if self._connections is not None:
            self._connections.retire()

    def turn_away(self) -> None:
        """Let the system start no more connections. Those that it has begun are still accepted."""
        if self._acceptor is not None:
            self._acceptor.turn_away()

    def stop_accepting(self) -> None:
        """Close the listening socket. Open connections continue, and so do those that the system
        has completed.
        """
        if self._acceptor is not None:
            self._acceptor.stop()

    def wind_down(self) -> None:
        """Close idle connections and GET streams now, and other connections after their answer."""
        if self._connections is not None:
            self._connections.wind_down()

    async def close(self, grace: timedelta) -> None:
        """Close everything; requests under way have `grace` to end. May be called again.

        Streams that hosts can resume in another process end earlier.
        """
        if self._certificates is not None:
            self._certificates.close()
        if self._acceptor is None or self._connections is None:
            return
        self._acceptor.stop()
        await self._acceptor.settle()
        await self._connections.close(grace.total_seconds())


class _Connections:
    """The factory and the set of open connections.

    `_wires` are the connections under TLS, also during their handshake.
    """

    def __init__(self, endpoint: Endpoint, bounds: ConnectionSettings) -> None:
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        woken.set_result(None)
        self._terms = terms = ConnectionTerms(
            bounds=bounds,
            answer=endpoint.answer,
            answer_garbage=endpoint.answer_garbage,
            new_parser=request_parser(loop, bounds.max_header),
            heads=TimerWheel(bounds.head_timeout.total_seconds()),
            idles=TimerWheel(bounds.idle_timeout.total_seconds()),
            woken=woken,
        )
        self._open = terms.open
        self._wires: set[TlsWire] = set()
        self.connect = partial(HostConnection, terms)
        """Makes the protocol of a connection."""

    def behind_tls(self, certificates: Certificates) -> TlsWire:
        """Return a connection under TLS. After its handshake it makes its HostConnection with `connect`."""
        return TlsWire(certificates.context, self.connect, certificates.handshake_timeout, self._wires)

    def retire(self) -> None:
        """Close each connection after its next answer."""
        self._terms.is_retired = True
        for connection in self._open:
            connection.leaving = True

    def wind_down(self) -> None:
        """Close every connection after its exchange, idle ones at once; also those to come."""
        self._terms.is_closing = True
        for wire in self._wires:
            wire.hurry(FIRST_REQUEST)
        for connection in list(self._open):
            connection.wind_down()

    def drop_revoked(self) -> None:
        """Abort the connections whose request was admitted by what is revoked now."""
        for connection in list(self._open):
            if connection.exchange is not None and connection.exchange.is_revoked:
                connection.drop()

    async def close(self, grace: float) -> None:
        """End every connection and every exchange, also those whose hosts have disconnected.

        Exchanges have `grace` seconds. Then connections are aborted and tasks cancelled.
        """
        self.wind_down()
        first_wait = min(grace, _LAST_ANSWERS)
        await self._wait_ended(first_wait)
        for connection in list(self._open):
            if connection.exchange is not None:
                connection.exchange.send_elsewhere()
        await self._wait_ended(grace - first_wait)
        for connection in list(self._open):
            connection.drop()
        for wire in list(self._wires):
            wire.abort()
        for task in self._terms.tasks:
            task.cancel()
        await self._wait_ended(None)
        self._terms.heads.close()
        self._terms.idles.close()

    async def _wait_ended(self, patience: float | None) -> None:
        """Wait until all tasks and connections have ended, at most `patience` seconds if given."""
        ends = {
            *self._terms.tasks,
            *(connection.lost for connection in self._open),
            *(wire.lost for wire in self._wires),
        }
        if ends:
            await asyncio.wait(ends, timeout=patience)
