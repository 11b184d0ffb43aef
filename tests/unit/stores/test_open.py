"""The choice and the opening of a store, and what a killed process leaves in the file."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER
from helpers.waiting import PATIENCE, bounded, eventually
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import Store
from taskgate.stores.memory import MemoryStore
from taskgate.stores.open import SqliteOptions, open_store
from taskgate.stores.references import ReferenceOf
from taskgate.stores.sqlite.file import OpenFile, open_file
from taskgate.stores.sqlite.store import SqliteStore

WRITER = """
import asyncio, sys
from datetime import timedelta
from pathlib import Path
from helpers.records import new_record, new_lease, after
from helpers.manual_clock import EPOCH
from taskgate.stores.open import SqliteOptions, open_store
from taskgate.domain.events import CallSucceeded

async def write(store, number):
    while True:
        record = new_record(lease=new_lease(until=EPOCH + timedelta(days=9)))
        await store.insert(record, caps=())
        print(record.id, 0, flush=True)
        if number % 2:
            ended = after(record, CallSucceeded(result=record.id, tool_error=False))
            assert await store.swap(ended, expected=0)
            print(record.id, 1, flush=True)

async def main():
    options = SqliteOptions(
        path=Path(sys.argv[1]), synchronous="FULL", busy_timeout=timedelta(seconds=1), max_size=1 << 30)
    store = await open_store("sqlite", options)
    await asyncio.gather(*(write(store, number) for number in range(8)))

asyncio.run(main())
"""


@pytest.fixture
def options(tmp_path: Path) -> SqliteOptions:
    return SqliteOptions(
        path=tmp_path / "taskgate.db", synchronous="FULL", busy_timeout=timedelta(seconds=1), max_size=1 << 30
    )


async def test_the_backend_that_is_named_is_opened(options: SqliteOptions) -> None:
    memory, sqlite = await open_store("memory", None), await open_store("sqlite", options)
    assert isinstance(memory, MemoryStore)
    assert isinstance(sqlite, SqliteStore)
    await memory.close()
    await sqlite.close()


async def test_a_second_store_in_the_file_is_refused_until_the_first_is_closed(options: SqliteOptions) -> None:
    first = await open_store("sqlite", options)
    with pytest.raises(StoreUnavailable, match="in use by another process"):
        await open_store("sqlite", options)
    await first.close()
    second = await open_store("sqlite", options)
    await second.close()


class HeldOpening:
    """`open_file`, made to wait until the test lets it go on; it then opens the file, or is refused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.opened: list[OpenFile] = []
        monkeypatch.setattr("taskgate.stores.open.open_file", self)

    def __call__(self, options: SqliteOptions, reference_of: ReferenceOf) -> OpenFile:
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        try:
            file = open_file(options, reference_of)
            self.opened.append(file)
            return file
        finally:
            self.ended.set()


def is_free(options: SqliteOptions) -> bool:
    try:
        open_file(options).close()
    except StoreUnavailable:
        return False
    return True


async def give_up(opening: "asyncio.Task[Store]") -> None:
    opening.cancel()
    async with bounded():
        await asyncio.wait([opening])
    assert opening.cancelled()


async def test_an_opening_that_is_given_up_leaves_the_file_to_others(
    options: SqliteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldOpening(monkeypatch)
    opening = asyncio.create_task(open_store("sqlite", options))
    await eventually(held.begun.is_set)
    # The thread is still at it: who gives up does not wait for that.
    await give_up(opening)
    held.go_on.set()
    await eventually(held.ended.is_set)
    await eventually(lambda: is_free(options))
    (file,) = held.opened
    for connection in (file.writer, file.near, file.far):
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
    assert {part.name for part in options.path.parent.iterdir()} == {"taskgate.db", "taskgate.db.lock"}


async def test_an_opening_that_is_given_up_when_it_is_done_leaves_the_file_to_others(
    options: SqliteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldOpening(monkeypatch)
    held.go_on.set()
    opening = asyncio.create_task(open_store("sqlite", options))
    await asyncio.sleep(0)
    # The loop stands still meanwhile, so that the news of the end and the cancellation meet.
    assert held.ended.wait(PATIENCE)
    await give_up(opening)
    await eventually(lambda: is_free(options))


async def test_an_opening_that_is_given_up_and_then_refused_says_nothing(
    options: SqliteOptions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = open_file(options)
    held = HeldOpening(monkeypatch)
    opening = asyncio.create_task(open_store("sqlite", options))
    await eventually(held.begun.is_set)
    await give_up(opening)
    held.go_on.set()
    await eventually(held.ended.is_set)
    first.close()
    assert caplog.records == []


def test_an_opening_outlives_its_loop_and_leaves_the_file_to_others(
    options: SqliteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldOpening(monkeypatch)

    async def give_up_early() -> None:
        opening = asyncio.create_task(open_store("sqlite", options))
        await eventually(held.begun.is_set)
        await give_up(opening)

    asyncio.run(give_up_early())
    held.go_on.set()
    assert held.ended.wait(PATIENCE)
    asyncio.run(eventually(lambda: is_free(options)))


@pytest.mark.kill
@pytest.mark.program
async def test_everything_acknowledged_is_there_after_a_kill(options: SqliteOptions) -> None:
    command = [sys.executable, "-c", WRITER, str(options.path)]
    place = {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=place) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(500)]
        process.kill()
        # What was said before the kill came, too; a last line may be torn.
        lines += [line for line in process.stdout if line.endswith("\n")]
    acknowledged: dict[str, int] = {}
    for line in lines:
        id, revision = line.split()
        acknowledged[id] = int(revision)
    assert len(acknowledged) > 100

    store = await open_store("sqlite", options)
    async with bounded():
        for id, revision in acknowledged.items():
            record = await store.load(OWNER, id, now=EPOCH, bodies=True)
            assert record is not None
            assert record.revision >= revision
            assert record.lease is None
            assert (record.outcome is not None) == (record.revision == 1)
        lapsed = await store.lapsed(holder="next", until=EPOCH, now=EPOCH, limit=10_000)
        assert {id for id, revision in acknowledged.items() if revision == 1}.isdisjoint(head.id for head in lapsed)
        await store.close()
