"""What the file brings: starts after an end, a full disk, damage, and what must not run on the event loop."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import HOLDER, OWNER, after, in_text, keep, new_lease, new_record, new_session
from helpers.waiting import bounded
from taskgate.domain.events import CallSucceeded, Dispatched, Progressed
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.listing import Position, TaskFilter, TaskOrder
from taskgate.domain.record import TaskStatus
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import TaskWatch
from taskgate.stores.sqlite import statements as sql
from taskgate.stores.sqlite.file import OpenFile, SqliteOptions, open_file
from taskgate.stores.sqlite.queries import page_statement
from taskgate.stores.sqlite.store import LARGE, SqliteStore

FAR_OFF = EPOCH + timedelta(days=365)
ENDED = CallSucceeded(result='{"content":[]}', tool_error=False)


class Place:
    """A file, and the store in it, which can be opened again."""

    def __init__(self, path: Path) -> None:
        self.options = SqliteOptions(
            path=path, synchronous="FULL", busy_timeout=timedelta(seconds=5), max_size=64 * 1024 * 1024
        )
        self.file: OpenFile
        self.store: SqliteStore
        self.open()

    def open(self, **changes: Any) -> SqliteStore:
        self.file = open_file(replace(self.options, **changes))
        self.store = SqliteStore(self.file)
        return self.store

    async def reopen(self, **changes: Any) -> SqliteStore:
        async with bounded():
            await self.store.close()
        return self.open(**changes)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path / "taskgate.db")
    yield made
    async with bounded():
        await made.store.close()


# --- a new start -----------------------------------------------------------------------------------------------------


async def test_a_new_start_finds_everything(place: Place) -> None:
    ended, running, session = new_record(params='"\ud800"'), new_record(lease=new_lease(until=FAR_OFF)), new_session()
    await keep(place.store, ended, running)
    await place.store.put(session)
    assert await place.store.swap(after(ended, ENDED), expected=0)
    store = await place.reopen()
    assert await store.load(OWNER, ended.id, now=EPOCH, bodies=True) == after(ended, ENDED)
    assert await store.load(OWNER, running.id, now=EPOCH, bodies=True) == replace(running, lease=None)
    assert await store.find(OWNER, session.id, now=EPOCH) == session


async def test_a_new_start_finds_every_lease_of_an_earlier_process_lapsed(place: Place) -> None:
    running, ended = new_record(lease=new_lease(until=FAR_OFF)), new_record(status=TaskStatus.COMPLETED)
    await keep(place.store, running, ended)
    store = await place.reopen()
    (taken,) = await store.lapsed(holder="next", until=FAR_OFF, now=EPOCH, limit=9)
    assert taken == replace(running, lease=new_lease(holder="next", until=FAR_OFF))
    assert await store.lapsed(holder="third", until=FAR_OFF, now=EPOCH, limit=9) == ()


async def test_an_end_that_an_earlier_process_did_not_see_is_no_news_of_its_lease(place: Place) -> None:
    record = new_record(lease=new_lease(until=FAR_OFF))
    await keep(place.store, record)
    store = await place.reopen()
    await store.renew(HOLDER, frozenset({record.id}), FAR_OFF)
    head = await store.load(OWNER, record.id, now=EPOCH)
    assert head is not None
    assert head.lease is None


async def test_a_close_folds_the_log_into_the_file(place: Place) -> None:
    await keep(place.store, new_record())
    await place.store.close()
    assert {part.name for part in place.options.path.parent.iterdir()} == {"taskgate.db", "taskgate.db.lock"}


# --- shared commits --------------------------------------------------------------------------------------------------


async def test_many_inserts_and_swaps_share_commits(place: Place) -> None:
    said: list[str] = []
    place.file.writer.set_trace_callback(said.append)
    records = [new_record() for _ in range(100)]
    caps = (Cap(scope=CapScope.CONTEXT, limit=1000),)
    await asyncio.gather(*(place.store.insert(record, caps=caps) for record in records))
    await asyncio.gather(*(place.store.swap(after(record, ENDED), expected=0) for record in records))
    assert said.count("COMMIT") <= 4


async def test_a_record_that_cannot_be_written_harms_no_other(place: Place) -> None:
    taken, others = new_record(), [new_record() for _ in range(5)]
    await keep(place.store, taken)
    ends = await asyncio.gather(
        *(place.store.insert(record, caps=()) for record in (others[0], new_record(id="\ud800"), taken, *others[1:])),
        return_exceptions=True,
    )
    assert [type(end) for end in ends] == [str, StoreUnavailable, StoreUnavailable, *[str] * 4]
    for record in others:
        assert await place.store.load(OWNER, record.id, now=EPOCH, bodies=True) == record


# --- a full disk -----------------------------------------------------------------------------------------------------


async def test_a_full_disk_refuses_and_what_was_kept_goes_on(place: Place) -> None:
    store = await place.reopen(max_size=256 * 1024)
    body = '"' + "x" * 60_000 + '"'
    kept, refused = [], None
    for _ in range(10):
        record = new_record(params=body, ttl=timedelta(seconds=1))
        try:
            await keep(store, record)
        except StoreUnavailable:
            refused = record
            break
        kept.append(record)
    assert refused is not None
    assert kept
    assert await store.load(OWNER, refused.id, now=EPOCH) is None
    for record in kept:
        assert await store.load(OWNER, record.id, now=EPOCH, bodies=True) == record
    assert await store.swap(after(kept[0], Progressed(message="half")), expected=0)
    assert len(await store.purge(now=kept[0].expires_at, limit=99)) == len(kept)
    await keep(store, refused)
    assert await store.load(OWNER, refused.id, now=EPOCH, bodies=True) == refused


async def test_a_swap_that_does_not_fit_is_undone_whole(place: Place) -> None:
    record = new_record()
    await keep(place.store, record)
    store = await place.reopen(max_size=128 * 1024)
    large = after(record, CallSucceeded(result="x" * 500_000, tool_error=False))
    with pytest.raises(StoreUnavailable):
        await store.swap(large, expected=0)
    assert await store.load(OWNER, record.id, now=EPOCH, bodies=True) == record
    assert await store.swap(after(record, ENDED), expected=0)


# --- damage ----------------------------------------------------------------------------------------------------------


async def test_a_count_of_what_is_unknown_is_refused(place: Place) -> None:
    await keep(place.store, new_record())
    place.file.writer.execute("UPDATE tasks SET status = 'paused'")
    with pytest.raises(StoreUnavailable):
        await place.store.census()


async def test_a_table_that_is_gone_is_a_store_that_is_unavailable(place: Place) -> None:
    record = new_record()
    await keep(place.store, record)
    place.file.writer.executescript("DROP TABLE tasks; DROP TABLE sessions")
    store = place.store
    for verb in (
        store.load(OWNER, record.id, now=EPOCH),
        store.find(OWNER, "id", now=EPOCH),
        store.changed(TaskWatch(id=record.id, revision=0), timeout=timedelta()),
        store.page(OWNER, where=TaskFilter(), order=TaskOrder(), after=None, limit=1, now=EPOCH),
        store.census(),
        store.insert(new_record(), caps=()),
        store.swap(after(record, Dispatched()), expected=0),
        store.purge(now=EPOCH, limit=1),
    ):
        with pytest.raises(StoreUnavailable):
            await verb


# --- the event loop --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "is_near"), [(LARGE, True), (LARGE + 1, False)])
async def test_large_bodies_are_read_off_the_event_loop(place: Place, size: int, is_near: bool) -> None:
    record = new_record(params="p" * 100)
    await keep(place.store, record)
    ended = after(record, CallSucceeded(result="x" * (size - 100), tool_error=False))
    assert await place.store.swap(ended, expected=0)
    near: list[str] = []
    far: list[str] = []
    place.file.near.set_trace_callback(near.append)
    place.file.far.set_trace_callback(far.append)
    assert in_text(await place.store.load(OWNER, record.id, now=EPOCH, bodies=True)) == ended
    # Off the loop in one transaction, for its outcome is read apart.
    assert (len(near), len(far)) == ((2, 0) if is_near else (1, 3))


async def test_counts_are_read_off_the_event_loop(place: Place) -> None:
    near: list[str] = []
    place.file.near.set_trace_callback(near.append)
    await place.store.census()
    assert near == []


async def test_no_read_holds_the_log(place: Place) -> None:
    """A snapshot that stayed open would let the log grow for ever."""
    record = new_record()
    await keep(place.store, record)
    await place.store.put(session := new_session())
    await place.store.load(OWNER, record.id, now=EPOCH, bodies=True)
    await place.store.find(OWNER, session.id, now=EPOCH)
    await place.store.page(OWNER, where=TaskFilter(), order=TaskOrder(), after=None, limit=1, now=EPOCH)
    await place.store.census()
    await keep(place.store, new_record())
    assert place.file.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


# --- the plans -------------------------------------------------------------------------------------------------------

PAGE, PAGE_VALUES = page_statement(OWNER, TaskFilter(), TaskOrder(), Position(EPOCH, "id"), 5, EPOCH)
STATEMENTS = {
    "unfinished": (sql.UNFINISHED, ()),
    "unmoved": (sql.UPDATE_UNCHANGED, (0, 1, b"", "id", 0, "working", 0, "p", 0)),
    "swapped": (sql.FIND_SWAPPED, ("id", 0)),
    "head": (sql.LOAD_HEAD, ("id", b"", 0)),
    "whole": (sql.LOAD_WHOLE, ("id", b"", 0)),
    "revision": (sql.REVISION, ("id",)),
    "expired": (sql.EXPIRED, (0, 1)),
    "lapsed": (sql.LAPSED, {"now": 0, "created": 0, "seq": 0, "limit": 1}),
    "taken": (sql.TAKEN, (1,)),
    "params": (sql.LOAD_PARAMS, (1,)),
    "renew": (sql.RENEW, (0, "p", b"[]")),
    "page": (PAGE, PAGE_VALUES),
    "session": (sql.FIND_SESSION, ("id", b"", 0)),
    "touch": (sql.TOUCH_SESSIONS, (0, b"[]")),
    "purge sessions": (sql.PURGE_SESSIONS, (0,)),
}


@pytest.mark.parametrize(("statement", "values"), STATEMENTS.values(), ids=STATEMENTS)
async def test_no_statement_looks_through_a_whole_table(place: Place, statement: str, values: Any) -> None:
    plan = [row[3] for row in place.file.writer.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()]
    assert any(step.startswith("SEARCH") for step in plan)
    assert not [step for step in plan if step.startswith(("SCAN tasks", "SCAN sessions", "SCAN params"))]
