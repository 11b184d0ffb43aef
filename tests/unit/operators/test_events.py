"""The newest events are kept once for all streams, in bounded memory."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from helpers.failing_store import FailingStore
from helpers.manual_clock import EPOCH, ManualClock
from helpers.records import after, new_record
from helpers.waiting import bounded, eventually
from taskgate.domain.events import CallSucceeded, CheckpointSaved, Progressed, ResultRetrieved
from taskgate.domain.record import TaskId, TaskRecord
from taskgate.operators.access import ApiError, Operator, OperatorAccess, Role
from taskgate.operators.events import (
    KEEP_ALIVE,
    LINGER,
    MOST_EVENTS,
    MOST_OF_TOKEN,
    MOST_READ,
    MOST_STREAMS,
    READ_EVERY,
    EventFeed,
    EventQuery,
    EventRoutes,
    ResetEvent,
)
from taskgate.operators.refusals import RefusalLog
from taskgate.operators.routes import Answer, ApiCall, EventStream, read_query
from taskgate.operators.tasks import TaskItem
from taskgate.stores.memory import MemoryStore
from taskgate.telemetry import events
from taskgate.telemetry.ring import EventRing

SAID = ResetEvent(reason="said")
ENDED = CallSucceeded(result="{}", tool_error=False)


def created() -> events.TaskCreated:
    """The event of a new task."""
    return events.TaskCreated(new_record(), None)


def item_of(record: TaskRecord) -> TaskItem:
    """What a list shows."""
    return TaskItem(
        reference=f"t_{record.id}", upstream="reports", tool="report", status=record.status, tool_error=False,
        is_queued=False, queue_position=None, progress=record.status_message, caller="c_one", tenant=None,
        created_at=EPOCH, updated_at=record.updated_at, ended_at=None, expires_at=EPOCH, replica=None,
        reason=None, is_retrieved=record.retrieved,
    )  # fmt: skip


def filled(count: int) -> EventFeed:
    feed = EventFeed("one")
    for _ in range(count):
        feed.publish("task", SAID)
    return feed


@pytest.mark.parametrize("count", [MOST_EVENTS, 10 * MOST_EVENTS])
def test_a_feed_keeps_a_bounded_number_of_events(count: int) -> None:
    feed = filled(count)
    kept = feed.after(count - MOST_EVENTS)
    assert kept is not None
    assert (len(kept), kept[-1][0]) == (MOST_EVENTS, count)
    assert feed.after(count - MOST_EVENTS - 1) is (None if count > MOST_EVENTS else feed.after(-1))


def test_a_place_before_forgotten_events_is_not_known() -> None:
    feed = filled(3)
    feed.forget()
    assert (feed.after(2), feed.after(3), feed.after(feed.newest)) == (None, None, [])
    feed.publish("task", SAID)
    assert [number for number, _, _ in feed.after(4) or ()] == [5]


@pytest.mark.parametrize(
    ("id", "place"),
    [
        ("one-2", 2),
        ("one-4", None),
        ("two-2", None),
        ("one--1", None),
        ("one-²", None),
        ("", None),
        pytest.param(f"one-{'1' * 5000}", None, id="many digits"),
    ],
)
def test_an_id_is_of_one_process(id: str, place: int | None) -> None:
    assert filled(3).place_of(id) == place


class Stage(NamedTuple):
    """The route of events over a ring."""

    ring: EventRing
    clock: ManualClock
    routes: EventRoutes
    shown: list[TaskRecord]
    reads: list[TaskId]
    kept: MemoryStore
    store: FailingStore

    async def open(
        self,
        last: str | None = None,
        *,
        token: str = "looks",
        kinds: str = "",
        is_allowed: Callable[[], bool] = lambda: True,
    ) -> EventStream:
        [route] = self.routes.routes()
        query = read_query(EventQuery, [("kinds", kinds)] if kinds else [])
        operator = Operator(token, Role.VIEWER)
        call = ApiCall(operator=operator, parameters={}, query=query, body=None, last_event=last, is_allowed=is_allowed)
        stream = await route.handler(call)
        assert not isinstance(stream, Answer)
        return stream

    def emit(self, *emitted: events.Event) -> None:
        for each in emitted:
            self.ring.emit(each)
        self.ring.fold()

    async def keep(self, *records: TaskRecord) -> None:
        """Store new tasks, as another replica does."""
        for record in records:
            await self.kept.insert(record, caps=())

    async def swap(self, record: TaskRecord, *changes: Any) -> TaskRecord:
        """Store a changed task, as another replica does."""
        changed = after(record, *changes)
        assert await self.kept.swap(changed, expected=record.revision)
        return changed


class Reader(NamedTuple):
    """Reads tasks, and notes which are read and which are shown."""

    store: Any
    shown: list[TaskRecord]
    reads: list[TaskId]

    async def read(self, id_: TaskId) -> TaskRecord | None:
        self.reads.append(id_)
        owner = await self.store.owner_of(id_)
        found: TaskRecord | None = None if owner is None else await self.store.load(owner, id_, now=EPOCH)
        return found

    def item(self, record: TaskRecord) -> TaskItem:
        self.shown.append(record)
        return item_of(record)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    clock, shown, reads, kept = ManualClock(), list[TaskRecord](), list[TaskId](), MemoryStore()
    store: Any = FailingStore(kept)
    ring = EventRing(clock)
    refusals = RefusalLog(ring, OperatorAccess(clock.elapsed))
    refusals.subscribe()

    routes = EventRoutes(
        ring, refusals=refusals, store=store, tasks=Reader(store, shown, reads),
        upstream_item=lambda _: pytest.fail("none"), mounts={}, clock=clock, replica="one",
    )  # fmt: skip
    yield Stage(ring, clock, routes, shown, reads, kept, store)
    async with bounded():
        await routes.close()
        await kept.close()


async def told(stream: EventStream) -> tuple[str, dict[str, Any]]:
    """Name and data of the next event."""
    async with bounded():
        while not (part := await anext(stream)).startswith(b"id: "):
            pass
    _, name, data, *_ = part.decode().splitlines()
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def next_task(stream: EventStream) -> dict[str, Any]:
    """The data of the next event, which is one of a task."""
    name, data = await told(stream)
    assert name == "task"
    return data


async def test_tasks_are_watched_while_a_stream_is_open_and_a_little_longer(stage: Stage) -> None:
    def emitted() -> int:
        stage.emit(created())
        return len(stage.shown)

    assert emitted() == 0
    stream = await stage.open()
    await anext(stream)
    assert emitted() == 1
    await stream.aclose()
    assert emitted() == 2
    stage.clock.advance(timedelta(seconds=LINGER + 1))
    assert emitted() == emitted() == 2


async def test_a_slow_reader_gets_a_reset_in_place_of_memory(stage: Stage) -> None:
    stream = await stage.open()
    assert await anext(stream) == b"retry: 2000\n\n"
    stage.emit(*(created() for _ in range(MOST_EVENTS + 1)))
    async with bounded():
        assert (await anext(stream)).splitlines()[1:] == [b"event: reset", b'data: {"reason":"missed"}', b""]
        # It goes on with what comes then.
        stage.emit(events.QueueRefused("another", "full"))
        part = await anext(stream)
        while not part:
            part = await anext(stream)
    assert b"event: refusal" in part
    assert b"another" in part
    await stream.aclose()


async def test_an_equal_refusal_is_an_event_once_a_second_with_its_number(stage: Stage) -> None:
    stream = await stage.open()
    await anext(stream)
    for seconds in (0, 0, 1, 0):
        stage.clock.advance(timedelta(seconds=seconds))
        stage.emit(events.QueueRefused("reports", "full"))
    async with bounded():
        parts = [await anext(stream) for _ in range(3)]
        assert [b'"count":1' in parts[0], b'"count":3' in parts[1], parts[2]] == [True, True, b""]
        # The last number follows, though nothing happens any more.
        stage.clock.advance(timedelta(seconds=1))
        part = await anext(stream)
        while not part:
            part = await anext(stream)
    assert b'"count":4' in part
    await stream.aclose()


async def test_a_flood_of_refusals_leaves_other_events_in_the_feed(stage: Stage) -> None:
    stream = await stage.open()
    await anext(stream)
    stage.emit(created(), *(events.QueueRefused(f"server-{number}", "full") for number in range(10 * MOST_EVENTS)))
    async with bounded():
        parts = [await anext(stream) for _ in range(22)]
    assert b"event: task" in parts[0]
    assert [b"event: refusal" in part for part in parts[1:21]] == [True] * 20
    assert parts[21] == b""
    await stream.aclose()


async def test_a_stream_that_opens_while_refusals_wait_has_events(stage: Stage) -> None:
    stage.clock.advance(timedelta(seconds=LINGER + 1))
    stage.ring.emit(events.QueueRefused("reports", "full"))
    stream = await stage.open(kinds="task")
    await anext(stream)
    stage.emit(created())
    async with bounded():
        assert b"event: task" in await anext(stream)
    await stream.aclose()


async def test_a_stream_that_comes_back_late_gets_a_reset_even_if_its_id_is_the_newest(stage: Stage) -> None:
    stream = await stage.open()
    await anext(stream)
    stage.emit(created())
    last = (await anext(stream)).splitlines()[0].removeprefix(b"id: ").decode()
    await stream.aclose()
    stage.clock.advance(timedelta(seconds=LINGER + 1))
    stage.emit(created())
    stream = await stage.open(last)
    await anext(stream)
    async with bounded():
        assert b"event: reset" in await anext(stream)
    await stream.aclose()


async def test_a_stream_without_an_event_of_its_kinds_is_kept_alive(stage: Stage) -> None:
    stream = await stage.open(kinds="upstream")
    await anext(stream)
    async with bounded():
        stage.emit(created())
        assert await anext(stream) == b""
        stage.clock.advance(timedelta(seconds=KEEP_ALIVE))
        stage.emit(created())
        assert await anext(stream) == b": keep-alive\n\n"
        stage.emit(created())
        assert await anext(stream) == b""
    await stream.aclose()


async def test_streams_of_one_token_leave_some_to_others(stage: Stage) -> None:
    streams = [await stage.open() for _ in range(MOST_OF_TOKEN)]
    for stream in streams:
        await anext(stream)
    with pytest.raises(ApiError):
        await stage.open()
    other = await stage.open(token="ops")
    assert await anext(other)
    for stream in (*streams, other):
        await stream.aclose()
    assert await stage.open() is not None


async def test_streams_are_bounded_and_end_with_their_permission(stage: Stage) -> None:
    allowed = [True]
    names = [f"token-{number // MOST_OF_TOKEN}" for number in range(MOST_STREAMS)]
    streams = [await stage.open(token=name, is_allowed=lambda: allowed[0]) for name in names]
    for stream in streams:
        await anext(stream)
    with pytest.raises(ApiError) as refused:
        await stage.open(token="another")
    assert (refused.value.status, refused.value.code) == (503, "too_many_streams")
    allowed.clear()
    allowed.append(False)
    async with bounded():
        for stream in streams:
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
    assert await stage.open() is not None


# --- changes that the store tells of ----------------------------------------------------------------------------------


async def opened(stage: Stage) -> EventStream:
    """A stream that is open; the store is watched."""
    stream = await stage.open()
    await anext(stream)
    await asyncio.sleep(0)
    return stream


async def test_what_another_replica_does_to_a_task_is_an_event(stage: Stage) -> None:
    stream, record = await opened(stage), new_record()
    await stage.keep(record)
    assert (await next_task(stream))["status"] == "working"
    await stage.swap(record, Progressed(message="half"), ENDED)
    assert (await next_task(stream))["status"] == "completed"
    await stream.aclose()


async def test_progress_is_one_event_for_each_reading_of_a_task_and_the_newest(stage: Stage) -> None:
    stream, loop, record = await opened(stage), asyncio.get_running_loop(), new_record()
    await stage.keep(record)
    await next_task(stream)
    first = loop.time()
    for number in range(20):
        record = await stage.swap(record, Progressed(message=str(number)))
    assert (await next_task(stream))["progress"] == "19"
    assert loop.time() - first > READ_EVERY / 2
    await stream.aclose()


async def test_what_this_process_did_is_shown_by_its_own_event_and_not_read(stage: Stage) -> None:
    stream, record = await opened(stage), new_record()
    await stage.keep(record)
    stage.emit(events.TaskCreated(record, None))
    assert (await next_task(stream))["reference"] == f"t_{record.id}"
    ended = await stage.swap(record, ENDED)
    stage.emit(events.TaskTransitioned(ended, record.status))
    assert (await next_task(stream))["status"] == "completed"
    last = new_record()
    await stage.keep(last)
    await next_task(stream)
    assert stage.reads == [last.id]
    await stream.aclose()


async def test_an_event_that_is_older_than_what_was_read_is_left_out(stage: Stage) -> None:
    stream, record = await opened(stage), new_record()
    await stage.keep(record)
    ended = await stage.swap(record, ENDED)
    assert (await next_task(stream))["status"] == "completed"
    stage.emit(events.TaskCreated(record, None), events.TaskTransitioned(ended, record.status), created())
    assert (await next_task(stream))["reference"] != f"t_{record.id}"
    await stream.aclose()


async def test_a_change_that_no_list_shows_is_no_event(stage: Stage) -> None:
    stream, record = await opened(stage), new_record()
    await stage.keep(record)
    await next_task(stream)
    record = await stage.swap(record, CheckpointSaved(checkpoint=None))
    await eventually(lambda: stage.shown[-1].revision == record.revision)
    stage.emit(created())
    assert (await next_task(stream))["reference"] != f"t_{record.id}"
    await stream.aclose()


async def test_a_fetch_is_shown_before_the_record_is_marked(stage: Stage) -> None:
    stream, record = await opened(stage), after(new_record(), ENDED)
    stage.emit(events.TaskRetrieved(record, timedelta()))
    assert (await next_task(stream))["is_retrieved"] is True
    stage.emit(events.TaskRetrieved(after(record, ResultRetrieved()), None), created())
    assert (await next_task(stream))["is_retrieved"] is False
    await stream.aclose()


@pytest.mark.parametrize("operation", ["owner_of", "load"])
async def test_a_task_that_cannot_be_read_has_a_reset(stage: Stage, operation: str) -> None:
    stream, record = await opened(stage), new_record()
    stage.store.failing.add(operation)
    await stage.keep(record)
    assert await told(stream) == ("reset", {"reason": "missed"})
    stage.store.failing.clear()
    await stage.swap(record, ENDED)
    assert (await next_task(stream))["status"] == "completed"
    await stream.aclose()


async def test_a_store_that_cannot_be_watched_is_watched_again(stage: Stage) -> None:
    stage.store.failing.add("changed")
    stream, record = await opened(stage), new_record()
    await eventually(lambda: "changed" in stage.store.refused)
    stage.store.failing.clear()
    seen = asyncio.ensure_future(told(stream))
    while not seen.done():
        record = new_record()
        await stage.keep(record)
        await asyncio.wait([seen], timeout=0.1)
    assert (await seen)[0] == "task"
    await stream.aclose()


async def test_more_changes_than_are_read_at_once_have_a_reset(stage: Stage) -> None:
    stream = await opened(stage)
    await stage.keep(*(new_record() for _ in range(MOST_READ + 1)))
    assert await told(stream) == ("reset", {"reason": "missed"})
    assert stage.shown == []
    await stream.aclose()


async def test_the_store_is_watched_while_a_stream_is_open_and_a_little_longer(stage: Stage) -> None:
    stream = await opened(stage)
    await stream.aclose()
    await stage.keep(record := new_record())
    await eventually(lambda: stage.reads == [record.id])
    stage.clock.advance(timedelta(seconds=LINGER + 1))
    stage.emit(created())
    await stage.keep(new_record())
    stream = await opened(stage)
    last = new_record()
    await stage.keep(last)
    assert (await next_task(stream))["reference"] == f"t_{last.id}"
    await stage.keep(another := new_record())
    await next_task(stream)
    assert stage.reads == [record.id, last.id, another.id]
    await stream.aclose()
