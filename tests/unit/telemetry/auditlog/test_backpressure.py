"""Who waits for room, who is let go, and in which order."""

import asyncio
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from helpers.waiting import bounded
from taskgate.telemetry.auditlog.backpressure import MAX_WEIGHT, Backpressure, EventBuffer
from taskgate.telemetry.auditlog.events import internal_event
from unit.telemetry.auditlog.audit_cases import NOW

EVENT = internal_event("gateway.started", NOW)


def filled(count: int, size: int = 16) -> EventBuffer:
    queue = EventBuffer(size, lambda _reason, _lines: None)
    for _ in range(count):
        queue.add(EVENT)
    return queue


def room_in(*queues: EventBuffer, timeout: timedelta = timedelta(minutes=5)) -> Backpressure:
    room = Backpressure()
    room.configure(queues, "block", timeout)
    return room


async def begun(room: Backpressure, count: int) -> list["asyncio.Task[bool]"]:
    waiting = [asyncio.create_task(room.room()) for _ in range(count)]
    await asyncio.sleep(0)
    return waiting


async def test_who_left_takes_nobodys_place() -> None:
    queue = filled(12)
    room = room_in(queue)
    leaving, staying = await begun(room, 2)
    leaving.cancel()
    await asyncio.wait((leaving,))
    # Room for one alone.
    queue.take(1)
    queue.done()
    room.on_room()
    async with bounded():
        assert await staying


async def test_who_came_first_goes_first() -> None:
    queue = filled(12)
    room = room_in(queue)
    first, second = await begun(room, 2)
    queue.take(1)
    queue.done()
    room.on_room()
    async with bounded():
        assert await first
    assert not second.done()
    room.configure((), "block", timedelta())
    async with bounded():
        assert await second


async def test_the_fullest_queue_decides() -> None:
    empty, full = filled(0), filled(12)
    room = room_in(empty, full)
    assert room.is_full
    (waiting,) = await begun(room, 1)
    room.on_room()
    await asyncio.sleep(0)
    assert not waiting.done()
    full.close()
    room.on_room()
    async with bounded():
        assert await waiting


async def test_without_queues_there_is_room() -> None:
    room = room_in()
    room.on_room()
    assert (room.is_full, await room.room()) == (False, True)


def test_a_buffer_is_crowded_from_three_quarters_until_enough_is_written() -> None:
    queue = filled(11)
    room = room_in(queue)
    assert not room.is_full
    queue.add(EVENT)
    assert room.is_full
    queue.take(1)
    assert room.is_full
    queue.done()
    assert not room.is_full


def test_another_size_or_a_forced_event_may_crowd_a_buffer() -> None:
    queue = filled(11)
    room = room_in(queue)
    queue.force(EVENT)
    assert room.is_full
    queue.resize(17)
    assert not room.is_full
    queue.resize(12)
    assert room.is_full


def test_a_buffer_tells_whether_a_batch_would_crowd_it_until_it_is_closed() -> None:
    buffer = EventBuffer(20, lambda _reason, _lines: None)
    buffer.extend([EVENT] * 10)
    assert [buffer.is_crowded_with(count) for count in (0, 4, 5)] == [False, False, True]
    buffer.extend([EVENT] * 5)
    assert buffer.is_crowded_with(0)
    buffer.close()
    assert not buffer.is_crowded_with(1)


# Parts of what a buffer holds: two of the largest fill it.
WEIGHTS = st.sampled_from([0, 0, MAX_WEIGHT * 3 // 40, MAX_WEIGHT // 2])


@given(st.integers(1, 24), st.lists(st.lists(WEIGHTS, max_size=12), max_size=6))
def test_events_of_a_batch_are_stored_or_dropped_as_one_after_the_other(size: int, batches: list[list[int]]) -> None:
    """`batches` are the weights of the events of each batch."""
    dropped: list[list[tuple[str, int]]] = [[], []]
    woken = [0, 0]
    buffers = [EventBuffer(size, lambda reason, lines, to=to: to.append((reason, lines))) for to in dropped]  # type: ignore[misc]
    for batch in batches:
        for at, buffer in enumerate(buffers):
            buffer.on_next = lambda at=at: woken.__setitem__(at, woken[at] + 1)  # type: ignore[misc]
        events = [EVENT._replace(weight=weight, data={"at": at}) for at, weight in enumerate(batch)]
        buffers[0].extend(events)
        for event in events:
            buffers[1].add(event)
        assert dropped[0] == dropped[1]
        assert woken[0] == woken[1]
        one, other = buffers
        assert (one.waiting, one.is_crowded, one.losses) == (other.waiting, other.is_crowded, other.losses)
        if len(one) > size // 2:
            assert one.take(3) == other.take(3)
            assert one.done() == other.done()
