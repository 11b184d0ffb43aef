"""The route of events: `EventRoutes` streams what happens at this replica, over an `EventFeed`.

A feed keeps the newest events once. A stream has only its place among them, so a slow reader costs
no memory. Behind the oldest event it gets a `reset`, and lists again. Tasks and upstreams are
watched while a stream is open, and `LINGER` after the last one.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from itertools import islice
from logging import getLogger
from typing import Annotated, Final

from pydantic import Field

from taskgate.admission.mounts import Mount
from taskgate.domain.record import TaskRecord
from taskgate.operators.access import ApiError, Role
from taskgate.operators.refusals import RefusalItem, RefusalLog
from taskgate.operators.routes import Answer, ApiCall, EventStream, Query, Route
from taskgate.operators.tasks import TaskItem
from taskgate.operators.upstreams import UpstreamItem
from taskgate.telemetry import events
from taskgate.telemetry.ring import EventRing, Handlers

MOST_EVENTS: Final = 1_000
"""Events that a feed keeps for streams that are late, or that begin again."""
MOST_STREAMS: Final = 16
"""Streams at once: half of the connections of the listener, so that probes find one."""
KEEP_ALIVE: Final = 15
"""Seconds without an event after which a stream has a comment."""
LINGER: Final = 60.0
"""Seconds after the last stream for which events are kept, for one that begins again."""
MOST_OF_TOKEN: Final = 8
"""Streams of one token at once, so that it leaves some to others."""
_MOST_DIGITS: Final = 18
_RETRY: Final = b"retry: 2000\n\n"
_ALIVE: Final = b": keep-alive\n\n"
_log = getLogger("taskgate.operators")


class EventName(StrEnum):
    """The kinds of events, by which a query selects."""

    TASK = "task"
    UPSTREAM = "upstream"
    REFUSAL = "refusal"


class EventQuery(Query):
    """Which events a stream has."""

    kinds: Annotated[
        tuple[EventName, ...], Field(description="The kinds, separated by commas; none means all.", max_length=3)
    ] = ()


class TaskEvent(TaskItem):
    """A task after a change, as in a list."""

    at: Annotated[datetime, Field(description="The time of the change.")]


class UpstreamEvent(UpstreamItem):
    """An upstream after a change of its health, circuit or load, as in a list."""

    at: datetime
    replica: str


class ResetEvent(Answer):
    """Events were missed: what was listed before may have changed."""

    reason: Annotated[
        str, Field(description="`missed`: too many events for the reader; `unknown`: of another process.")
    ]


class EventFeed:
    """The newest events of one process, at most MOST_EVENTS. `name` is unique to the process.

    An event has a number; its id is that with the name before it. `_newest` is the last number.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._events: deque[tuple[int, str, bytes]] = deque(maxlen=MOST_EVENTS)
        self._newest = 0
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def newest(self) -> int:
        """The place after all events of now."""
        return self._newest

    def publish(self, kind: str, document: Answer) -> None:
        """Add an event, and wake all streams."""
        self._newest += 1
        self._events.append((self._newest, kind, document.model_dump_json().encode()))
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def forget(self) -> None:
        """Drop all events: no place of now or before is known any more, as some events may have none."""
        self._events.clear()
        self._newest += 1

    def after(self, place: int) -> list[tuple[int, str, bytes]] | None:
        """The events after a place; None if some of them are dropped."""
        oldest = self._newest - len(self._events)
        return list(islice(self._events, place - oldest, None)) if place >= oldest else None

    def place_of(self, id: str) -> int | None:
        """The place after the event with that id; None for an id of another process, or for none."""
        name, _, number = id.rpartition("-")
        is_number = number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS
        place = int(number) if name == self._name and is_number else -1
        return place if 0 <= place <= self._newest else None

    def id_of(self, number: int) -> str:
        """The id of an event."""
        return f"{self._name}-{number}"

    async def wait(self, place: int, seconds: float) -> None:
        """Wait for an event after a place, so many seconds at most."""
        if self._newest > place:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)


class EventRoutes:
    """The handler, and the reader of the events of tasks and upstreams.

    `task_item` and `upstream_item` return what lists show. `replica` is the name of this process.
    `_streams` counts open streams by the name of the token. `_shown` has the last event of each
    upstream, so that equal ones are sent once.
    """

    def __init__(
        self,
        event_ring: EventRing,
        *,
        refusals: RefusalLog,
        task_item: Callable[[TaskRecord], TaskItem],
        upstream_item: Callable[[Mount], UpstreamItem],
        mounts: Mapping[str, Mount],
        elapsed: Callable[[], float],
        replica: str,
    ) -> None:
        self._ring = event_ring
        self._task_item = task_item
        self._upstream_item = upstream_item
        self._mounts = mounts
        self._elapsed = elapsed
        self._replica = replica
        self._feed = EventFeed(replica)
        self._streams: Counter[str] = Counter()
        self._is_watching = False
        self._idle_since = elapsed()
        self._shown: dict[str, UpstreamItem] = {}
        self._refusals = refusals
        refusals.on_refusal = self._refused

    def routes(self) -> Iterator[Route]:
        """The route of events."""
        yield Route(
            method="GET",
            path="/events",
            summary="Stream events",
            description="What happens at this replica, as server-sent events: `task`, `upstream` and `refusal`. "
            "`reset` tells that events were missed: list again. `Last-Event-ID` resumes. At most "
            f"{MOST_STREAMS} streams are open, and {MOST_OF_TOKEN} of one token.",
            role=Role.VIEWER,
            refusals={503: "Too many streams are open, or the gateway starts; see `Retry-After`."},
            query=EventQuery,
            answer=None,
            events={"task": TaskEvent, "upstream": UpstreamEvent, "refusal": RefusalItem, "reset": ResetEvent},
            handler=self._open,
        )

    def note_failure(self, event: events.Event) -> None:
        _log.exception("an event was not streamed to operators", extra={"fact": type(event).__name__})

    # --- streams ------------------------------------------------------------------------------------------------------

    async def _open(self, call: ApiCall) -> EventStream:
        token = call.operator.name
        if self._streams.total() >= MOST_STREAMS or self._streams[token] >= MOST_OF_TOKEN:
            text = f"{MOST_STREAMS} event streams are open, or {MOST_OF_TOKEN} of this token"
            raise ApiError(503, "too_many_streams", text, **{"Retry-After": "5"})
        query: EventQuery = call.query
        if not self._is_watching:
            self._watch()
        place = self._feed.newest if call.last_event is None else self._feed.place_of(call.last_event)
        return self._stream(frozenset(query.kinds or EventName), place, token, call.is_allowed)

    async def _stream(
        self, kinds: frozenset[str], place: int | None, token: str, is_allowed: Callable[[], bool]
    ) -> EventStream:
        """The parts of a stream. An empty part lets the carrier find out whether the reader is there."""
        feed = self._feed
        self._streams[token] += 1
        try:
            yield _RETRY
            if place is None:
                place = feed.newest
                yield self._reset("unknown", place)
            written = self._elapsed()
            while is_allowed():
                found = feed.after(place)
                if found is None:
                    place = feed.newest
                    yield self._reset("missed", place)
                    written = self._elapsed()
                    continue
                for place, kind, document in found:
                    if kind in kinds:
                        yield _part(kind, document, feed.id_of(place))
                        written = self._elapsed()
                is_quiet = self._elapsed() - written >= KEEP_ALIVE
                yield _ALIVE if is_quiet else b""
                if is_quiet:
                    written = self._elapsed()
                await feed.wait(place, 1.0)
                self._refusals.publish_counts(self._elapsed())
        finally:
            self._streams[token] -= 1
            self._idle_since = self._elapsed()

    def _reset(self, reason: str, place: int) -> bytes:
        return _part("reset", ResetEvent(reason=reason).model_dump_json().encode(), self._feed.id_of(place))

    # --- events -------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Take the events of tasks and upstreams from now on."""
        # To subscribe gives out events that wait, and each asks whether a stream was open of late.
        self._idle_since = self._elapsed()
        self._is_watching = True
        self._feed.forget()
        self._shown.clear()
        handlers: Handlers = {
            **dict.fromkeys(
                (events.TaskCreated, events.TaskDispatched, events.TaskTransitioned, events.TaskRetrieved),
                self._task_changed,
            ),
            **dict.fromkeys(
                (events.HealthChecked, events.CircuitChanged, events.ConcurrencyChanged), self._upstream_changed
            ),
        }
        self._ring.subscribe(self, handlers)
        self._ring.hasten(self, handlers.keys())

    def _has_stopped(self) -> bool:
        """Stop to take events if no stream was open for a while; return whether none is taken."""
        if self._is_watching and not self._streams.total() and self._elapsed() - self._idle_since > LINGER:
            self._is_watching = False
            self._ring.subscribe(self, {})
            self._ring.hasten(self, ())
            self._feed.forget()
        return not self._is_watching

    def _task_changed(
        self, event: events.TaskCreated | events.TaskDispatched | events.TaskTransitioned | events.TaskRetrieved
    ) -> None:
        if not self._has_stopped():
            item = self._task_item(event.task)
            self._feed.publish("task", TaskEvent(at=self._ring.now, **dict(item)))

    def _upstream_changed(
        self, event: events.HealthChecked | events.CircuitChanged | events.ConcurrencyChanged
    ) -> None:
        mount = self._mounts.get(event.mount)
        if self._has_stopped() or mount is None:
            return
        item = self._upstream_item(mount)
        if self._shown.get(mount.name) != item:
            self._shown[mount.name] = item
            self._feed.publish("upstream", UpstreamEvent(at=self._ring.now, replica=self._replica, **dict(item)))

    def _refused(self, item: RefusalItem) -> None:
        if not self._has_stopped():
            self._feed.publish("refusal", item)


def _part(kind: str, document: bytes, id: str) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id.encode(), kind.encode(), document)
