"""The stored events of resumable streams: `EventLog`, and `MemoryEventLog` in this process
(H-LEG-12).

A log has the events of all streams of one host session; its callers have checked the owner. A stream
is *open* from its first event until `end`. Then it is *ended*: its events can be replayed for
RETENTION, and are deleted after that. The log is in memory: when the process ends, the calls that
feed its streams end too (docs/decisions/0016).

All logs of a process share one `EventBudget`, which limits the bytes of each caller and of all
callers. It deletes ended streams as a whole, and the oldest events of open ones.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Final, NamedTuple, Protocol

from taskgate.clock import Clock

RETENTION: Final = timedelta(minutes=5)
"""How long a stream can be resumed after it has ended or lost its host."""
STREAM_BYTES: Final = 1024 * 1024
"""The most bytes stored of one open stream; beyond it its oldest events are dropped."""
EVENT_WEIGHT: Final = 256
"""Bytes that an event counts besides its own: the overhead of the interpreter and the log."""
STREAM_WEIGHT: Final = 1024
"""Bytes that an ended stream counts besides its events; the number of open ones is limited elsewhere."""


class EventBounds(NamedTuple):
    """The most bytes in resumable streams: of one caller (`context`) and of all."""

    context: int = 16 * 2**20
    total: int = 256 * 2**20


USUAL_BOUNDS: Final = EventBounds()


class EventLog(Protocol):
    """The events of the streams of one host session, by stream name and number.

    The numbers of a stream grow; not every number need have an event.
    """

    def append(self, stream: str, number: int, event: bytes) -> None:
        """Store an event of an open stream, or of a new one; older ones may be dropped for it."""
        ...

    def end(self, stream: str, number: int, event: bytes | None) -> None:
        """End a stream with its last event, if there is one, of any size; `number` is the newest.

        The stream is deleted after RETENTION, or earlier if the budget needs the bytes.
        """
        ...

    def events_after(self, stream: str, number: int) -> list[bytes] | None:
        """All events after that number, in order; None if the stream cannot be resumed there.

        That is so if one of them was dropped, or the stream or the number is unknown. 0 stands
        before the first event.
        """
        ...

    def delete(self, stream: str) -> None:
        """Delete a stream and its events."""
        ...

    def purge(self) -> None:
        """Delete ended streams after their retention."""
        ...

    def close(self) -> None:
        """Delete everything and store nothing from now on."""
        ...


class _CallerUsage:
    """The stored streams of one caller.

    `events` has the stream of each event in an open stream, by the event's age, oldest first.
    `ended` are the ended streams, oldest first. `weight` is their bytes together.
    """

    __slots__ = ("caller", "ended", "events", "streams", "weight")

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.streams = 0
        self.weight = 0
        self.events: OrderedDict[int, _StoredStream] = OrderedDict()
        self.ended: OrderedDict[_StoredStream, None] = OrderedDict()


class _StoredStream:
    """The stored events of one stream; `dropped` is the number of the newest event that is gone.

    An event is its number, its age and its bytes. The age counts all events of the process; it is 0
    for a last event. `group` is the mapping of the log that has the stream: open or ended ones.
    """

    __slots__ = ("dropped", "ended_at", "events", "group", "name", "newest", "usage", "weight")

    def __init__(self, name: str, usage: _CallerUsage, group: OrderedDict[str, "_StoredStream"]) -> None:
        self.name = name
        self.usage = usage
        self.group = group
        self.events: deque[tuple[int, int, bytes]] = deque()
        self.weight = 0
        self.dropped = 0
        self.newest = 0
        self.ended_at = 0.0
        group[name] = self


class EventBudget:
    """The bytes that all event logs of a process store, within the limits that `bounds` returns.

    Beyond a limit the oldest ended streams are deleted: those of the caller, or of all callers if
    all together have too much. Then open streams of the caller lose their oldest events. An open
    stream loses no event for another caller.
    """

    def __init__(self, bounds: Callable[[], EventBounds] = EventBounds) -> None:
        self._bounds = bounds
        self._ages = count(1)
        self._usages: dict[str, _CallerUsage] = {}
        self._ended: OrderedDict[_StoredStream, None] = OrderedDict()
        self.weight = 0

    def usage(self, caller: str) -> int:
        """Bytes in the streams of one caller."""
        usage = self._usages.get(caller)
        return 0 if usage is None else usage.weight

    def open(self, caller: str, name: str, group: OrderedDict[str, _StoredStream]) -> _StoredStream:
        """Return a new open stream without events, which counts for `caller` and is added to `group`."""
        usage = self._usages.get(caller)
        if usage is None:
            usage = self._usages[caller] = _CallerUsage(caller)
        usage.streams += 1
        return _StoredStream(name, usage, group)

    def add(self, stream: _StoredStream, number: int, event: bytes) -> None:
        """Add an event to an open stream."""
        usage, age, weight = stream.usage, next(self._ages), len(event) + EVENT_WEIGHT
        stream.events.append((number, age, event))
        stream.newest = number
        stream.weight += weight
        usage.events[age] = stream
        usage.weight += weight
        self.weight += weight
        while stream.weight > STREAM_BYTES and stream.events:
            self._drop_oldest(stream)
        bounds = self._bounds()
        if usage.weight > bounds.context or self.weight > bounds.total:
            self._make_room(stream, bounds)

    def end(
        self, stream: _StoredStream, group: OrderedDict[str, _StoredStream], number: int, event: bytes | None
    ) -> None:
        """End a stream with its last event, and move it to `group`.

        The stream of a caller that ended last stays, even if it alone exceeds the caller's limit.
        """
        usage = stream.usage
        # An ended stream is deleted as a whole, so its events are no longer dropped one by one.
        for _, age, _ in stream.events:
            del usage.events[age]
        weight = STREAM_WEIGHT
        if event is not None:
            weight += len(event) + EVENT_WEIGHT
            stream.events.append((number, 0, event))
        stream.weight += weight
        usage.weight += weight
        self.weight += weight
        stream.newest = number
        del stream.group[stream.name]
        stream.group, group[stream.name] = group, stream
        usage.ended[stream] = self._ended[stream] = None
        self._make_room(stream, self._bounds())

    def delete(self, stream: _StoredStream) -> None:
        """Delete a stream and its events."""
        usage = stream.usage
        if stream in usage.ended:
            del usage.ended[stream], self._ended[stream]
        else:
            for _, age, _ in stream.events:
                del usage.events[age]
        del stream.group[stream.name]
        usage.weight -= stream.weight
        self.weight -= stream.weight
        usage.streams -= 1
        if not usage.streams:
            del self._usages[usage.caller]

    def _make_room(self, stream: _StoredStream, bounds: EventBounds) -> None:
        """Delete until the limits hold, after `stream` got an event or has ended.

        First ended streams other than this one, then the oldest events of the caller's open
        streams. This stream itself is deleted last, and only if all callers have too much.
        """
        usage = stream.usage
        while True:
            is_callers = usage.weight > bounds.context
            if not is_callers and self.weight <= bounds.total:
                return
            oldest = next(iter(usage.ended if is_callers else self._ended), None)
            if oldest is not None and oldest is not stream:
                self.delete(oldest)
            elif usage.events:
                self._drop_oldest(next(iter(usage.events.values())))
            elif oldest is stream and self.weight > bounds.total:
                self.delete(stream)
                return
            else:
                return

    def _drop_oldest(self, stream: _StoredStream) -> None:
        stream.dropped, age, event = stream.events.popleft()
        weight = len(event) + EVENT_WEIGHT
        stream.weight -= weight
        del stream.usage.events[age]
        stream.usage.weight -= weight
        self.weight -= weight


class MemoryEventLog:
    """An EventLog in the memory of this process. Its events count for `caller` in `budget`."""

    def __init__(self, clock: Clock, *, budget: EventBudget, caller: str) -> None:
        self._clock = clock
        self._budget = budget
        self._caller = caller
        self._open: OrderedDict[str, _StoredStream] = OrderedDict()
        self._ended: OrderedDict[str, _StoredStream] = OrderedDict()
        self._is_closed = False

    def append(self, stream: str, number: int, event: bytes) -> None:
        found = self._open.get(stream)
        if found is None:
            if self._is_closed:
                return
            found = self._budget.open(self._caller, stream, self._open)
        self._budget.add(found, number, event)

    def end(self, stream: str, number: int, event: bytes | None) -> None:
        if not self._is_closed:
            ended = self._open.get(stream) or self._budget.open(self._caller, stream, self._open)
            ended.ended_at = self._clock.elapsed()
            self._budget.end(ended, self._ended, number, event)

    def events_after(self, stream: str, number: int) -> list[bytes] | None:
        self.purge()
        found = self._open.get(stream) or self._ended.get(stream)
        if found is None or not found.dropped <= number <= found.newest:
            return None
        return [event for its, _, event in found.events if its > number]

    def delete(self, stream: str) -> None:
        found = self._open.get(stream) or self._ended.get(stream)
        if found is not None:
            self._budget.delete(found)

    def purge(self) -> None:
        oldest = self._clock.elapsed() - RETENTION.total_seconds()
        while self._ended:
            stream = next(iter(self._ended.values()))
            if stream.ended_at > oldest:
                return
            self._budget.delete(stream)

    def close(self) -> None:
        self._is_closed = True
        for stream in (*self._open.values(), *self._ended.values()):
            self._budget.delete(stream)
