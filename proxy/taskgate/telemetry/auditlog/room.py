"""Whether there is room for what another request has to tell, and the wait for it.

What must not live here: what waits for sinks (`queueing`).
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from taskgate.telemetry.auditlog.queueing import Queue
from taskgate.telemetry.auditlog.settings import OnFull

LINES: Final = 4
"""How many lines a request is taken to make: so many places are to be free for each that is let in."""


class QueueRoom:
    """The room in some queues, and those who wait for it."""

    def __init__(self) -> None:
        self._queues: tuple[Queue, ...] = ()
        self._on_full: OnFull = "drop"
        self._timeout = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def adopt(self, queues: Iterable[Queue], on_full: OnFull, timeout: timedelta) -> None:
        """Let these queues decide, in that way, from now on. Whoever waits may go."""
        self._queues, self._on_full, self._timeout = tuple(queues), on_full, timeout.total_seconds()
        self._let_go(len(self._waiting))

    @property
    def is_full(self) -> bool:
        """Whether only what is under way already is to find room."""
        if self._on_full != "drop":
            # Every request asks this, and a generator would take longer than the answer.
            for queue in self._queues:
                if queue.is_crowded:
                    return True
        return False

    async def wait(self) -> bool:
        """Wait for room, as long as the operator allows. False where nobody is to be let in without."""
        if self._on_full == "deny" or not self.is_full:
            return not self.is_full
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout(self._timeout):
                await place
        except TimeoutError:
            # The operator would rather do without lines than without answers.
            return True
        finally:
            if place in self._waiting:
                self._waiting.remove(place)
        return True

    def freed(self) -> None:
        """A sink has taken lines: as many may go as there is room for, and not all at once."""
        if self._waiting and not self.is_full:
            free = min((queue.size * 3 // 4 - len(queue) for queue in self._queues), default=0)
            self._let_go(max(1, free // LINES))

    def _let_go(self, count: int) -> None:
        for _ in range(min(count, len(self._waiting))):
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
