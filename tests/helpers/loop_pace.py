"""Timers that run faster or slower than the machine's clock, for pauses of the gateway that no configuration changes.

All waiting of the gateway is the event loop's, so a loop whose time runs otherwise has it wait otherwise. What a test
waits for itself, by `waiting.bounded` and `waiting.eventually`, is bounded by the machine's time all the same.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from weakref import WeakKeyDictionary, WeakSet

from helpers.manual_clock import EPOCH

_timeouts: "WeakSet[asyncio.Timeout]" = WeakSet()
_paces: "WeakKeyDictionary[asyncio.AbstractEventLoop, float]" = WeakKeyDictionary()


def pace() -> float:
    """How many seconds of the running loop pass in one of the machine."""
    return _paces.get(asyncio.get_running_loop(), 1.0)


def timeout(seconds: float) -> asyncio.Timeout:
    """`asyncio.timeout` by the machine's time."""
    made = asyncio.timeout(seconds * pace())
    _timeouts.add(made)
    return made


def has_timeout_between(begin: float, end: float) -> bool:
    """Whether such a timeout ends after the one time and until the other, by the loop's time."""
    return any(begin < (each.when() or begin) <= end for each in list(_timeouts))


@contextmanager
def paced(factor: float) -> Iterator[None]:
    """Have the timers of the running loop go that much faster, or slower, for the length of a block."""
    loop = asyncio.get_running_loop()
    over = threading.Event()

    def tick() -> None:
        # The selector sleeps by the machine's clock: what is due before it would wake up by itself.
        while not over.wait(0.001):
            loop.call_soon_threadsafe(int)

    ticking = threading.Thread(target=tick, name="paced-loop")
    _set_pace(loop, factor)
    if factor > 1:
        ticking.start()
    try:
        yield
    finally:
        over.set()
        if factor > 1:
            ticking.join()
        _set_pace(loop, 1.0)


async def pass_time(seconds: float) -> None:
    """Let so much time of the loop go by, in a fifth of a second of the machine's."""
    with paced(seconds * 5):
        await asyncio.sleep(seconds)


def _set_pace(loop: asyncio.AbstractEventLoop, factor: float) -> None:
    began, zero, change = time.monotonic(), loop.time(), factor / pace()
    _paces[loop] = factor
    loop.time = lambda: zero + (time.monotonic() - began) * factor  # type: ignore[method-assign]
    for each in _timeouts:
        # What has not begun, or is over, is left alone.
        with suppress(RuntimeError):
            if (when := each.when()) is not None:
                each.reschedule(zero + (when - zero) * change)


class LoopClock:
    """A Clock that goes as the running loop does, from `start` on."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._loop = asyncio.get_running_loop()
        self._zero, self._start = self._loop.time(), start

    @classmethod
    def of_today(cls) -> "LoopClock":
        """The time of day, ahead of the machine's by as much as the loop is."""
        ahead = timedelta(seconds=asyncio.get_running_loop().time() - time.monotonic())
        return cls(datetime.now(UTC) + ahead)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.elapsed())

    def wall(self) -> datetime:
        return self.now()

    def wall_seconds(self) -> float:
        return self.wall().timestamp()

    def elapsed(self) -> float:
        return self._loop.time() - self._zero
