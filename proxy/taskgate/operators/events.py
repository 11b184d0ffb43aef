"""The route of events: `EventRoutes` streams what happens, over an `EventFeed`.

A feed keeps the newest events once. A stream has only its place among them, so a slow reader costs
no memory. Behind the oldest event it gets a `reset`, and lists again. Tasks and upstreams are
watched while a stream is open, and `LINGER` after the last one.

What this process does to a task is an event at once. The store tells of each other change: progress,
and what other replicas do. These are read twice a second.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from logging import getLogger
from typing import Annotated, Final, NamedTuple, Protocol

from pydantic import Field

from taskgate.admission.mounts import Mount
from taskgate.clock import Clock
from taskgate.domain.record import TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.operators.access import ApiError, Role
from taskgate.operators.refusals import RefusalItem, RefusalLog
from taskgate.operators.routes import Answer, ApiCall, EventStream, Query, Route
from taskgate.operators.tasks import TaskItem
from taskgate.operators.upstreams import UpstreamItem
from taskgate.stores.base import RecordChange, StoreWatch, TaskStore
from taskgate.system.background import Background
from taskgate.telemetry import events
from taskgate.telemetry.request_context import no_request
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
READ_EVERY: Final = 0.5
"""Seconds from one reading of changed tasks to the next: a task has one event of them for each.

Progress is written a second after the last one at the earliest, so it shows within two.
"""
MOST_READ: Final = 500
"""Tasks that one reading reads; of more changes there is a `reset`."""
MOST_SHOWN: Final = 2_048
"""Tasks whose last event is known, so that an equal or older one does not follow."""
_GATHER: Final = 0.1
"""Seconds before a reading, in which the events of this process come, which need none."""
_PATIENCE: Final = timedelta(seconds=30)
_AT_ONCE: Final = 32
"""Tasks that are read at the same time."""
_UNSHOWN: Final = -1
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

    at: Annotated[datetime, Field(description="The time of the change, or of its reading: up to 0.6 s after progress.")]


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
        self._wake()

    def forget(self) -> None:
        """Drop all events, and wake all streams: no place of now or before is known any more.

        Some events may have no place.
        """
        self._events.clear()
        self._newest += 1
        self._wake()

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

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class _ShownTask(NamedTuple):
    """The last event of a task, and the revision of its record."""

    revision: int
    item: TaskItem


class TaskReader(Protocol):
    """The reader of records of tasks. `TaskRoutes` implements it."""

    async def read(self, id_: TaskId) -> TaskRecord | None:
        """The head of a task, with the outcome if it failed; None if there is none, or it has expired.

        Raises StoreUnavailable.
        """
        ...

    def item(self, record: TaskRecord) -> TaskItem:
        """What a list shows of a task."""
        ...


class EventRoutes:
    """The handler, and the reader of the events of tasks and upstreams.

    `store` tells of changes of tasks. `upstream_item` returns what a list shows. `replica` is the
    name of this process. `_streams` counts open streams by the name of the token. `_shown` has the
    last event of each upstream, and `_shown_tasks` of tasks, so that equal ones are sent once.
    """

    def __init__(
        self,
        event_ring: EventRing,
        *,
        refusals: RefusalLog,
        store: TaskStore,
        tasks: TaskReader,
        upstream_item: Callable[[Mount], UpstreamItem],
        mounts: Mapping[str, Mount],
        clock: Clock,
        replica: str,
    ) -> None:
        self._ring = event_ring
        self._store = store
        self._tasks = tasks
        self._upstream_item = upstream_item
        self._mounts = mounts
        self._clock = clock
        self._elapsed = clock.elapsed
        self._replica = replica
        self._feed = EventFeed(replica)
        self._streams: Counter[str] = Counter()
        self._is_watching = False
        self._idle_since = clock.elapsed()
        self._shown: dict[str, UpstreamItem] = {}
        self._shown_tasks: OrderedDict[TaskId, _ShownTask] = OrderedDict()
        self._background = Background()
        self._refusals = refusals
        self._access = refusals.access
        self._names_changes = refusals.access.names_changes
        refusals.on_refusal = self._refused

    def routes(self) -> Iterator[Route]:
        """The route of events."""
        yield Route(
            method="GET",
            path="/events",
            summary="Stream events",
            description="What happens, as server-sent events: `task` of all replicas that share the store, `upstream` "
            "and `refusal` of this one. `reset` tells that events were missed: list again. `Last-Event-ID` resumes. "
            f"At most {MOST_STREAMS} streams are open, and {MOST_OF_TOKEN} of one token.",
            role=Role.VIEWER,
            refusals={503: "Too many streams are open, or the gateway starts; see `Retry-After`."},
            query=EventQuery,
            answer=None,
            events={"task": TaskEvent, "upstream": UpstreamEvent, "refusal": RefusalItem, "reset": ResetEvent},
            handler=self._open,
        )

    def note_failure(self, event: events.Event) -> None:
        _log.exception("an event was not streamed to operators", extra={"fact": type(event).__name__})

    async def close(self) -> None:
        """Stop to read changes of tasks."""
        await self._background.close()

    # --- streams ------------------------------------------------------------------------------------------------------

    async def _open(self, call: ApiCall) -> EventStream:
        token = call.operator.name
        if self._streams.total() >= MOST_STREAMS or self._streams[token] >= MOST_OF_TOKEN:
            text = f"{MOST_STREAMS} event streams are open, or {MOST_OF_TOKEN} of this token"
            raise ApiError(503, "too_many_streams", text, **{"Retry-After": "5"})
        query: EventQuery = call.query
        if not self._is_watching:
            self._watch()
        self._heed_names()
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
                self._heed_names()
                found = feed.after(place)
                if found is None:
                    place = feed.newest
                    yield self._reset("missed", place)
                    written = self._elapsed()
                    continue
                changes = self._names_changes
                for place, kind, document in found:
                    if kind in kinds:
                        yield _part(kind, document, feed.id_of(place))
                        written = self._elapsed()
                    if changes != self._access.names_changes:
                        # A reader may take long, and what is left was made before the reload.
                        break
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
        self._shown.clear()
        self._forget()
        handlers: Handlers = {
            **dict.fromkeys((events.TaskCreated, events.TaskDispatched, events.TaskTransitioned), self._task_changed),
            events.TaskRetrieved: self._task_retrieved,
            **dict.fromkeys(
                (events.UpstreamStateChanged, events.HealthChecked, events.CircuitChanged, events.ConcurrencyChanged),
                self._upstream_changed,
            ),
        }
        self._ring.subscribe(self, handlers)
        self._ring.hasten(self, handlers.keys())
        with no_request():
            self._background.run(self._follow)

    def _has_stopped(self) -> bool:
        """Stop to take events if no stream was open for a while; return whether none is taken."""
        if self._is_watching and not self._streams.total() and self._elapsed() - self._idle_since > LINGER:
            self._is_watching = False
            self._ring.subscribe(self, {})
            self._ring.hasten(self, ())
            self._background.cancel()
            self._forget()
        return not self._is_watching

    def _heed_names(self) -> None:
        """Forget events with names once a reload has turned these off, or events without them."""
        if self._names_changes != self._access.names_changes:
            self._names_changes = self._access.names_changes
            self._forget()

    def _forget(self) -> None:
        """Have all streams list again."""
        self._shown_tasks.clear()
        self._feed.forget()

    def _task_changed(self, event: events.TaskCreated | events.TaskDispatched | events.TaskTransitioned) -> None:
        if not self._has_stopped():
            self._show(event.task, self._tasks.item(event.task), self._ring.now)

    def _task_retrieved(self, event: events.TaskRetrieved) -> None:
        if not self._has_stopped():
            # The record is marked later.
            item = self._tasks.item(event.task).model_copy(update={"is_retrieved": True})
            self._show(event.task, item, self._ring.now)

    def _show(self, record: TaskRecord, item: TaskItem, at: datetime) -> None:
        """Publish a task, unless its last event is equal or newer."""
        last = self._shown_tasks.get(record.id)
        if last is not None and last.revision > record.revision:
            return
        self._shown_tasks[record.id] = _ShownTask(record.revision, item)
        self._shown_tasks.move_to_end(record.id)
        if len(self._shown_tasks) > MOST_SHOWN:
            self._shown_tasks.popitem(last=False)
        if last is None or last.item != item:
            self._feed.publish("task", TaskEvent(at=at, **dict(item)))

    def _upstream_changed(
        self,
        event: events.UpstreamStateChanged | events.HealthChecked | events.CircuitChanged | events.ConcurrencyChanged,
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

    # --- changes that the store tells of ------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Publish what the store tells of, until no stream was open for a while."""
        place: int | None = None
        while not self._has_stopped():
            try:
                batch = await self._store.changed(StoreWatch(since=place), timeout=_PATIENCE)
            except StoreUnavailable:
                await asyncio.sleep(READ_EVERY)
                continue
            place = batch.place
            await asyncio.sleep(_GATHER)
            if not batch.complete or not await self._read(batch.changes):
                self._forget()
            await asyncio.sleep(READ_EVERY - _GATHER)

    async def _read(self, changes: Collection[RecordChange]) -> bool:
        """Publish tasks that changed since their last event; return whether all of them could be read."""
        tasks = [task for task, revision in changes if revision > self._shown_revision(task)]
        if len(tasks) > MOST_READ:
            return False
        for start in range(0, len(tasks), _AT_ONCE):
            if not all(await asyncio.gather(*map(self._read_one, tasks[start : start + _AT_ONCE]))):
                return False
        return True

    async def _read_one(self, task: TaskId) -> bool:
        try:
            record = await self._tasks.read(task)
        except StoreUnavailable as error:
            # Lists leave an unreadable record out too.
            return error.unreadable
        if record is not None:
            self._show(record, self._tasks.item(record), self._clock.now())
        return True

    def _shown_revision(self, task: TaskId) -> int:
        shown = self._shown_tasks.get(task)
        return _UNSHOWN if shown is None else shown.revision


def _part(kind: str, document: bytes, id: str) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id.encode(), kind.encode(), document)
