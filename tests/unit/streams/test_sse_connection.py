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


async def test_pieces_that_come_together_are_read_as_one_and_no_more_than_fit() -> None:
    written: list[bytes] = []
    connection = SseConnection(write_through=lambda piece: not written.append(piece))
    reader = asyncio.create_task(connection.receive(10, joined=25))
    await asyncio.sleep(0)
    assert connection.send(b"alone")
    for _ in range(3):
        connection.more_follows = True
        assert connection.send(TEN)
    assert connection.send(b"end")
    async with bounded():
        assert [await reader, await connection.receive(10, joined=25)] == [TEN * 2, TEN + b"end"]
        again = asyncio.create_task(connection.receive(10, joined=25))
        await asyncio.sleep(0)
        # The news is about one piece: the last one of the read came as one that others had waited before.
        assert connection.send(b"alone")
        again.cancel()
    assert written == [b"alone", b"alone"]


async def test_a_piece_that_no_other_follows_after_all_waits_for_no_other() -> None:
    connection = SseConnection(write_through=lambda _: True)
    reader = asyncio.create_task(connection.receive(10, joined=25))
    await asyncio.sleep(0)
    connection.more_follows = True
    assert connection.send(TEN)
    async with bounded():
        assert await reader == TEN
