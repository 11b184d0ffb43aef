"""What a file tells the next process of room and of names, and what becomes of a name while its record is written."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_record
from helpers.waiting import bounded
from taskgate.domain.events import CallSucceeded
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.errors import StoreUnavailable, TooManyBytes, TooManyTasks
from unit.stores.places import Place

# What a file of the layout before this one lacks.
SECOND_LAYOUT = """
    DROP INDEX tasks_repeated;
    ALTER TABLE tasks DROP COLUMN tenant; ALTER TABLE tasks DROP COLUMN tool;
    ALTER TABLE tasks DROP COLUMN upstream; ALTER TABLE tasks DROP COLUMN repeat;
    PRAGMA user_version = 2;
"""
ENDED = CallSucceeded(result='{"content":[]}', tool_error=False)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path / "taskgate.db")
    yield made
    async with bounded():
        await made.store.close()


async def test_a_new_start_counts_by_every_scope_what_an_earlier_layout_left(place: Place) -> None:
    record = new_record(params="x" * 10)
    await keep(place.store, record, new_record(status=TaskStatus.COMPLETED), new_record(id="unreadable"))
    place.file.writer.execute("UPDATE tasks SET head = x'ff' WHERE id = 'unreadable'")
    place.file.writer.executescript(SECOND_LAYOUT)
    store = await place.reopen()
    for scope, most in ((CapScope.CONTEXT, 2), (CapScope.TOOL, 1), (CapScope.UPSTREAM, 1), (CapScope.GLOBAL, 2)):
        with pytest.raises(TooManyTasks) as refusal:
            await store.insert(new_record(), caps=(Cap(scope=scope, limit=most),))
        assert refusal.value.scope == scope.value
        below = (Cap(scope=scope, limit=most + 1), Cap(scope=CapScope.GLOBAL, limit=0))
        with pytest.raises(TooManyTasks) as refusal:
            await store.insert(new_record(), caps=below)
        assert refusal.value.limit == 0
    assert await store.load(OWNER, record.id, now=EPOCH, bodies=True) == record
    await store.purge(now=record.expires_at, limit=9)
    late = new_record(created_at=record.expires_at)
    await store.insert(late, caps=tuple(Cap(scope=scope, limit=1) for scope in CapScope))


@pytest.mark.parametrize("scope", CapScope)
async def test_a_new_start_counts_by_every_scope(place: Place, scope: CapScope) -> None:
    await keep(place.store, new_record(tenant="t"), new_record(tenant="t"))
    store = await place.reopen()
    with pytest.raises(TooManyTasks):
        await store.insert(new_record(tenant="t"), caps=(Cap(scope=scope, limit=2),))
    await store.insert(new_record(tenant="t"), caps=(Cap(scope=scope, limit=3),))


async def test_a_new_start_knows_what_is_kept_and_every_name(place: Place) -> None:
    ended, named = new_record(params="x" * 10), new_record(params=None, repeat_key="key")
    await keep(place.store, ended, named)
    assert await place.store.swap(after(ended, ENDED), expected=0)
    store, kept = await place.reopen(), 10 + len(ENDED.result)
    for scope in (CapScope.CONTEXT, CapScope.GLOBAL):
        with pytest.raises(TooManyBytes):
            await store.insert(new_record(params=None), caps=(Cap(scope=scope, limit=kept, bytes=True),))
        await store.insert(new_record(params=None), caps=(Cap(scope=scope, limit=kept + 1, bytes=True),))
    assert await store.insert(new_record(repeat_key="key"), caps=()) == named.id


async def test_what_could_not_be_written_keeps_no_bytes(place: Place) -> None:
    record = new_record(params="x" * 10)
    await keep(place.store, record)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await place.store.insert(record, caps=())
    await place.store.insert(new_record(), caps=(Cap(scope=CapScope.GLOBAL, limit=11, bytes=True),))


# --- names -----------------------------------------------------------------------------------------------------------


async def test_the_second_of_a_name_is_told_of_the_first_once_that_is_in_the_file(place: Place) -> None:
    first, second = new_record(repeat_key="key"), new_record(repeat_key="key")

    async def come(record: TaskRecord) -> tuple[str, list[tuple[str]]]:
        stands = await place.store.insert(record, caps=())
        return stands, place.file.far.execute("SELECT id FROM tasks").fetchall()

    async with bounded():
        ends = await asyncio.gather(come(first), come(second))
    assert ends == [(first.id, [(first.id,)])] * 2


async def test_the_second_of_a_name_is_kept_where_the_first_could_not_be(place: Place) -> None:
    taken = new_record()
    await keep(place.store, taken)
    first, *others = (
        new_record(id=taken.id, repeat_key="key"),
        new_record(repeat_key="key"),
        new_record(repeat_key="key"),
    )
    async with bounded():
        ends = await asyncio.gather(
            *(place.store.insert(record, caps=()) for record in (first, *others)), return_exceptions=True
        )
    assert isinstance(ends[0], StoreUnavailable)
    assert ends[1] == ends[2]
    assert ends[1] in {record.id for record in others}
    assert place.file.far.execute("SELECT count(*) FROM tasks").fetchone() == (2,)


async def test_one_of_a_name_who_stops_waiting_keeps_it_from_nobody(place: Place) -> None:
    records = [new_record(repeat_key="key") for _ in range(4)]
    async with bounded():
        inserts = [asyncio.create_task(place.store.insert(record, caps=())) for record in records]
        await asyncio.sleep(0)
        for gone in inserts[:2]:
            gone.cancel()
        ends = await asyncio.gather(*inserts, return_exceptions=True)
    # Whoever came first is in the file, though nobody waited for that any more.
    assert ends[2:] == [records[0].id] * 2


async def test_who_waits_for_a_name_when_the_store_closes_is_not_left_waiting(place: Place) -> None:
    records = [new_record(repeat_key="key") for _ in range(2)]
    async with bounded():
        inserts = [asyncio.create_task(place.store.insert(record, caps=())) for record in records]
        await asyncio.sleep(0)
        await place.store.close()
        ends = await asyncio.gather(*inserts, return_exceptions=True)
    assert ends[0] == records[0].id
    assert ends[1] == records[0].id or isinstance(ends[1], StoreUnavailable)
