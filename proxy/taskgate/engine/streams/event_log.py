"""Where the events of streams rest, so that a host that lost one can take it up again (H-LEG-12).

A log is of one host session, whose owner was checked before anybody gets here. It has a place in memory and no other:
what could be resumed after the end of this process has ended with it (docs/decisions/0016). What must not live here:
what an event says, and who may have it.
"""

from collections import deque
from datetime import timedelta
from typing import Final, Protocol

from taskgate.clock import Clock

KEEP: Final = timedelta(minutes=5)
"""How long a stream that has ended, or that nobody came back for, can be taken up again."""
STREAM_EVENTS: Final = 2_048
STREAM_BYTES: Final = 1024 * 1024
"""What is kept of a stream that goes on; its oldest events are dropped for newer ones."""
SESSION_EVENTS: Final = 8_192
SESSION_BYTES: Final = 4 * 1024 * 1024
"""What is kept of all the streams of a session that go on, and once more of those that have ended."""
ENDED_STREAMS: Final = 256
"""How many streams that have ended are kept, however little they hold."""


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


class _Kept:
    """What is there of one stream; `dropped` is the number of the newest event that is not there any more."""

    __slots__ = ("dropped", "ended_at", "events", "newest", "size")

    def __init__(self) -> None:
        self.events: deque[tuple[int, bytes]] = deque()
        self.size = 0
        self.dropped = 0
        self.newest = 0
        self.ended_at = 0.0

    def add(self, number: int, event: bytes) -> None:
        self.events.append((number, event))
        self.size += len(event)
        self.newest = number

    def drop(self) -> int:
        """Drop the oldest event; its size."""
        self.dropped, event = self.events.popleft()
        self.size -= len(event)
        return len(event)


class _Sum:
    """How much some streams hold together."""

    __slots__ = ("events", "size", "streams")

    def __init__(self) -> None:
        self.streams: dict[str, _Kept] = {}
        self.events = 0
        self.size = 0

    @property
    def is_full(self) -> bool:
        return self.size > SESSION_BYTES or self.events > SESSION_EVENTS

    def take(self, stream: str, kept: _Kept) -> None:
        self.streams[stream] = kept
        self.events += len(kept.events)
        self.size += kept.size

    def pop(self, stream: str) -> _Kept | None:
        kept = self.streams.pop(stream, None)
        if kept is not None:
            self.events -= len(kept.events)
            self.size -= kept.size
        return kept


class MemoryEventLog:
    """An EventLog of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open = _Sum()
        self._ended = _Sum()

    def append(self, stream: str, number: int, event: bytes) -> None:
        """See EventLog."""
        all_open = self._open
        kept = all_open.streams.get(stream)
        if kept is None:
            kept = all_open.streams[stream] = _Kept()
        kept.add(number, event)
        all_open.events += 1
        all_open.size += len(event)
        if kept.size > STREAM_BYTES or len(kept.events) > STREAM_EVENTS or all_open.is_full:
            self._make_room(kept)

    def end(self, stream: str, number: int, event: bytes | None) -> None:
        """See EventLog. The stream that ended last is kept even where it alone is more than there is room for."""
        kept = self._open.pop(stream) or _Kept()
        if event is not None:
            kept.add(number, event)
        kept.newest, kept.ended_at = number, self._clock.elapsed()
        self._ended.take(stream, kept)
        while (self._ended.is_full or len(self._ended.streams) > ENDED_STREAMS) and len(self._ended.streams) > 1:
            self._ended.pop(next(iter(self._ended.streams)))

    def since(self, stream: str, number: int) -> list[bytes] | None:
        """See EventLog."""
        self.trim()
        kept = self._open.streams.get(stream) or self._ended.streams.get(stream)
        if kept is None or not kept.dropped <= number <= kept.newest:
            return None
        return [event for its, event in kept.events if its > number]

    def forget(self, stream: str) -> None:
        """See EventLog."""
        self._open.pop(stream)
        self._ended.pop(stream)

    def trim(self) -> None:
        """See EventLog."""
        oldest = self._clock.elapsed() - KEEP.total_seconds()
        while self._ended.streams:
            stream, kept = next(iter(self._ended.streams.items()))
            if kept.ended_at > oldest:
                return
            self._ended.pop(stream)

    def _make_room(self, grown: _Kept) -> None:
        while grown.size > STREAM_BYTES or len(grown.events) > STREAM_EVENTS:
            self._drop_oldest(grown)
        while self._open.is_full:
            self._drop_oldest(max(self._open.streams.values(), key=_weight))

    def _drop_oldest(self, kept: _Kept) -> None:
        self._open.size -= kept.drop()
        self._open.events -= 1


def _weight(kept: _Kept) -> tuple[int, int]:
    return kept.size, len(kept.events)
