"""Where the events of streams rest, so that a host that lost one can take it up again (H-LEG-12).

A log is of one host session, whose owner was checked before anybody gets here. It has a place in memory and no other:
what could be resumed after the end of this process has ended with it (docs/decisions/0016). All logs of a process share
one `EventBudget`, which bounds what each caller's streams hold, and those of all callers. What must not live here: what
an event says, and who may have it.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Final, NamedTuple, Protocol

from taskgate.clock import Clock

KEEP: Final = timedelta(minutes=5)
"""How long a stream that has ended, or that nobody came back for, can be taken up again."""
STREAM_BYTES: Final = 1024 * 1024
"""What is kept of a stream that goes on; its oldest events are dropped for newer ones."""
EVENT_WEIGHT: Final = 256
"""Bytes that an event counts for besides its own: what the interpreter and the log need to hold it."""
STREAM_WEIGHT: Final = 1024
"""The same, of a stream that has ended; those that go on are bounded by what may be open."""


class EventBounds(NamedTuple):
    """The most bytes that resumable streams hold: those of one caller, and those of all."""

    context: int = 16 * 2**20
    everyone: int = 256 * 2**20


USUAL_BOUNDS: Final = EventBounds()


class EventLog(Protocol):
    """The events of the streams of one host session, each under the stream's name and a number that grows by one."""

    def append(self, stream: str, number: int, event: bytes) -> None:
        """Keep an event of a stream that goes on; older ones may be dropped for it."""
        ...

    def end(self, stream: str, number: int, event: bytes | None) -> None:
        """Keep the last event, if there is one, whatever its size: `number` is the newest of the stream.

        The stream is forgotten some time later. Streams that ended before may be dropped for it.
        """
        ...

    def since(self, stream: str, number: int) -> list[bytes] | None:
        """All the events after that one, in order; None where one of them is not there any more, or nothing is known.

        The event itself need not be there; number 0 stands before the first. A number that was never given is unknown.
        """
        ...

    def forget(self, stream: str) -> None:
        """Drop all of a stream."""
        ...

    def trim(self) -> None:
        """Drop what was kept for long enough."""
        ...

    def close(self) -> None:
        """Drop everything, and keep nothing from now on."""
        ...


class _Share:
    """What the streams of one caller hold: `events` are those of streams that go on, oldest first."""

    __slots__ = ("caller", "ended", "events", "streams", "weight")

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.streams = 0
        self.weight = 0
        self.events: OrderedDict[int, _Stream] = OrderedDict()
        self.ended: OrderedDict[_Stream, None] = OrderedDict()


class _Stream:
    """What there is of one stream; `dropped` is the number of the newest event that is not there any more.

    An event is its number, its place among all events of the process, and what is sent. `home` is where the log has
    the stream.
    """

    __slots__ = ("dropped", "ended_at", "events", "home", "name", "newest", "share", "weight")

    def __init__(self, name: str, share: _Share, home: OrderedDict[str, "_Stream"]) -> None:
        self.name = name
        self.share = share
        self.home = home
        self.events: deque[tuple[int, int, bytes]] = deque()
        self.weight = 0
        self.dropped = 0
        self.newest = 0
        self.ended_at = 0.0
        home[name] = self


class EventBudget:
    """What all event logs of a process hold, within the bounds that `bounds` tells at any time.

    Beyond one the oldest streams that have ended are forgotten: those of the caller, or of all where all hold too much.
    Then the caller's own streams that go on lose their oldest events. They never do so for another caller.
    """

    def __init__(self, bounds: Callable[[], EventBounds] = EventBounds) -> None:
        self._bounds = bounds
        self._ages = count(1)
        self._shares: dict[str, _Share] = {}
        self._ended: OrderedDict[_Stream, None] = OrderedDict()
        self.weight = 0

    def of(self, caller: str) -> int:
        """Bytes that the streams of one caller hold."""
        share = self._shares.get(caller)
        return 0 if share is None else share.weight

    def begin(self, caller: str, name: str, home: OrderedDict[str, _Stream]) -> _Stream:
        """A stream that goes on, and holds nothing yet."""
        share = self._shares.get(caller)
        if share is None:
            share = self._shares[caller] = _Share(caller)
        share.streams += 1
        return _Stream(name, share, home)

    def add(self, stream: _Stream, number: int, event: bytes) -> None:
        """One event more of a stream that goes on."""
        age, weight = next(self._ages), len(event) + EVENT_WEIGHT
        stream.events.append((number, age, event))
        stream.newest = number
        stream.weight += weight
        stream.share.events[age] = stream
        self._count(stream.share, weight)
        while stream.weight > STREAM_BYTES and stream.events:
            self._drop_oldest(stream)
        self._make_room(stream)

    def end(self, stream: _Stream, home: OrderedDict[str, _Stream], number: int, event: bytes | None) -> None:
        """A stream ends with its last event, and moves to `home`.

        That of a caller which ended last stays, even where it alone is more than the caller's bound.
        """
        share = stream.share
        for _, age, _ in stream.events:
            del share.events[age]
        weight = STREAM_WEIGHT
        if event is not None:
            weight += len(event) + EVENT_WEIGHT
            stream.events.append((number, 0, event))
        stream.weight += weight
        self._count(share, weight)
        stream.newest = number
        del stream.home[stream.name]
        stream.home, home[stream.name] = home, stream
        share.ended[stream] = self._ended[stream] = None
        self._make_room(stream)

    def forget(self, stream: _Stream) -> None:
        """Drop all of a stream."""
        share = stream.share
        if stream in share.ended:
            del share.ended[stream], self._ended[stream]
        else:
            for _, age, _ in stream.events:
                del share.events[age]
        del stream.home[stream.name]
        self._count(share, -stream.weight)
        share.streams -= 1
        if not share.streams:
            del self._shares[share.caller]

    def _make_room(self, stream: _Stream) -> None:
        share, bounds = stream.share, self._bounds()
        while True:
            is_callers = share.weight > bounds.context
            if not is_callers and self.weight <= bounds.everyone:
                return
            oldest = next(iter(share.ended if is_callers else self._ended), None)
            if oldest is not None and oldest is not stream:
                self.forget(oldest)
            elif share.events:
                self._drop_oldest(next(iter(share.events.values())))
            elif oldest is stream and self.weight > bounds.everyone:
                self.forget(stream)
                return
            else:
                return

    def _drop_oldest(self, stream: _Stream) -> None:
        stream.dropped, age, event = stream.events.popleft()
        weight = len(event) + EVENT_WEIGHT
        stream.weight -= weight
        del stream.share.events[age]
        self._count(stream.share, -weight)

    def _count(self, share: _Share, weight: int) -> None:
        share.weight += weight
        self.weight += weight


class MemoryEventLog:
    """An EventLog of this process. What it holds counts for `caller` in `budget`."""

    def __init__(self, clock: Clock, *, budget: EventBudget, caller: str) -> None:
        self._clock = clock
        self._budget = budget
        self._caller = caller
        self._open: OrderedDict[str, _Stream] = OrderedDict()
        self._ended: OrderedDict[str, _Stream] = OrderedDict()
        self._is_closed = False

    def append(self, stream: str, number: int, event: bytes) -> None:
        """See EventLog."""
        if not self._is_closed:
            self._budget.add(self._of(stream), number, event)

    def end(self, stream: str, number: int, event: bytes | None) -> None:
        """See EventLog."""
        if not self._is_closed:
            ended = self._of(stream)
            ended.ended_at = self._clock.elapsed()
            self._budget.end(ended, self._ended, number, event)

    def since(self, stream: str, number: int) -> list[bytes] | None:
        """See EventLog."""
        self.trim()
        found = self._open.get(stream) or self._ended.get(stream)
        if found is None or not found.dropped <= number <= found.newest:
            return None
        return [event for its, _, event in found.events if its > number]

    def forget(self, stream: str) -> None:
        """See EventLog."""
        found = self._open.get(stream) or self._ended.get(stream)
        if found is not None:
            self._budget.forget(found)

    def trim(self) -> None:
        """See EventLog."""
        oldest = self._clock.elapsed() - KEEP.total_seconds()
        while self._ended:
            stream = next(iter(self._ended.values()))
            if stream.ended_at > oldest:
                return
            self._budget.forget(stream)

    def close(self) -> None:
        """See EventLog."""
        self._is_closed = True
        for stream in (*self._open.values(), *self._ended.values()):
            self._budget.forget(stream)

    def _of(self, name: str) -> _Stream:
        found = self._open.get(name)
        return self._budget.begin(self._caller, name, self._open) if found is None else found
