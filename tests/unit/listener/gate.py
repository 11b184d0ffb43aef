"""The public listener on a free port, in front of an engine that says what the test wants."""

import asyncio
import fcntl
import gc
import socket
import struct
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pytest

from helpers.host.raw import RawHost
from helpers.manual_clock import ManualClock, SeededEntropy
from helpers.virtual_time import turns
from helpers.waiting import bounded, eventually
from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.listener.body import ArrivingBody
from taskgate.listener.listener import ListenerSettings, PublicListener
from taskgate.listener.protocol import HostConnection
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.streams.exchange import Admission, AdmitLarge, Exchange, HttpReply
from taskgate.telemetry.events import AuditCapacity, Event, HttpRefused
from taskgate.telemetry.request_context import RequestContext, current

PLANTED: Final = "planted-7f3a91"
"""Part of what tests send, in tokens, paths and bodies: must never come back or be logged."""

VERBS: Final = ("POST", "GET", "DELETE")
"""Those that metrics name."""

LONG_HEAD: Final = 1024
LONG_BODY: Final = 4096

MOMENT: Final = timedelta(seconds=0.05)
"""For a timeout that a test waits for."""


class CountedHosts(frozenset[str]):
    """The allowed hosts; `asked` counts the heads that were checked, because each check begins with the host."""

    asked = 0

    def __contains__(self, host: object) -> bool:
        self.asked += 1
        return super().__contains__(host)


def bodies_kept() -> int:
    """How many bodies there are that arrive, or did not arrive whole and are still held."""
    return sum(isinstance(each, ArrivingBody) for each in gc.get_objects())


def never_too_slow(monkeypatch: pytest.MonkeyPatch) -> list[HostConnection]:
    """Have connections let so much wait that no host is too slow; returns those that are made from now on."""
    connections: list[HostConnection] = []
    made = HostConnection.connection_made

    def connection_made(self: HostConnection, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(2**26)
        connections.append(self)
        made(self, transport)

    monkeypatch.setattr(HostConnection, "connection_made", connection_made)
    return connections


class HostSocket(socket.socket):
    """The listener's socket of one host; it has no descriptor any more once it is closed."""

    def __init__(self, accepted: socket.socket) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())
        self.is_full = False
        """Whether the system has last not taken all that it was to send."""

    def send(self, data: Any, *flags: int) -> int:
        try:
            taken = super().send(data, *flags)
        except BlockingIOError:
            self.is_full = True
            raise
        self.is_full = taken < len(data)
        return taken


class ListeningSocket(socket.socket):
    """The socket of the listener; `accepted` are those of hosts."""

    def __init__(self) -> None:
        bound = socket.create_server(("127.0.0.1", 0))
        super().__init__(bound.family, bound.type, bound.proto, bound.detach())
        self.accepted: list[HostSocket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, address = super().accept()
        host = HostSocket(accepted)
        self.accepted.append(host)
        return host, address


async def admit_all(exchange: Exchange, caller: AuthContext, size: int) -> None:
    """Admit the bytes of a large body."""


@dataclass
class ScriptedEngine:
    """Answers as `script` says, and keeps what it was asked. `turn_away` may answer whom it knows before the body."""

    script: Callable[[Exchange], Awaitable[HttpReply]] | None = None
    turn_away: Callable[[Exchange], Awaitable[HttpReply | None]] | None = None
    seen: list[Admission] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    in_flight: BytesInFlight = field(default_factory=BytesInFlight)
    admit_large: AdmitLarge = admit_all

    async def answer(self, exchange: Exchange) -> HttpReply:
        if self.turn_away is not None and (reply := await self.turn_away(exchange)) is not None:
            return reply
        body = exchange.body(self.in_flight, ANONYMOUS, self.admit_large)
        self.bodies.append(body if isinstance(body, bytes) else await body)
        self.seen.append(exchange.head)
        if self.script is None:
            return HttpReply(body=f'{{"answer":{len(self.seen)}}}')
        return await self.script(exchange)


@dataclass
class RecordedEvents:
    """An audit that remembers; `visits` are those that the events were told in, each with its event."""

    all: list[Event] = field(default_factory=list)
    request_contexts: list[tuple[Event, RequestContext | None]] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        self.all.append(event)
        self.request_contexts.append((event, current()))

    def closing(self) -> list[RequestContext]:
        """The visits that are over."""
        return [event for event in self.all if isinstance(event, RequestContext)]

    def answered(self) -> list[tuple[str, str, int]]:
        """Route, verb and status of every answer."""
        return [
            (each.route or "", each.verb if each.verb in VERBS else "_OTHER", each.status or 0)
            for each in self.closing()
        ]

    def refused(self) -> list[str]:
        """The reasons of refusals."""
        return [event.reason for event in self.all if isinstance(event, HttpRefused)]


@dataclass
class Gate:
    """A listener that is open, and what stands behind it."""

    listener: PublicListener
    bound: ListeningSocket
    address: tuple[str, int]
    engine: ScriptedEngine
    emitted: RecordedEvents

    @property
    def connections(self) -> int:
        """How many connections of hosts are open."""
        return sum(each.fileno() >= 0 for each in self.bound.accepted)

    @property
    def is_closing(self) -> bool:
        """Whether the listener has begun to close: it listens no more."""
        return self.bound.fileno() < 0

    @property
    def is_full(self) -> bool:
        """Whether a host reads so little that the system does not take all that is sent to it."""
        return any(each.is_full for each in self.bound.accepted)

    @property
    def unread(self) -> int:
        """How many bytes of hosts are with the system, because the listener has not read them."""
        waiting = [fcntl.ioctl(each, termios.FIONREAD, bytes(4)) for each in self.bound.accepted if each.fileno() >= 0]
        return sum(struct.unpack("i", each)[0] for each in waiting)

    async def all_gone(self) -> None:
        """Wait until there were connections, and none is open."""
        await eventually(lambda: self.bound.accepted and not self.connections)

    async def has_read(self) -> None:
        """Wait until the listener has read all that its hosts have sent."""
        await eventually(lambda: self.bound.accepted and not self.unread)
        await turns(2)

    @asynccontextmanager
    async def host(self) -> AsyncIterator[RawHost]:
        """A connection for the length of a block."""
        host = await RawHost.connect(self.address)
        try:
            yield host
        finally:
            await host.close()

    async def close(self, grace: timedelta = timedelta()) -> None:
        """Close the listener, within what a test may wait."""
        async with bounded():
            await self.listener.close(grace)


def new_listener(
    engine: ScriptedEngine | None = None,
    emitted: RecordedEvents | None = None,
    *,
    documents: Mapping[str, bytes] | None = None,
    audit_capacity: AuditCapacity | None = None,
    paths: Container[str] = frozenset({"/mcp", "/other/mcp"}),
    **changes: Any,
) -> PublicListener:
    """A listener that has not started. `changes` are settings; all the timeouts are long unless given."""
    settings: dict[str, Any] = {
        "allowed_hosts": frozenset({"gate.example"}),
        "allowed_origins": frozenset({"https://app.example"}),
        "max_body": LONG_BODY,
        "max_header": LONG_HEAD,
        "read_timeout": timedelta(minutes=1),
        "idle_timeout": timedelta(minutes=1),
        "sse_keepalive": timedelta(minutes=1),
    }
    return PublicListener(
        ListenerSettings(**settings | changes),
        answer=(engine or ScriptedEngine()).answer,
        documents=documents or {},
        paths=paths,
        event_sink=emitted or RecordedEvents(),
        clock=ManualClock(),
        entropy=SeededEntropy(),
        audit_capacity=audit_capacity,
    )


@asynccontextmanager
async def opened(
    script: Callable[[Exchange], Awaitable[HttpReply]] | None = None, **changes: Any
) -> AsyncIterator[Gate]:
    """A listener for the length of a block, with settings as `new_listener` takes them."""
    engine, emitted = ScriptedEngine(script), RecordedEvents()
    listener = new_listener(engine, emitted, **changes)
    bound = ListeningSocket()
    gate = Gate(listener, bound, await listener.start(bound), engine, emitted)
    try:
        yield gate
    finally:
        await gate.close()
