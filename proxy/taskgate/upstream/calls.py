"""A request that waits for its answer, and for how long; with what all sessions with one server share.

What must not live here: bytes, and what a message means.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from taskgate.clock import Entropy
from taskgate.protocol.base import UpstreamDialect
from taskgate.protocol.envelope import Notification, Response
from taskgate.system.alarms import Alarms, Cancellable
from taskgate.system.interruption import Interruptible
from taskgate.upstream.base import Transport
from taskgate.upstream.call_listener import CallListener
from taskgate.upstream.patience import CallBounds, Patience
from taskgate.upstream.principal import Principal
from taskgate.upstream.reception import Reception
from taskgate.upstream.resume_points import NextRound
from taskgate.upstream.settings import UpstreamObserver, UpstreamSettings


@dataclass(slots=True)
class Running:
    """How many requests wait for the answer of one server now."""

    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamContext:
    """What every session with one server shares. Ids are unique among all of them, as tokens of progress must be.

    `alarms` bound the calls, for as long as `patience` says; `running` counts them. `reception` tells operators how the
    server takes `initialize`. `outlives` is whether the server,
    and what it holds of a call, is still there when this process is gone, under the names that it has now.
    """

    transport: Transport
    settings: UpstreamSettings
    dialect: UpstreamDialect
    observer: UpstreamObserver
    ids: Iterator[int]
    alarms: Alarms
    patience: Patience
    running: Running = field(default_factory=Running)
    reception: Reception = field(default_factory=Reception)
    outlives: bool = True


class UpstreamRequest(NamedTuple):
    """A request as a session makes it; `write` gives its text under an id.

    `listener` None hears nothing of it, and `log_level` None wants no log.
    """

    method: str
    write: Callable[[int], str]
    bounds: CallBounds
    listener: CallListener | None = None
    principal: Principal | None = None
    log_level: str | None = None


class Call:
    """A request that waits for its answer; `wait` ends when its time is up, or when the answer comes another way.

    `sent` tells whether any of it may have reached the server: while its way is made, none has. `listener` None hears
    nothing of it. `resumes` is the round that it begins with, where that is not its first. `spent` seconds of its time
    are over before it begins. `was_refused` tells that its answer came under an HTTP status of an error. `told` is the
    last progress that was heard of it, where anybody may want to say more; `is_task` tells that its server made a task
    of it, and so did act. `is_lasting` tells that it is held wherever it can be gone on with; see CallListener.
    """

    __slots__ = (
        "_alarm",
        "_alarms",
        "_asking",
        "_began",
        "_heard",
        "_running",
        "answer",
        "bounds",
        "id",
        "is_lasting",
        "is_task",
        "listener",
        "principal",
        "resumes",
        "sent",
        "spent",
        "told",
        "wait",
        "was_let_go",
        "was_refused",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        listener: CallListener | None,
        bounds: CallBounds,
        *,
        principal: Principal | None = None,
        spent: float = 0,
    ) -> None:
        self.id = id
        self.listener = listener
        self.bounds = bounds
        self.principal = principal
        self.spent = spent
        self.resumes: NextRound | None = None
        self.wait = Interruptible()
        self.sent = False
        self.answer: Response | None = None
        self.was_let_go = False
        self.was_refused = False
        self.told: Notification | None = None
        self.is_task = False
        self.is_lasting = False
        self._alarms: Alarms | None = None
        self._alarm: Cancellable | None = None
        self._running: Running | None = None
        self._asking = 0
        self._began = self._heard = 0.0

    def leave(self) -> None:
        """Its first byte is on its way."""
        self.sent = True

    def wake(self) -> None:
        """End the wait now."""
        self.wait.interrupt()

    def begin(self, alarms: Alarms, running: Running | None = None) -> None:
        """Wake it when its time is up, and count it where that is wanted; `stop` is to be called."""
        self._alarms = alarms
        if running is not None:
            self._running = running
            running.count += 1
        self._began = self._heard = asyncio.get_running_loop().time()
        # Nothing is subtracted where nothing was spent: the usual wait costs least.
        first = self.bounds.first
        self._alarm = alarms.after(first - self.spent if self.spent else first, self._ring)

    def progressed(self) -> None:
        """The server shows that it works at it: the time without progress begins anew (V-INIT-9)."""
        self._heard = asyncio.get_running_loop().time()

    def asks(self, questions: int) -> None:
        """So many questions more, or fewer, wait for its host, whose time is not the server's: then none is counted."""
        self._asking += questions
        self.progressed()

    def stop(self) -> None:
        """Its time does not matter any more."""
        if self._running is not None:
            self._running.count -= 1
            self._running = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        assert self._alarms is not None, "only a started call can time out"
        now = asyncio.get_running_loop().time()
        if self._asking:
            self._heard = now
        if self._heard == self._began:
            self.wake()
            return
        silence_ends = self._heard + self.bounds.call
        end = min(silence_ends, self._began - self.spent + self.bounds.ceiling)
        left = end - now
        if left > _AT_ONCE:
            self._alarm = self._alarms.after(left, self._ring)
        else:
            self.wake()


_AT_ONCE: Final = 0.001
"""Seconds that are not worth another wait."""


def first_id(entropy: Entropy) -> int:
    """The random id that a process begins with: no host can guess the ids and progress tokens of others (T17).

    52 random bits: JavaScript servers read integers exactly below 2**53 only, and a process never counts that far.
    """
    return int.from_bytes(entropy.token(7)) % _FIRST_IDS + 1


_FIRST_IDS: Final = 2**52
