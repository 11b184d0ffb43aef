"""Backpressure of the audit log: the bounded `EventBuffer` of one sink, and the wait for room.

Each `SinkQueue` has an `EventBuffer`. The listener asks `Backpressure` before it takes a request,
so that the request waits, or is refused, while a buffer is nearly full.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from operator import itemgetter
from typing import Final

from taskgate.telemetry.auditlog.events import AuditEvent, without_payload
from taskgate.telemetry.auditlog.settings import OnFull
from taskgate.telemetry.events import AuditCapacity

MAX_WEIGHT: Final = 32 * 2**20
"""Bytes of arguments and results that a buffer holds at most; later events are stored without
theirs."""
_WEIGHT_AT: Final = AuditEvent._fields.index("weight")
_WEIGHT: Final = itemgetter(_WEIGHT_AT)


class EventBuffer:
    """Events in their order, bounded in number and weight.

    An event is added, taken for a write, and counted until `done` says that it is written. `close`
    ends the buffer, and drops what is in it. `waiting` has the events that are not taken yet, and
    `taken` is the number of those that are not written yet. `_free` is the number of events that
    find room before the buffer is crowded or closed.
    """

    def __init__(self, size: int, lost: Callable[[str, int], None]) -> None:
        """`lost` is called with the reason and the number each time that events are dropped."""
        self.size = size
        self._on_lost = lost
        self.on_next: Callable[[], object] | None = None
        """Called once, when the next event is added."""
        self.is_crowded = False
        """Whether three quarters are taken: the rest is for requests that are already running."""
        self.on_crowded: Callable[[], None] = lambda: None
        """Called when `is_crowded` has changed."""
        self.waiting: list[AuditEvent] = []
        self.taken = 0
        self._weight = 0
        self.losses: Counter[str] = Counter()
        """Dropped events by reason, since the last `audit.gap` line."""
        self.reason = "queue_full"
        """The reason to report when an event finds no room."""
        self.is_open = True
        self._free = 0
        self._update_crowded()

    def __len__(self) -> int:
        return len(self.waiting) + self.taken

    def is_crowded_with(self, count: int) -> bool:
        """Whether it is crowded, or would be with so many more events."""
        return self.is_crowded or (self.is_open and count > self._free)

    def add(self, event: AuditEvent) -> None:
        """Store an event, or drop it for lack of room. Never waits.

        Beyond `MAX_WEIGHT` the event is stored without its arguments and result.
        """
        if self._free > 0:
            self._free -= 1
        elif self.is_open and len(self) < self.size:
            self._set_crowded(True)
        else:
            self.losses[self.reason] += 1
            self._on_lost(self.reason, 1)
            return
        # The weight, by number: most events have none.
        if event[_WEIGHT_AT]:
            weight = event.weight
            if self._weight + weight > MAX_WEIGHT:
                event, weight = without_payload(event), 0
            self._weight += weight
        self.waiting.append(event)
        if self.on_next is not None:
            on_next, self.on_next = self.on_next, None
            on_next()

    def extend(self, events: list[AuditEvent]) -> None:
        """Store events in their order, each as `add` does."""
        count, weight = len(events), sum(map(_WEIGHT, events))
        if count > self._free or self._weight + weight > MAX_WEIGHT:
            for event in events:
                self.add(event)
            return
        self._free -= count
        self._weight += weight
        self.waiting += events
        if events and self.on_next is not None:
            on_next, self.on_next = self.on_next, None
            on_next()

    def force(self, event: AuditEvent) -> None:
        """Store an event even when there is no room; for `audit.gap`, which reports the losses."""
        self.waiting.append(event)
        self._update_crowded()

    def resize(self, size: int) -> None:
        """Hold so many events from now on; those above stay until they are written."""
        self.size = size
        self._update_crowded()

    def take(self, most: int) -> list[AuditEvent]:
        """Remove and return the oldest events, `most` at most; the caller owns the list.

        They keep their places in `size` until `done`.
        """
        events = self.waiting[:most]
        del self.waiting[:most]
        self.taken += len(events)
        if self._weight:
            self._weight -= sum(map(_WEIGHT, events))
        return events

    def done(self) -> int:
        """Free the places of the taken events, now written; returns how many they were."""
        taken, self.taken = self.taken, 0
        self._update_crowded()
        return taken

    def close(self) -> int:
        """Refuse further events and drop the rest; returns how many were dropped."""
        left = len(self)
        self.waiting, self.taken, self._weight = [], 0, 0
        self.is_open, self.reason = False, "closed"
        self._update_crowded()
        if left:
            self._on_lost(self.reason, left)
        return left

    def _update_crowded(self) -> None:
        free = (3 * self.size - 1) // 4 - len(self.waiting) - self.taken
        self._free = free if self.is_open else 0
        self._set_crowded(free < 0)

    def _set_crowded(self, is_crowded: bool) -> None:
        if is_crowded is not self.is_crowded:
            self.is_crowded = is_crowded
            self.on_crowded()


LINES_PER_REQUEST: Final = 4
"""Lines that a request is assumed to cause: this many free places are needed for each admitted
request."""


_ANY_NUMBER: Final = 2**31


class Backpressure:
    """The sink buffers that requests depend on, and the requests that wait for room.

    The listener asks `is_full` for each request, and `room` if it is. `on_full` says what happens
    then. With `block` the request waits for up to the timeout and then goes on. With `deny` it is
    refused at once. With `drop` the buffers never count as full.
    """

    def __init__(self) -> None:
        self._buffers: tuple[EventBuffer, ...] = ()
        self._on_full: OnFull = "drop"
        self._timeout = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.is_full = False
        """Whether a buffer only has room for requests that are already running."""

    def configure(self, buffers: Iterable[EventBuffer], on_full: OnFull, timeout: timedelta) -> None:
        """Watch other buffers, with another policy. Requests that wait now are admitted at once."""
        self._buffers, self._on_full, self._timeout = tuple(buffers), on_full, timeout.total_seconds()
        for buffer in self._buffers:
            buffer.on_crowded = self._update
        self._update()
        self._admit(len(self._waiting))

    async def room(self) -> bool:
        """Wait for room; True if the request may run, which includes the end of `block_timeout`.

        False, without a wait, if `on_full` is `deny` and there is no room.
        """
        if self._on_full == "deny" or not self.is_full:
            return not self.is_full
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(self._timeout):
                await waiter
        except TimeoutError:
            # The operator prefers missing lines to missing answers.
            return True
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        return True

    def on_room(self) -> None:
        """Admit as many waiting requests as find room; each `SinkQueue` calls it after a write."""
        if self._waiting and not self.is_full:
            self._admit(max(1, self.free() // LINES_PER_REQUEST))

    def free(self) -> int:
        """The number of lines that find room before a buffer is crowded."""
        free = _ANY_NUMBER
        for buffer in self._buffers:
            # Written out, because each batch of events asks this.
            free = min(free, buffer.size * 3 // 4 - len(buffer.waiting) - buffer.taken)
        return free

    def _update(self) -> None:
        self.is_full = self._on_full != "drop" and any(buffer.is_crowded for buffer in self._buffers)

    def _admit(self, count: int) -> None:
        for _ in range(min(count, len(self._waiting))):
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)


_: type[AuditCapacity] = Backpressure
