"""The numbers of the last hour, which operators see as curves: `History` and `RequestHistory`.

Requests and failures have a bucket for each second, so that a sum over a minute or five ends now. Durations are
counted by steps of a fourth, in parts of ten seconds. All of it is in memory: some 30 kB for each upstream.
"""

import asyncio
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from math import ceil, log
from typing import Final

from taskgate.clock import Clock
from taskgate.system.background import Background

MINUTES: Final = 60
"""The minutes that are remembered."""
SECONDS: Final = MINUTES * 60
RECENT: Final = 300
"""Seconds of what is called recent."""
_PART: Final = 10
"""Seconds whose durations are counted together."""
_STEP: Final = log(1.25)
_SHORTEST: Final = 0.001
"""Seconds; what is shorter counts as that."""
_LONGEST_STEP: Final = 90
"""The step of durations of six days and more."""
_SHARE: Final = 0.95


class Counts:
    """A number for each second of the last hour, which is 0 where nothing was added."""

    __slots__ = ("_newest", "_values")

    def __init__(self) -> None:
        self._values = array("I", bytes(4 * SECONDS))
        self._newest = 0

    def add(self, at: float, amount: int = 1) -> None:
        """Add to the second of a monotonic time. One before the newest second counts as that."""
        self._values[self._advance(at) % SECONDS] += amount

    def sum(self, at: float, seconds: int = RECENT) -> int:
        """The sum of the seconds up to now."""
        return sum(self._last(at)[-seconds:])

    def minutes(self, at: float) -> list[int]:
        """The sum of each minute up to now, the newest last."""
        return [sum(each) for each in self._by_minute(at)]

    def _by_minute(self, at: float) -> "list[array[int]]":
        values = self._last(at)
        return [values[start : start + 60] for start in range(0, SECONDS, 60)]

    def _last(self, at: float) -> "array[int]":
        """The values in their order, the newest last."""
        edge = (self._advance(at) + 1) % SECONDS
        return self._values[edge:] + self._values[:edge]

    def _advance(self, at: float) -> int:
        second, value = max(int(at), self._newest), self._between()
        for each in range(max(self._newest + 1, second - SECONDS + 1), second + 1):
            self._values[each % SECONDS] = value
        self._newest = second
        return second

    def _between(self) -> int:
        """The value of a second in which nothing happens."""
        return 0


class Levels(Counts):
    """The largest of what was seen in each second of the last hour. A level holds until the next."""

    __slots__ = ("_present",)

    def __init__(self) -> None:
        super().__init__()
        self._present = 0

    def note(self, at: float, level: int) -> None:
        """Take the present level. The second keeps the largest."""
        place = self._advance(at) % SECONDS
        self._values[place] = max(self._values[place], level)
        self._present = level

    def minutes(self, at: float) -> list[int]:
        """The largest level of each minute up to now, the newest last."""
        return [max(each) for each in self._by_minute(at)]

    def _between(self) -> int:
        return self._present


class Durations:
    """The durations of requests, counted for each ten seconds of the last hour, or of less."""

    __slots__ = ("_parts",)

    def __init__(self, seconds: int = SECONDS) -> None:
        self._parts: deque[tuple[int, Counter[int]]] = deque(maxlen=seconds // _PART)

    def add(self, at: float, seconds: float) -> None:
        """Count a duration. It counts as up to a fourth longer."""
        part = int(at) // _PART
        if not self._parts or self._parts[-1][0] < part:
            self._parts.append((part, Counter()))
        step = ceil(log(seconds / _SHORTEST) / _STEP) if seconds > _SHORTEST else 0
        self._parts[-1][1][min(step, _LONGEST_STEP)] += 1

    def high(self, at: float, seconds: int = RECENT) -> float | None:
        """The duration that 95 of 100 requests did not exceed, in seconds; None without any."""
        first = int(at) // _PART - seconds // _PART
        return _high(steps for part, steps in self._parts if part > first)

    def minutes(self, at: float) -> list[float | None]:
        """That of each minute up to now, the newest last."""
        first = int(at) // _PART + 1 - SECONDS // _PART
        found: list[list[Counter[int]]] = [[] for _ in range(MINUTES)]
        for part, steps in self._parts:
            if part >= first:
                found[(part - first) * _PART // 60].append(steps)
        return [_high(each) for each in found]


def _high(parts: Iterable[Counter[int]]) -> float | None:
    steps = sum(parts, Counter[int]())
    left = ceil(_SHARE * steps.total())
    for step in sorted(steps):
        left -= steps[step]
        if left <= 0:
            return float(f"{_SHORTEST * 1.25**step:.2g}")
    return None


class RequestHistory:
    """Requests of hosts to a server or to all, and failures; how long calls took, in so many seconds."""

    __slots__ = ("durations", "failures", "requests")

    def __init__(self, seconds: int = RECENT) -> None:
        self.requests = Counts()
        self.failures = Counts()
        self.durations = Durations(seconds)

    def recent(self, at: float) -> tuple[int, int]:
        """How many requests there were in the last five minutes, and how many of them failed."""
        return self.requests.sum(at), self.failures.sum(at)


Level = Callable[[], int]


class History:
    """The curves of a gateway that no upstream has. Once a second they take the present numbers.

    - `unfinished`: tasks of this process that have not ended; `waiting`: calls that wait for a permit
    - `refused`: refusals since the start
    """

    def __init__(self, *, unfinished: Level, waiting: Level, refused: Level, clock: Clock) -> None:
        self._levels: Sequence[tuple[Levels, Level]] = ((Levels(), unfinished), (Levels(), waiting))
        self._refused = refused
        self._before = refused()
        self.refusals = Counts()
        self._elapsed = clock.elapsed
        self._background = Background()

    @property
    def unfinished(self) -> Levels:
        """Unfinished tasks."""
        return self._levels[0][0]

    @property
    def waiting(self) -> Levels:
        """Calls in queues."""
        return self._levels[1][0]

    def open(self) -> None:
        """Begin to take numbers."""
        self._background.run(self._follow)

    async def close(self) -> None:
        """End it."""
        await self._background.close()

    def take(self) -> float:
        """Take the numbers of now, and return the monotonic time."""
        at = self._elapsed()
        for levels, level in self._levels:
            levels.note(at, level())
        refused = self._refused()
        self.refusals.add(at, refused - self._before)
        self._before = refused
        return at

    async def _follow(self) -> None:
        while True:
            self.take()
            await asyncio.sleep(1)
