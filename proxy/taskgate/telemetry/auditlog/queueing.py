"""What waits for one sink: a bounded number of events, with a bounded weight, and a count of those that were lost.

What must not live here: when they are taken, and where they go.
"""

from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import Final

from taskgate.telemetry.auditlog.events import AuditEvent, lightened

HEAVIEST: Final = 32 * 2**20
"""Letters of arguments and results that wait at most; events beyond that go without."""
_WEIGHT: Final = attrgetter("weight")


class Queue:
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
    def is_owed(self) -> bool:
        """Whether something was taken and is not done."""
        return bool(self._taken)

    def add(self, event: AuditEvent) -> bool:
        """Whether it found room."""
        if len(self._events) + self._taken >= self.size or not self.is_open:
            self.losses[self.reason] += 1
            self._on_lost(self.reason, 1)
            return False
        weight = event.weight
        if weight and self._weight + weight > HEAVIEST:
            event, weight = lightened(event), 0
        self._weight += weight
        self._events.append(event)
        return True

    def insist(self, event: AuditEvent) -> None:
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
