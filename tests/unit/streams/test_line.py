"""What waits for one connection: what counts against its bound, and when whoever can should say nothing more."""

import asyncio

import pytest

from helpers.waiting import bounded
from taskgate.streams.sse_connection import SseConnection

TEN = b"0123456789"


@pytest.fixture
async def line() -> SseConnection:
    """A line where forty bytes may wait."""
    return SseConnection(40)


async def test_what_is_loaded_leaves_the_bound_to_others_but_is_waited_for(line: SseConnection) -> None:
    line.load([TEN, TEN])
    assert line.is_clogged
    assert all(line.put(TEN) for _ in range(4))
    assert not line.put(TEN)


async def test_a_piece_above_the_bound_is_taken_behind_a_small_one_and_none_after_it(line: SseConnection) -> None:
    assert line.put(b"id")
    assert line.put(TEN * 5)
    assert not line.put(TEN)
    async with bounded():
        assert [await line.next(5) for _ in range(2)] == [b"id", TEN * 5]
    assert line.put(TEN)


async def test_there_is_room_again_when_most_of_what_was_loaded_has_left(line: SseConnection) -> None:
    line.load([TEN, TEN])
    room = asyncio.create_task(line.room())
    await asyncio.sleep(0)
    async with bounded():
        assert await line.next(5) == TEN
        await asyncio.sleep(0)
        assert not room.done()
        assert await line.next(5) == TEN
        await room
    assert not line.is_clogged


async def test_who_waits_for_room_is_let_on_at_the_end(line: SseConnection) -> None:
    line.load([TEN, TEN])
    room = asyncio.create_task(line.room())
    await asyncio.sleep(0)
    line.end(TEN)
    async with bounded():
        await room
        assert [await line.next(5) for _ in range(4)] == [TEN, TEN, TEN, None]
    assert line.drained
    assert not line.is_clogged


async def test_nothing_waits_for_a_line_that_was_cut(line: SseConnection) -> None:
    line.load([TEN, TEN])
    line.cut()
    assert line.drained
    assert not line.is_clogged
