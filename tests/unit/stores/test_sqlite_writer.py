"""The writing thread: shared commits, and a failure that stays with the one it belongs to."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from helpers.waiting import PATIENCE, bounded
from taskgate.errors import StoreUnavailable, TooManyTasks
from taskgate.stores.sqlite_writer import Writer


class Bench:
    """A writer over a small table, what it said to SQLite, and what another connection sees."""

    def __init__(self, path: Path) -> None:
        self.said: list[str] = []
        connection = self.connect(path)
        connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA foreign_keys = ON; CREATE TABLE seen (x UNIQUE);"
            "CREATE TABLE orphans (x REFERENCES seen (x) DEFERRABLE INITIALLY DEFERRED)"
        )
        connection.set_trace_callback(self.said.append)
        self.connection = connection
        self.other = self.connect(path)
        self.writer = Writer(connection, asyncio.get_running_loop())

    @staticmethod
    def connect(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    @property
    def commits(self) -> int:
        return self.said.count("COMMIT")

    def seen(self) -> list[object]:
        return [x for (x,) in self.other.execute("SELECT x FROM seen ORDER BY x").fetchall()]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "seen.db")
    yield made
    async with bounded():
        await made.writer.close()
    made.other.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds the thread until it is set; opened at the end in any case."""
    made = threading.Event()
    yield made
    made.set()


def adds(x: object) -> Callable[[sqlite3.Cursor], object]:
    def work(cursor: sqlite3.Cursor) -> object:
        cursor.execute("INSERT INTO seen VALUES (?)", (x,))
        return x

    return work


def waits_for(gate: threading.Event) -> Callable[[sqlite3.Cursor], object]:
    return lambda _: gate.wait(PATIENCE)


def refuses(_: sqlite3.Cursor) -> None:
    raise TooManyTasks(3)


async def ends(*futures: "asyncio.Future[object]") -> list[object]:
    async with bounded():
        return await asyncio.gather(*futures, return_exceptions=True)


async def test_works_of_one_turn_share_a_commit(bench: Bench) -> None:
    assert await ends(*(bench.writer.submit(adds(x)) for x in range(200))) == list(range(200))
    assert bench.commits == 1
    assert bench.seen() == list(range(200))


async def test_works_that_come_while_a_commit_runs_share_the_next(bench: Bench, gate: threading.Event) -> None:
    first = bench.writer.submit(waits_for(gate))
    later = []
    for x in range(50):
        await asyncio.sleep(0)
        later.append(bench.writer.submit(adds(x)))
    assert bench.commits == 0
    gate.set()
    await ends(first, *later)
    assert bench.commits == 2


async def test_a_commit_holds_a_bounded_number_of_works(bench: Bench) -> None:
    await ends(*(bench.writer.submit(adds(x)) for x in range(1100)))
    assert bench.commits == 3
    assert len(bench.seen()) == 1100


async def test_works_are_done_in_the_order_they_came(bench: Bench) -> None:
    done: list[int] = []
    await ends(*(bench.writer.submit(lambda _, x=x: done.append(x)) for x in range(700)))
    assert done == list(range(700))


async def test_work_is_seen_by_others_once_its_future_is_done_and_not_before(
    bench: Bench, gate: threading.Event
) -> None:
    added, held = bench.writer.submit(adds(1)), bench.writer.submit(waits_for(gate))
    await asyncio.sleep(0)
    assert not added.done()
    assert bench.seen() == []
    gate.set()
    await ends(added, held)
    assert bench.seen() == [1]


async def test_a_work_that_fails_fails_alone(bench: Bench) -> None:
    found = await ends(*(bench.writer.submit(adds(x)) for x in (1, 2, 2, 3)))
    assert [found[0], found[1], found[3]] == [1, 2, 3]
    assert isinstance(found[2], StoreUnavailable)
    assert isinstance(found[2].__cause__, sqlite3.IntegrityError)
    assert bench.seen() == [1, 2, 3]


async def test_what_a_failing_work_did_before_is_undone(bench: Bench) -> None:
    def half(cursor: sqlite3.Cursor) -> None:
        adds(7)(cursor)
        raise ValueError("halfway")

    found = await ends(bench.writer.submit(half), bench.writer.submit(adds(8)))
    assert isinstance(found[0], StoreUnavailable)
    assert bench.seen() == [8]


async def test_a_refusal_reaches_its_own_future_and_costs_no_second_commit(bench: Bench) -> None:
    found = await ends(bench.writer.submit(adds(1)), bench.writer.submit(refuses), bench.writer.submit(adds(2)))
    assert isinstance(found[1], TooManyTasks)
    assert bench.seen() == [1, 2]
    assert bench.commits == 1


async def test_a_commit_that_fails_fails_all_its_works_and_the_next_succeeds(bench: Bench) -> None:
    told: list[object] = []

    def orphan(cursor: sqlite3.Cursor) -> None:
        cursor.execute("INSERT INTO orphans VALUES (99)")

    found = await ends(bench.writer.submit(adds(1), told.append), bench.writer.submit(orphan))
    assert all(isinstance(end, StoreUnavailable) for end in found)
    assert told == []
    assert await ends(bench.writer.submit(adds(2))) == [2]
    assert bench.seen() == [2]


async def test_a_lock_of_somebody_else_is_a_store_that_is_unavailable(bench: Bench) -> None:
    bench.connection.execute("PRAGMA busy_timeout = 1")
    bench.other.execute("BEGIN IMMEDIATE")
    (end,) = await ends(bench.writer.submit(adds(1)))
    assert isinstance(end, StoreUnavailable)
    bench.other.execute("ROLLBACK")
    assert await ends(bench.writer.submit(adds(1))) == [1]


async def test_telling_comes_on_the_loop_before_the_future_is_done(bench: Bench) -> None:
    told: list[tuple[object, bool, bool]] = []

    def tell(value: object) -> None:
        told.append((value, future.done(), threading.current_thread() is threading.main_thread()))

    future = bench.writer.submit(adds(1), tell)
    await ends(future)
    assert told == [(1, False, True)]


async def test_telling_happens_although_nobody_waits_any_more(bench: Bench) -> None:
    told: list[object] = []
    bench.writer.submit(adds(1), told.append).cancel()
    await ends(bench.writer.submit(adds(2), told.append))
    assert told == [1, 2]
    assert bench.seen() == [1, 2]


@pytest.mark.parametrize("work", [adds(1), refuses], ids=["failing", "refused"])
async def test_nothing_is_told_of_what_was_not_done(bench: Bench, work: Callable[[sqlite3.Cursor], object]) -> None:
    await ends(bench.writer.submit(adds(1)))
    told: list[object] = []
    await ends(bench.writer.submit(work, told.append))
    assert told == []


async def test_a_failure_that_nobody_waits_for_is_silent(bench: Bench) -> None:
    bench.writer.submit(refuses).cancel()
    await ends(bench.writer.submit(adds(1)))


async def test_a_close_finishes_what_was_submitted_and_refuses_the_rest(bench: Bench) -> None:
    futures = [bench.writer.submit(adds(x)) for x in range(600)]
    async with bounded():
        closing = asyncio.gather(bench.writer.close(), bench.writer.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match="closed"):
            bench.writer.submit(adds(-1))
        await closing
    assert await ends(*futures) == list(range(600))
    assert bench.seen() == list(range(600))
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        bench.connection.execute("SELECT 1")
