"""What waits for one connection: what counts against its bound, and when whoever can should say nothing more."""

import asyncio

import pytest

from helpers.waiting import bounded
from taskgate.streams.sse_connection import SseConnection

TEN = b"0123456789"


@pytest.fixture
async def connection() -> SseConnection:
    """A connection where forty bytes may wait."""
    return SseConnection(40)


async def test_what_is_loaded_leaves_the_bound_to_others_but_is_waited_for(connection: SseConnection) -> None:
    connection.send_unbounded([TEN, TEN])
    assert connection.is_congested
    assert all(connection.send(TEN) for _ in range(4))
    assert not connection.send(TEN)


async def test_a_piece_above_the_bound_is_taken_behind_a_small_one_and_none_after_it(connection: SseConnection) -> None:
    assert connection.send(b"id")
    assert connection.send(TEN * 5)
    assert not connection.send(TEN)
    async with bounded():
        assert [await connection.receive(5) for _ in range(2)] == [b"id", TEN * 5]
    assert connection.send(TEN)


async def test_there_is_room_again_when_most_of_what_was_loaded_has_left(connection: SseConnection) -> None:
    connection.send_unbounded([TEN, TEN])
    room = asyncio.create_task(connection.wait_writable())
    await asyncio.sleep(0)
    async with bounded():
        assert await connection.receive(5) == TEN
        await asyncio.sleep(0)
        assert not room.done()
        assert await connection.receive(5) == TEN
        await room
    assert not connection.is_congested


async def test_who_waits_for_room_is_let_on_at_the_end(connection: SseConnection) -> None:
    connection.send_unbounded([TEN, TEN])
    room = asyncio.create_task(connection.wait_writable())
    await asyncio.sleep(0)
    connection.close(TEN)
    async with bounded():
        await room
        assert [await connection.receive(5) for _ in range(4)] == [TEN, TEN, TEN, None]
    assert connection.is_drained
    assert not connection.is_congested


async def test_nothing_waits_for_a_line_that_was_cut(connection: SseConnection) -> None:
    connection.send_unbounded([TEN, TEN])
    connection.abort()
    assert connection.is_drained
    assert not connection.is_congested
