"""Timers of the supervisor process: `Timetable`, a heap of functions to call at a time.

`Nursery` runs it in its main loop; `Wards` schedules signals with it.
"""

import heapq
from collections.abc import Callable
from itertools import count
from time import monotonic
from typing import Final


class Timetable:
    """Calls functions at their time; the main loop calls `run`."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """Call `act` once, so many seconds from now."""
        heapq.heappush(self._due, (monotonic() + seconds, next(self._numbers), act))

    def run(self) -> float | None:
        """Call what is due; returns the seconds until the next, None without one."""
        while self._due:
            left = self._due[0][0] - monotonic()
            if left > _AT_ONCE:
                return left
            heapq.heappop(self._due)[2]()
        return None


_AT_ONCE: Final = 0.001
"""Seconds that are not worth another wait."""
