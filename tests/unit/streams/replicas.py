"""Replicas that share a stream log, without gateways around them."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from helpers.manual_clock import ManualClock
from helpers.memory_stream_log import MemoryStreamLog
from taskgate.streams.event_log import EventBudget
from taskgate.streams.handover import SharedResumableStreams
from taskgate.streams.resumable import ResumableStreams
from taskgate.streams.sse_connection import SseConnection

SESSION = "s"


class Buses:
    """The buses of all replicas; while they are `deaf`, messages are lost."""

    def __init__(self) -> None:
        self.all: dict[str, Bus] = {}
        self.sent: list[tuple[Any, ...]] = []
        self.deaf = False

    def join(self, holder: str) -> "Bus":
        """Connect one more replica."""
        self.all[holder] = Bus(holder, self)
        return self.all[holder]


class Bus:
    """A ReplicaBus that delivers within the process."""

    def __init__(self, holder: str, others: Buses) -> None:
        self.holder = holder
        self._others = others
        self.handlers: dict[type, Callable[[Any, str], None]] = {}

    @property
    def has_peers(self) -> bool:
        return len(self._others.all) > 1

    def subscribe(self, kind: Any, handler: Callable[[Any, str], None]) -> None:
        self.handlers[kind] = handler

    def send(self, message: tuple[Any, ...], *, to: str | None = None) -> None:
        self._others.sent.append(message)
        loop = asyncio.get_running_loop()
        for holder, other in self._others.all.items():
            if other is not self and to in (None, holder) and not self._others.deaf:
                loop.call_soon(other.handlers[type(message)], message, self.holder)


class Replica:
    """One replica with one session."""

    def __init__(self, holder: str, log: MemoryStreamLog, others: Buses, clock: ManualClock) -> None:
        self.bus = others.join(holder)
        self.shared = SharedResumableStreams(log=log, bus=self.bus, clock=clock)
        mark = holder.encode().hex().ljust(12, "0")
        self.resumable = ResumableStreams(
            mark=mark, log=self.shared.open_log(SESSION, EventBudget(), "context"), clock=clock
        )
        self.opened = 0
        session = SimpleNamespace(resumable=self.resumable, questions=self)
        self.shared.connect(lambda id: session if id == SESSION else None)  # type: ignore[arg-type,return-value]

    def on_stream_opened(self) -> None:
        self.opened += 1


async def received(connection: SseConnection) -> list[bytes]:
    """The pieces that wait on a connection, taken from it."""
    pieces = []
    while (piece := await connection.receive(0)) is not None:
        pieces.append(piece)
    return pieces
