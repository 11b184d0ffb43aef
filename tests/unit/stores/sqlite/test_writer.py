"""The writer thread: shared commits, and failures that stay with their own work."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import PATIENCE, bounded
from taskgate.errors import StoreUnavailable
from taskgate.stores.sqlite.writer import SqliteWriter

LOCK_PATIENCE = 1.0
"""How long a work waits for a lock of somebody else, in seconds."""


class Bench:
    """A writer over a small table, what it said to SQLite, and what another connection sees."""

    def __init__(self, path: Path, *, is_brief: bool) -> None:
        self.is_brief = is_brief
        self.said: list[str] = []
        connection = self.connect(path)
        connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA foreign_keys = ON; CREATE TABLE seen (x UNIQUE);"
            "CREATE TABLE orphans (x REFERENCES seen (x) DEFERRABLE INITIALLY DEFERRED)"
        )
        connection.set_trace_callback(self.said.append)
        self.connection = connection
        self.other = self.connect(path)
        self.writer = SqliteWriter(connection, asyncio.get_running_loop())

    @staticmethod
    def connect(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=LOCK_PATIENCE, isolation_level=None, check_same_thread=False)

    def submit(
        self, work: Callable[[sqlite3.Cursor], object], tell: Callable[[object], None] | None = None, **how: Any
    ) -> "asyncio.Future[object]":
        return self.writer.submit(work, tell, **{"is_brief": self.is_brief, **how})

    @property
    def commits(self) -> int:
        return self.said.count("COMMIT")

    def seen(self) -> list[object]:
        return [x for (x,) in self.other.execute("SELECT x FROM seen ORDER BY x").fetchall()]


@pytest.fixture(params=[True, False], ids=["brief", "long"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench whose works are all brief, or all not, unless a test says otherwise."""
    made = Bench(tmp_path / "seen.db", is_brief=request.param)
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


def fails(_: sqlite3.Cursor) -> None:
    raise ValueError("halfway")


async def ends(*futures: "asyncio.Future[object]") -> list[object]:
    async with bounded():
        return await asyncio.gather(*futures, return_exceptions=True)


async def test_works_of_one_turn_share_a_commit(bench: Bench) -> None:
    assert await ends(*(bench.submit(adds(x)) for x in range(200))) == list(range(200))
    assert bench.commits == 1
    assert bench.seen() == list(range(200))


async def test_works_that_come_while_a_commit_runs_share_the_next(bench: Bench, gate: threading.Event) -> None:
    first = bench.submit(waits_for(gate), is_brief=False)
    later = []
    for x in range(50):
        await asyncio.sleep(0)
        later.append(bench.submit(adds(x)))
    assert bench.commits == 0
    gate.set()
    await ends(first, *later)
    assert bench.commits == 2


async def test_a_commit_holds_a_bounded_number_of_works(bench: Bench) -> None:
    await ends(*(bench.submit(adds(x)) for x in range(1100)))
    assert bench.commits == 5
    assert len(bench.seen()) == 1100


async def test_works_are_done_in_the_order_they_came(bench: Bench) -> None:
    done: list[int] = []
    await ends(*(bench.submit(lambda _, x=x: done.append(x)) for x in range(700)))
    assert done == list(range(700))


async def test_work_is_seen_by_others_once_its_future_is_done_and_not_before(
    bench: Bench, gate: threading.Event
) -> None:
    added, held = bench.submit(adds(1)), bench.submit(waits_for(gate), is_brief=False)
    await asyncio.sleep(0)
    assert not added.done()
    assert bench.seen() == []
    gate.set()
    await ends(added, held)
    assert bench.seen() == [1]


async def test_a_work_that_fails_fails_alone(bench: Bench) -> None:
    found = await ends(*(bench.submit(adds(x)) for x in (1, 2, 2, 3)))
    assert [found[0], found[1], found[3]] == [1, 2, 3]
    assert isinstance(found[2], StoreUnavailable)
    assert isinstance(found[2].__cause__, sqlite3.IntegrityError)
    assert bench.seen() == [1, 2, 3]


async def test_what_a_failing_work_did_before_is_undone(bench: Bench) -> None:
    def half(cursor: sqlite3.Cursor) -> None:
        adds(7)(cursor)
        raise ValueError("halfway")

    found = await ends(bench.submit(half), bench.submit(adds(8)))
    assert isinstance(found[0], StoreUnavailable)
    assert bench.seen() == [8]


async def test_a_commit_that_fails_fails_all_its_works_and_the_next_succeeds(bench: Bench) -> None:
    told: list[object] = []

    def orphan(cursor: sqlite3.Cursor) -> None:
        cursor.execute("INSERT INTO orphans VALUES (99)")

    found = await ends(bench.submit(adds(1), told.append), bench.submit(orphan))
    assert all(isinstance(end, StoreUnavailable) for end in found)
    assert told == []
    assert await ends(bench.submit(adds(2))) == [2]
    assert bench.seen() == [2]


async def test_a_lock_of_somebody_else_is_waited_for_and_then_is_a_store_that_is_unavailable(bench: Bench) -> None:
    bench.other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    (end,) = await ends(bench.submit(adds(1)))
    assert isinstance(end, StoreUnavailable)
    assert time.monotonic() - began > LOCK_PATIENCE / 2
    bench.other.execute("ROLLBACK")
    assert await ends(bench.submit(adds(1))) == [1]


async def test_a_lock_of_somebody_else_does_not_hold_the_loop(bench: Bench) -> None:
    await ends(bench.submit(adds(0), is_brief=False))
    bench.other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    added = bench.submit(adds(1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert time.monotonic() - began < LOCK_PATIENCE
    assert not added.done()
    bench.other.execute("ROLLBACK")
    assert await ends(added) == [1]


async def test_telling_comes_on_the_loop_before_the_future_is_done(bench: Bench) -> None:
    told: list[tuple[object, bool, bool]] = []

    def tell(value: object) -> None:
        told.append((value, future.done(), threading.current_thread() is threading.main_thread()))

    future = bench.submit(adds(1), tell)
    await ends(future)
    assert told == [(1, False, True)]


async def test_telling_happens_although_nobody_waits_any_more(bench: Bench) -> None:
    told: list[object] = []
    bench.submit(adds(1), told.append).cancel()
    await ends(bench.submit(adds(2), told.append))
    assert told == [1, 2]
    assert bench.seen() == [1, 2]


@pytest.mark.parametrize("waits", [True, False], ids=["waiting", "gone"])
async def test_what_was_not_done_is_told_as_undone(bench: Bench, waits: bool) -> None:
    told: list[object] = []
    done = bench.submit(adds(1), told.append, on_failure=lambda: told.append("undone 1"))
    failed = bench.submit(fails, told.append, on_failure=lambda: told.append("undone 2"))
    if not waits:
        failed.cancel()
    await ends(done, failed)
    assert told == [1, "undone 2"]


async def test_who_fails_when_told_harms_nobody_else_and_is_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(_: object = None) -> None:
        raise LookupError("told")

    told: list[object] = []
    found = await ends(
        bench.submit(adds(1), refuses),
        bench.submit(fails, told.append, on_failure=refuses),
        bench.submit(adds(2), told.append),
        bench.submit(fails, on_failure=lambda: told.append("undone")),
    )
    assert [found[0], found[2]] == [1, 2]
    assert [isinstance(end, StoreUnavailable) for end in found] == [False, True, False, True]
    assert told == [2, "undone"]
    assert await ends(bench.submit(adds(3), told.append)) == [3]
    records = [record for record in caplog.records if record.name == "taskgate.stores"]
    assert [(record.levelname, record.exc_info and record.exc_info[0]) for record in records] == [
        ("ERROR", LookupError)
    ] * 2


async def test_a_failure_that_nobody_waits_for_is_silent(bench: Bench) -> None:
    bench.submit(fails).cancel()
    await ends(bench.submit(adds(1)))


def is_on_the_loop(_: sqlite3.Cursor) -> object:
    return threading.current_thread() is threading.main_thread()


async def test_brief_works_are_done_on_the_loop(bench: Bench) -> None:
    assert await ends(*(bench.submit(is_on_the_loop, is_brief=True) for _ in range(3))) == [True] * 3


async def test_works_that_share_a_commit_with_one_that_is_not_brief_are_all_done_on_the_thread(bench: Bench) -> None:
    shared = [bench.submit(is_on_the_loop, is_brief=is_brief) for is_brief in (True, False, True)]
    assert await ends(*shared) == [False] * 3


async def test_a_commit_of_brief_works_is_waited_for_off_the_loop(bench: Bench) -> None:
    committed_by: list[object] = []
    bench.connection.set_trace_callback(
        lambda said: committed_by.append(threading.current_thread().name) if said == "COMMIT" else None
    )
    assert await ends(bench.submit(adds(1), is_brief=True)) == [1]
    assert committed_by == ["taskgate-store-writer"]


async def test_a_brief_work_that_fails_is_undone_before_others_are_done(bench: Bench) -> None:
    tries: list[int] = []

    def half(cursor: sqlite3.Cursor) -> object:
        tries.append(len(bench.seen()))
        adds(7)(cursor)
        raise ValueError("halfway")

    found = await ends(bench.submit(adds(1), is_brief=True), bench.submit(half, is_brief=True))
    assert found[0] == 1
    assert isinstance(found[1], StoreUnavailable)
    # On the loop, on the thread, and there once more by itself, when the first work was committed by itself.
    assert tries == [0, 0, 1]
    assert bench.seen() == [1]


async def test_a_close_finishes_what_was_submitted_and_refuses_the_rest(bench: Bench) -> None:
    futures = [bench.submit(adds(x)) for x in range(600)]
    async with bounded():
        closing = asyncio.gather(bench.writer.close(), bench.writer.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match="closed"):
            bench.submit(adds(-1))
        await closing
    assert await ends(*futures) == list(range(600))
    assert bench.seen() == list(range(600))
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        bench.connection.execute("SELECT 1")
