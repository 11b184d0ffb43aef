"""Reads: short ones on the event loop, long ones on a thread."""

import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.waiting import bounded
from taskgate.errors import StoreUnavailable
from taskgate.stores.sqlite.reader import SqliteReader

COUNT = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ?) SELECT count(*) FROM n"


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[SqliteReader]:
    near, far = (sqlite3.connect(tmp_path / "file", check_same_thread=False) for _ in range(2))
    made = SqliteReader(near, far)
    yield made
    async with bounded():
        await made.close()


class Counting:
    """Counts to a number, and remembers which threads it was asked on."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.on_loop: list[bool] = []

    def __call__(self, connection: sqlite3.Connection) -> int:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        return int(connection.execute(COUNT, (self.number,)).fetchone()[0])


async def test_a_short_look_is_on_the_loop(reader: SqliteReader) -> None:
    look = Counting(100)
    for _ in range(50):
        # Each anew: what the ones before took is not counted.
        assert await reader.glance(look) == 100
    assert set(look.on_loop) == {True}


async def test_a_long_look_is_given_up_on_the_loop_and_had_on_the_thread(reader: SqliteReader) -> None:
    look = Counting(100_000)
    async with bounded():
        assert await reader.glance(look) == 100_000
    assert look.on_loop == [True, False]


async def test_what_was_given_up_keeps_nothing_else_from_being_read(reader: SqliteReader) -> None:
    async with bounded():
        await reader.glance(Counting(100_000))
    assert reader.row(COUNT, (100_000,)) == (100_000,)


async def test_what_fails_in_both_places_is_no_store(reader: SqliteReader) -> None:
    with pytest.raises(StoreUnavailable):
        async with bounded():
            await reader.glance(lambda connection: connection.execute("SELECT nonsense"))


async def test_a_closed_reader_is_no_store(tmp_path: Path) -> None:
    near, far = (sqlite3.connect(tmp_path / "file", check_same_thread=False) for _ in range(2))
    made = SqliteReader(near, far)
    async with bounded():
        await made.close()
    with pytest.raises(StoreUnavailable):
        await made.glance(Counting(1))
