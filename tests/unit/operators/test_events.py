"""The newest events are kept once for all streams, in bounded memory."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from helpers.manual_clock import EPOCH, ManualClock
from helpers.records import new_record
from helpers.waiting import bounded
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.operators.access import ApiError, Operator, Role
from taskgate.operators.events import (
    KEEP_ALIVE,
    LINGER,
    MOST_EVENTS,
    MOST_OF_TOKEN,
    MOST_STREAMS,
    EventFeed,
    EventQuery,
    EventRoutes,
    ResetEvent,
)
from taskgate.operators.refusals import RefusalLog
from taskgate.operators.routes import Answer, ApiCall, EventStream, read_query
from taskgate.operators.tasks import TaskItem
from taskgate.telemetry import events
from taskgate.telemetry.ring import EventRing

SAID = ResetEvent(reason="said")
CREATED = events.TaskCreated(new_record(), None)
ITEM = TaskItem(
    reference="t_" + "0" * 22, upstream="reports", tool="report", status=TaskStatus.WORKING, tool_error=False,
    is_queued=False, queue_position=None, progress=None, caller="c_one", tenant=None, created_at=EPOCH,
    updated_at=EPOCH, expires_at=EPOCH, replica=None, is_retrieved=False,
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
    shown: list[Any]

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


@pytest.fixture
async def stage() -> Stage:
    clock, shown = ManualClock(), list[Any]()
    ring = EventRing(clock)
    refusals = RefusalLog(ring)
    refusals.subscribe()

    def item(record: TaskRecord) -> TaskItem:
        shown.append(record)
        return ITEM

    routes = EventRoutes(
        ring, refusals=refusals, task_item=item, upstream_item=lambda _: pytest.fail("none"), mounts={},
        elapsed=clock.elapsed, replica="one",
    )  # fmt: skip
    return Stage(ring, clock, routes, shown)


async def test_tasks_are_watched_while_a_stream_is_open_and_a_little_longer(stage: Stage) -> None:
    def emitted() -> int:
        stage.emit(CREATED)
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
    stage.emit(*[CREATED] * (MOST_EVENTS + 1))
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
    for after in (0, 0, 1, 0):
        stage.clock.advance(timedelta(seconds=after))
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
    stage.emit(CREATED, *(events.QueueRefused(f"server-{number}", "full") for number in range(10 * MOST_EVENTS)))
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
    stage.emit(CREATED)
    async with bounded():
        assert b"event: task" in await anext(stream)
    await stream.aclose()


async def test_a_stream_that_comes_back_late_gets_a_reset_even_if_its_id_is_the_newest(stage: Stage) -> None:
    stream = await stage.open()
    await anext(stream)
    stage.emit(CREATED)
    last = (await anext(stream)).splitlines()[0].removeprefix(b"id: ").decode()
    await stream.aclose()
    stage.clock.advance(timedelta(seconds=LINGER + 1))
    stage.emit(CREATED)
    stream = await stage.open(last)
    await anext(stream)
    async with bounded():
        assert b"event: reset" in await anext(stream)
    await stream.aclose()


async def test_a_stream_without_an_event_of_its_kinds_is_kept_alive(stage: Stage) -> None:
    stream = await stage.open(kinds="upstream")
    await anext(stream)
    async with bounded():
        stage.emit(CREATED)
        assert await anext(stream) == b""
        stage.clock.advance(timedelta(seconds=KEEP_ALIVE))
        stage.emit(CREATED)
        assert await anext(stream) == b": keep-alive\n\n"
        stage.emit(CREATED)
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
