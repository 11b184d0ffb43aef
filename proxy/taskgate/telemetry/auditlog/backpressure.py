"""The bounded buffer of one sink, `EventBuffer`, and the wait for room in all of them, `Backpressure`."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from operator import attrgetter
from typing import Final

from taskgate.telemetry.auditlog.events import AuditEvent, without_payload
from taskgate.telemetry.auditlog.settings import OnFull

MAX_WEIGHT: Final = 32 * 2**20
"""Letters of arguments and results that wait at most; events beyond that go without."""
_WEIGHT: Final = attrgetter("weight")


class EventBuffer:
    """Events in their order. What was taken counts as waiting until it is `done`."""

    def __init__(self, size: int, lost: Callable[[str, int], None]) -> None:
        """`lost` is told why events got no room, and how many."""
        self.size = size
        self._on_lost = lost
        self._events: list[AuditEvent] = []
        self._weight = 0
        self._taken = 0
        self.losses: Counter[str] = Counter()
        """Why events were lost, and how many, since the log owned up to it."""
        self.reason = "queue_full"
        """Why an event is lost that finds no room."""
        self.is_open = True

    def __len__(self) -> int:
        return len(self._events) + self._taken

    @property
    def is_crowded(self) -> bool:
        """Whether three quarters are taken: the rest is for what is under way already."""
        return 4 * (len(self._events) + self._taken) >= 3 * self.size

    @property
    def has_more(self) -> bool:
        """Whether there is something to take."""
        return bool(self._events)

    @property
    def has_unfinished(self) -> bool:
        """Whether something was taken and is not done."""
        return bool(self._taken)

    def add(self, event: AuditEvent) -> bool:
        """Whether it found room."""
        if len(self._events) + self._taken >= self.size or not self.is_open:
            self.losses[self.reason] += 1
            self._on_lost(self.reason, 1)
            return False
        weight = event.weight
        if weight and self._weight + weight > MAX_WEIGHT:
            event, weight = without_payload(event), 0
        self._weight += weight
        self._events.append(event)
        return True

    def force(self, event: AuditEvent) -> None:
        """Add it though there may be no room."""
        self._events.append(event)

    def take(self, most: int) -> list[AuditEvent]:
        """The oldest of them; the list is the caller's."""
        events = self._events[:most]
        del self._events[:most]
        self._taken += len(events)
        if self._weight:
            self._weight -= sum(map(_WEIGHT, events))
        return events

    def done(self) -> int:
        """What was taken is where it belongs; returns how many those were."""
        taken, self._taken = self._taken, 0
        return taken

    def close(self) -> int:
        """Let nothing in any more, and let go of the rest; returns how many those were."""
        left = len(self)
        self._events, self._taken, self._weight = [], 0, 0
        self.is_open, self.reason = False, "closed"
        if left:
            self._on_lost(self.reason, left)
        return left


LINES_PER_REQUEST: Final = 4
"""How many lines a request is taken to make: so many places are to be free for each that is let in."""


class Backpressure:
    """The room in some queues, and those who wait for it."""

    def __init__(self) -> None:
        self._queues: tuple[EventBuffer, ...] = ()
        self._on_full: OnFull = "drop"
        self._timeout = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def configure(self, queues: Iterable[EventBuffer], on_full: OnFull, timeout: timedelta) -> None:
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

    def on_room(self) -> None:
        """A sink has taken lines: as many may go as there is room for, and not all at once."""
        if self._waiting and not self.is_full:
            free = min((queue.size * 3 // 4 - len(queue) for queue in self._queues), default=0)
            self._let_go(max(1, free // LINES_PER_REQUEST))

    def _let_go(self, count: int) -> None:
        for _ in range(min(count, len(self._waiting))):
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
