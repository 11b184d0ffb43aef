"""Processes that share a log of streams, without gateways around them."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from helpers.manual_clock import ManualClock
from helpers.memory_stream_log import MemoryStreamLog
from taskgate.streams.event_log import EventBudget
from taskgate.streams.resumable import ResumableStreams
from taskgate.streams.shared_resumable import SharedResumableStreams
from taskgate.streams.sse_connection import SseConnection

SESSION = "s"


class Neighbours:
    """All processes; while they are `deaf`, words are lost."""

    def __init__(self) -> None:
        self.all: dict[str, Neighbour] = {}
        self.said: list[tuple[Any, ...]] = []
        self.deaf = False

    def join(self, holder: str) -> "Neighbour":
        """One more."""
        self.all[holder] = Neighbour(holder, self)
        return self.all[holder]


class Neighbour:
    """See Company."""

    def __init__(self, holder: str, others: Neighbours) -> None:
        self.holder = holder
        self._others = others
        self.recorders: dict[type, Callable[[Any, str], None]] = {}

    @property
    def has_company(self) -> bool:
        """See Company."""
        return len(self._others.all) > 1

    def hear(self, kind: Any, take: Callable[[Any, str], None]) -> None:
        """See Company."""
        self.recorders[kind] = take

    def say(self, word: tuple[Any, ...], *, to: str | None = None) -> None:
        """See Company."""
        self._others.said.append(word)
        loop = asyncio.get_running_loop()
        for holder, other in self._others.all.items():
            if other is not self and to in (None, holder) and not self._others.deaf:
                loop.call_soon(other.recorders[type(word)], word, self.holder)


class Replica:
    """One process with one session."""

    def __init__(self, holder: str, log: MemoryStreamLog, others: Neighbours, clock: ManualClock) -> None:
        self.company = others.join(holder)
        self.shared = SharedResumableStreams(log=log, company=self.company, clock=clock)
        mark = holder.encode().hex().ljust(12, "0")
        self.resumable = ResumableStreams(
            mark=mark, log=self.shared.log_of(SESSION, EventBudget(), "context"), clock=clock
        )
        self.opened = 0
        session = SimpleNamespace(resumable=self.resumable, questions=self)
        self.shared.serve(lambda id: session if id == SESSION else None)  # type: ignore[arg-type,return-value]

    def stream_opened(self) -> None:
        """See Asking."""
        self.opened += 1


def taken(line: SseConnection) -> bytes:
    """What waits on a line, taken from it."""
    pieces = b"".join(piece for piece, _ in line._waiting)
    line._waiting.clear()
    return pieces
