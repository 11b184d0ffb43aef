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
from taskgate.operators.events import LINGER, MOST_EVENTS, MOST_STREAMS, EventFeed, EventQuery, EventRoutes, ResetEvent
from taskgate.operators.refusals import RefusalLog
from taskgate.operators.routes import Answer, ApiCall, EventStream
from taskgate.operators.tasks import TaskItem
from taskgate.telemetry import events
from taskgate.telemetry.ring import EventRing

SAID = ResetEvent(reason="said")
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
    assert feed.after(2) is None
    assert feed.after(3) == []
    feed.publish("task", SAID)
    assert [number for number, _, _ in feed.after(3) or ()] == [4]


@pytest.mark.parametrize(
    ("id", "place"), [("one-2", 2), ("one-4", None), ("two-2", None), ("one--1", None), ("one-²", None), ("", None)]
)
def test_an_id_is_of_one_process(id: str, place: int | None) -> None:
    assert filled(3).place_of(id) == place


class Stage(NamedTuple):
    """The route of events over a ring."""

    ring: EventRing
    clock: ManualClock
    routes: EventRoutes
    shown: list[Any]

    async def open(self, last: str | None = None, is_allowed: Callable[[], bool] = lambda: True) -> EventStream:
        [route] = self.routes.routes()
        operator = Operator("looks", Role.VIEWER)
        call = ApiCall(operator=operator, parameters={}, query=EventQuery(), body=None, last_event=last,
                       is_allowed=is_allowed)  # fmt: skip
        stream = await route.handler(call)
        assert not isinstance(stream, Answer)
        return stream


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
    created = events.TaskCreated(new_record(), None)

    def emitted() -> int:
        stage.ring.emit(created)
        stage.ring.fold()
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
    for number in range(MOST_EVENTS + 1):
        stage.ring.emit(events.QueueRefused(f"server-{number}", "full"))
    stage.ring.fold()
    async with bounded():
        assert (await anext(stream)).splitlines()[1:] == [b"event: reset", b'data: {"reason":"missed"}', b""]
        # It goes on with what comes then.
        stage.ring.emit(events.QueueRefused("another", "full"))
        stage.ring.fold()
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
        stage.ring.emit(events.QueueRefused("reports", "full"))
        stage.ring.fold()
    async with bounded():
        parts = [await anext(stream) for _ in range(3)]
    assert [b'"count":1' in parts[0], b'"count":3' in parts[1], parts[2]] == [True, True, b""]
    await stream.aclose()


async def test_streams_are_bounded_and_end_with_their_permission(stage: Stage) -> None:
    allowed = [True]
    streams = [await stage.open(is_allowed=lambda: allowed[0]) for _ in range(MOST_STREAMS)]
    for stream in streams:
        await anext(stream)
    with pytest.raises(ApiError) as refused:
        await stage.open()
    assert (refused.value.status, refused.value.code) == (503, "too_many_streams")
    allowed.clear()
    allowed.append(False)
    async with bounded():
        for stream in streams:
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
    assert await stage.open() is not None
