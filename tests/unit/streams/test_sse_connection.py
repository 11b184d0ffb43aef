"""What waits for one connection: what counts against its bound, and when whoever can should say nothing more."""

import asyncio
from collections.abc import AsyncIterator

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
    room = connection.writable()
    async with bounded():
        assert await connection.receive(5) == TEN
        assert not room.done()
        assert await connection.receive(5) == TEN
        await room
    assert not connection.is_congested


async def test_who_waits_for_room_is_let_on_at_the_end(connection: SseConnection) -> None:
    connection.send_unbounded([TEN, TEN])
    room = connection.writable()
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


async def test_pieces_that_wait_are_read_as_one_and_no_more_than_fit() -> None:
    connection = SseConnection(joined=25)
    for _ in range(3):
        assert connection.send(TEN)
    assert connection.send(b"end")
    async with bounded():
        assert [await connection.receive(10) for _ in range(2)] == [TEN * 2, TEN + b"end"]


class Direct:
    """A connection whose reader waits, with the pieces that went past it. `takes`: such a piece is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.takes = True
        self.connection = SseConnection(40, joined=25, write_through=self._write)
        self.reader = asyncio.create_task(self.connection.receive(10))

    def _write(self, piece: bytes) -> bool:
        if self.takes:
            self.written.append(piece)
        return self.takes


@pytest.fixture
async def direct() -> AsyncIterator[Direct]:
    direct = Direct()
    await asyncio.sleep(0)
    yield direct
    direct.reader.cancel()
    await asyncio.wait([direct.reader])


async def test_pieces_of_one_turn_are_written_as_one_past_the_reader(direct: Direct) -> None:
    connection = direct.connection
    assert connection.send(b"alone")
    for _ in range(2):
        connection.more_follows()
        assert connection.send(TEN)
    assert connection.send(b"end")
    assert direct.written == [b"alone"]
    assert connection.is_congested
    room = connection.writable()
    await asyncio.sleep(0)
    assert direct.written == [b"alone", TEN * 2 + b"end"]
    assert room.done()
    assert not connection.has_pieces
    # The news is about one turn.
    assert connection.send(b"alone")
    assert direct.written[2:] == [b"alone"]
    assert not direct.reader.done()


@pytest.mark.parametrize("is_slow", [True, False], ids=["a slow host", "too much"])
async def test_pieces_of_one_turn_are_left_to_the_reader_if_they_cannot_be_written(
    direct: Direct, is_slow: bool
) -> None:
    direct.takes = not is_slow
    direct.connection.more_follows()
    pieces = [TEN] * 2 if is_slow else [TEN] * 3
    assert all(map(direct.connection.send, pieces))
    async with bounded():
        assert await direct.reader == TEN * 2
    assert direct.written == []


async def test_a_connection_that_ends_in_that_turn_sends_what_waits_by_its_reader(direct: Direct) -> None:
    direct.connection.more_follows()
    assert direct.connection.send(TEN)
    direct.connection.close(b"last")
    async with bounded():
        assert await direct.reader == TEN + b"last"
    assert direct.connection.is_drained
    assert direct.written == []


async def test_a_turn_in_which_no_piece_follows_after_all_writes_nothing(direct: Direct) -> None:
    direct.connection.more_follows()
    await asyncio.sleep(0)
    assert direct.written == []
    assert direct.connection.send(TEN)
    assert direct.written == [TEN]
