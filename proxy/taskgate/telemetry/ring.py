"""The `EventSink` of a gateway, `EventRing`: events wait on it in their order, and readers get them in batches.

On the way of a request an event costs one entry. Metrics and the audit log read the entries later
(`fold`). That is when `BATCH` of them wait, and before a number is read. It is `FOLD_DELAY` after
one that has a line in the audit log or the log.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextvars import Context
from datetime import UTC, datetime
from typing import Any, Final, Protocol, get_args

from taskgate.clock import Clock, SystemClock
from taskgate.telemetry.events import Event, TaskCreated
from taskgate.telemetry.request_context import LARGE_MESSAGE, RequestContext, attach, current, detach

BATCH: Final = 256
"""Entries that wait, at most."""
FOLD_DELAY: Final = 0.025
"""Seconds that the first entry of a batch waits for others."""
MAX_PAYLOADS: Final = 2**20
"""Characters of large messages above which they are folded at once."""

Handlers = Mapping[type, Callable[[Any], None]]
"""The function that a reader wants to be called with each event, by the type of the event."""

Counters = Mapping[type, Callable[[Any, int], None]]
"""The function that counts an event so many times, by the type of the event."""

_UNCHANGED: Final = frozenset({TaskCreated})
"""Events that show nothing of what their request learns later, so that its context is not copied."""

_WITH_TASKS: Final = frozenset(each for each in get_args(Event) if "task" in each.__annotations__) - {RequestContext}

Handler = tuple[Callable[[Any], None], "EventReader"]
"""The function of a reader."""

_log = logging.getLogger("taskgate.telemetry")


class EventReader(Protocol):
    """A reader of events, which subscribes to an `EventRing`."""

    def note_failure(self, event: Event) -> None:
        """Log the exception that a handler raised for an event."""
        ...


class _Kind:
    """The ways of the events of one type: to handlers, into counts, onto the ring.

    - `handlers`: the functions that get them
    - `counts`: how often each happened, if they are only counted
    - `is_recorded`: whether they have lines in the audit log, which show the request as it is now;
      `is_timed`: whether they wait for `FOLD_DELAY` at most
    """

    __slots__ = ("counts", "handlers", "is_recorded", "is_timed")

    def __init__(self) -> None:
        self.handlers: list[Handler] = []
        self.counts: dict[Event, int] | None = None
        self.is_recorded = False
        self.is_timed = False


Entry = tuple[_Kind, Event, RequestContext | None, float]
"""What becomes of an event, the event, the request that it belongs to, and the monotonic time."""


class EventRing:
    """The events that wait for their readers, and the readers.

    A reader subscribes with the handlers of the events that it wants. An event without a reader is
    dropped when it is emitted. When its handlers change, a reader subscribes again. An exception in
    one handler does not keep others from the event. A handler runs within the request of its event,
    so that log lines name it. `now` and `elapsed` are then the time at which the event happened.
    `folded_at` is the time of day at the last fold, less the monotonic time, in seconds.

    All methods are for the thread of the event loop.

    - `room`: returns how many entries may wait; the audit log has as many places for their lines
    - `on_batch`: called when the readers have had a batch, outside of any request
    - `_kinds`: what becomes of an event, by its type; `_read`: those that have a
      reader, and requests, whose large messages are released
    - `_limit`: the number of entries at which they are folded at once
    - `_payloads`: the requests with large messages among the entries, which the next fold discards;
      `_payload_size`: the length of these messages in characters
    - `_timer`: the one timer of all entries, while one waits that needs it
    """

    def __init__(self, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self._now, self._elapsed = clock.now, clock.elapsed
        self.elapsed = clock.elapsed()
        self.folded_at = clock.now().timestamp() - self.elapsed
        self.room: Callable[[], int] = lambda: BATCH
        self.on_batch: Callable[[], None] = lambda: None
        self._entries: list[Entry] = []
        self._limit = BATCH
        self._payloads: list[RequestContext] = []
        self._payload_size = 0
        self._is_folding = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._readers: dict[EventReader, tuple[Handlers, ...]] = {}
        self._timer_context = Context()
        """An empty one: that of a request would keep its message."""
        self._kinds = {kind: _Kind() for kind in get_args(Event)}
        self._read: dict[type, _Kind] = {}
        self._counting: EventReader | None = None
        self._counters: Counters = {}
        self._counted: list[tuple[_Kind, Callable[[Any, int], None]]] = []
        self._hastened: dict[EventReader, Collection[type]] = {}
        self._recorded: Collection[type] = ()
        self._annotations: Handlers = {}
        self.record(())
        self._find_read()

    @property
    def now(self) -> datetime:
        """The time of day at which the event happened that a reader gets."""
        # By seconds since 1970: a `timedelta` of a float takes twice as long.
        return datetime.fromtimestamp(self.folded_at + self.elapsed, UTC)

    def start(self) -> None:
        """From now on fold in time, by the running loop. Before, only `fold` and a full batch do."""
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Fold, now and at each later event; no timer is left."""
        self.room = _no_room
        self.fold()
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def subscribe(self, reader: EventReader, *parts: Handlers) -> None:
        """Call these handlers for events from now on, in place of earlier ones of the reader.

        A type in several parts has several handlers. Readers are called in the order of their first
        subscription.
        """
        self.fold()
        self._readers[reader] = parts
        for type_, kind in self._kinds.items():
            parts_of = ((part, each) for each, its_parts in self._readers.items() for part in its_parts)
            kind.handlers = [(part[type_], each) for part, each in parts_of if type_ in part]
        self._find_read()

    def count(self, reader: EventReader, counters: Counters) -> None:
        """Count equal events of these types for a reader, and call these functions with each and its
        number.

        There is one such reader. An event of such a type has no entry, and belongs to no request. It
        is not counted so while another reader has a handler for it: then each is handled alone.
        """
        self.fold()
        self._counting, self._counters = reader, counters
        self._find_read()

    def record(self, kinds: Collection[type]) -> None:
        """Fold in time what has events of these types, and keep with each its request as it was.

        Events of other types are only counted, so they wait until the numbers are wanted. Those about
        a task do not: a record may hold a large result.
        """
        self._recorded = kinds
        self._set_times()

    def hasten(self, reader: EventReader, kinds: Collection[type]) -> None:
        """Fold in time what has events of these types, for a reader; in place of its earlier ones."""
        self._hastened[reader] = kinds
        self._set_times()

    def _set_times(self) -> None:
        hastened = {type_ for kinds in self._hastened.values() for type_ in kinds}
        for type_, kind in self._kinds.items():
            kind.is_recorded = type_ in self._recorded and type_ not in _UNCHANGED
            kind.is_timed = type_ in self._recorded or type_ in _WITH_TASKS or type_ in hastened

    def annotate(self, annotations: Handlers) -> None:
        """Call these functions when an event happens: a span takes nothing more after its end."""
        self._annotations = annotations

    def _find_read(self) -> None:
        """Find the types of events that have a reader, and those that are counted by number.

        Requests are among the first for their messages.
        """
        counters = {
            type_: count
            for type_, count in self._counters.items()
            if all(reader is self._counting for _, reader in self._kinds[type_].handlers)
        }
        self._counted = [(self._kinds[type_], count) for type_, count in counters.items()]
        for type_, kind in self._kinds.items():
            if type_ not in counters:
                kind.counts = None
            elif kind.counts is None:
                kind.counts = {}
        self._read = {
            type_: kind
            for type_, kind in self._kinds.items()
            if kind.handlers or kind.counts is not None or type_ is RequestContext
        }

    def emit(self, event: Event) -> None:
        if self._annotations:
            self._annotate(event)
        kind = self._read.get(type(event))
        if kind is None:
            return
        counts = kind.counts
        if counts is not None:
            counts[event] = counts.get(event, 0) + 1
            return
        if kind.handlers:
            context, entries = current(), self._entries
            if self._is_folding:
                # What a reader has to say belongs to the event that it reads.
                entries.append((kind, event, context, self.elapsed))
                return
            if self._timer is None and kind.is_timed and self._loop is not None:
                self._timer = self._loop.call_later(FOLD_DELAY, self._on_time, context=self._timer_context)
            if kind.is_recorded and context is not None and not context.background and context is not event:
                context = context.snapshot()
            entries.append((kind, event, context, self._elapsed()))
            if len(entries) >= self._limit:
                self.fold()
        if type(event) is RequestContext and event.message is not None and len(event.message.text) > LARGE_MESSAGE:
            self._payloads.append(event)
            self._payload_size += len(event.message.text)
            if self._timer is None or self._payload_size > MAX_PAYLOADS:
                self.fold()

    def emit_many(self, event: Event, times: int) -> None:
        """Emit an event that happened so many times."""
        kind = self._read.get(type(event))
        if kind is not None and kind.counts is not None:
            kind.counts[event] = kind.counts.get(event, 0) + times
            return
        for _ in range(times):
            self.emit(event)

    def _annotate(self, event: Event) -> None:
        annotate = self._annotations.get(type(event))
        if annotate is not None:
            try:
                annotate(event)
            except Exception as error:
                # What emits an event has begun something, and must be able to end it.
                _log.error("a span got no annotation", extra={"error": type(error).__name__})

    def fold(self) -> None:
        """Give all events that wait to their readers, in their order."""
        if self._is_folding:
            # A handler emits or subscribes; the batch below goes on.
            return
        self._is_folding = True
        self.folded_at = self._now().timestamp() - self._elapsed()
        entries, before = self._entries, attach(None)
        here: RequestContext | None = None
        try:
            # Counts come first: the answer of a call is shown by its tool, which takes a label when it is counted.
            self._give_counts()
            while entries:
                batch = entries[:]
                entries.clear()
                for kind, event, context, self.elapsed in batch:
                    if context is not here:
                        attach(context)
                        here = context
                    for handle, reader in kind.handlers:
                        try:
                            handle(event)
                        except Exception:
                            reader.note_failure(event)
                if here is not None:
                    attach(None)
                    here = None
                self.on_batch()
            # Lines that the audit log has recorded meanwhile.
            self._give_counts()
        finally:
            detach(before)
            for request in self._payloads:
                request.discard_payload()
            self._payloads.clear()
            self._payload_size = 0
            self._is_folding = False
            self._limit = max(1, min(BATCH, self.room()))

    def _give_counts(self) -> None:
        for kind, count in self._counted:
            if kind.counts:
                counts, kind.counts = kind.counts, {}
                for event, times in counts.items():
                    try:
                        count(event, times)
                    except Exception:
                        if self._counting is not None:
                            self._counting.note_failure(event)

    def _on_time(self) -> None:
        self._timer = None
        self.fold()


def _no_room() -> int:
    return 0
