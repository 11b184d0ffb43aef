"""What the caps of a file count, before and after a restart."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_lease, new_record
from taskgate.domain.events import (
    CallSucceeded,
)
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.record import TaskStatus
from taskgate.errors import StoreUnavailable, TooManyBytes, TooManyTasks
from unit.stores.sqlite.conftest import Place
from unit.stores.sqlite.test_file import SECOND_LAYOUT

# What a file of the layout before this one lacks.
ENDED = CallSucceeded(result='{"content":[]}', tool_error=False)
FAR_OFF = EPOCH + timedelta(days=365)


def at_most(limit: int) -> tuple[Cap, ...]:
    return (Cap(scope=CapScope.CONTEXT, limit=limit),)


async def test_a_new_start_counts_what_is_unfinished(place: Place) -> None:
    records = [new_record(lease=new_lease(until=FAR_OFF)), new_record(), new_record(ttl=timedelta(seconds=1))]
    await keep(place.store, *records, new_record(status=TaskStatus.COMPLETED))
    store = await place.reopen()
    with pytest.raises(TooManyTasks):
        await store.insert(new_record(), caps=at_most(3))
    assert await store.swap(after(records[0], ENDED), expected=0)
    await store.insert(new_record(), caps=at_most(3))
    with pytest.raises(TooManyTasks):
        await store.insert(new_record(), caps=at_most(3))
    assert len(await store.purge(now=records[2].expires_at, limit=1)) == 1
    await store.insert(new_record(), caps=at_most(3))
    with pytest.raises(TooManyTasks):
        await store.insert(new_record(), caps=at_most(3))


async def test_what_could_not_be_written_takes_no_room(place: Place) -> None:
    record = new_record()
    await place.store.insert(record, caps=at_most(2))
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await place.store.insert(record, caps=at_most(2))
    await place.store.insert(new_record(), caps=at_most(2))


async def test_what_nobody_waits_for_any_more_takes_room_if_it_was_written_and_none_if_not(place: Place) -> None:
    record = new_record()
    for _ in range(2):
        inserting = asyncio.create_task(place.store.insert(record, caps=at_most(2)))
        await asyncio.sleep(0)
        inserting.cancel()
        await asyncio.gather(inserting, return_exceptions=True)
    # Of one after the other: this one's commit is after theirs.
    await place.store.insert(new_record(), caps=())
    with pytest.raises(TooManyTasks):
        await place.store.insert(new_record(), caps=at_most(2))
    assert await place.store.swap(after(record, ENDED), expected=0)
    await place.store.insert(new_record(), caps=at_most(2))


async def test_a_swap_that_is_lost_makes_no_room(place: Place) -> None:
    record = new_record()
    await place.store.insert(record, caps=at_most(1))
    assert not await place.store.swap(after(record, ENDED), expected=7)
    with pytest.raises(TooManyTasks):
        await place.store.insert(new_record(), caps=at_most(1))


async def test_a_purge_makes_the_room_of_what_cannot_be_read(place: Place) -> None:
    record = new_record(ttl=timedelta(seconds=1))
    await place.store.insert(record, caps=at_most(1))
    place.file.writer.execute("UPDATE tasks SET head = x'ff'")
    await place.store.purge(now=record.expires_at, limit=1)
    await place.store.insert(new_record(), caps=at_most(1))


async def test_a_purge_of_what_has_ended_makes_no_room(place: Place) -> None:
    short = timedelta(seconds=1)
    ended = new_record(status=TaskStatus.COMPLETED, ttl=short)
    await keep(place.store, ended, new_record(ttl=short))
    (removed,) = await place.store.purge(now=ended.expires_at, limit=1)
    assert removed.id == ended.id
    with pytest.raises(TooManyTasks):
        await place.store.insert(new_record(), caps=at_most(1))


async def test_a_record_that_is_unfinished_again_takes_room_again(place: Place) -> None:
    record = new_record(status=TaskStatus.COMPLETED)
    await keep(place.store, record)
    assert await place.store.swap(replace(record, status=TaskStatus.WORKING, revision=1), expected=0)
    with pytest.raises(TooManyTasks):
        await place.store.insert(new_record(), caps=at_most(1))


# --- every scope, and bytes -------------------------------------------------------------------------------------------


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
    for _ in range(2):
        await place.store.insert(new_record(tenant="t"), caps=(), subject="s")
    store = await place.reopen()
    with pytest.raises(TooManyTasks):
        await store.insert(new_record(tenant="t"), caps=(Cap(scope=scope, limit=2),), subject="s")
    await store.insert(new_record(tenant="t"), caps=(Cap(scope=scope, limit=3),), subject="s")


async def test_a_new_start_knows_what_is_kept_and_every_name(place: Place) -> None:
    ended, named = new_record(params="x" * 10), new_record(params=None, idempotency_digest="key")
    await keep(place.store, ended, named)
    assert await place.store.swap(after(ended, ENDED), expected=0)
    store, kept = await place.reopen(), 10 + len(ENDED.result)
    for scope in (CapScope.CONTEXT, CapScope.GLOBAL):
        with pytest.raises(TooManyBytes):
            await store.insert(new_record(params=None), caps=(Cap(scope=scope, limit=kept, bytes=True),))
        await store.insert(new_record(params=None), caps=(Cap(scope=scope, limit=kept + 1, bytes=True),))
    assert await store.insert(new_record(idempotency_digest="key"), caps=()) == named.id


async def test_what_could_not_be_written_keeps_no_bytes(place: Place) -> None:
    record = new_record(params="x" * 10)
    await keep(place.store, record)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await place.store.insert(record, caps=())
    await place.store.insert(new_record(), caps=(Cap(scope=CapScope.GLOBAL, limit=11, bytes=True),))


async def test_a_file_without_persons_counts_them_from_now_on(place: Place) -> None:
    """Earlier releases wrote such files, and still read and write one that has the column."""
    cap = (Cap(scope=CapScope.SUBJECT, limit=1),)
    await place.store.insert(new_record(), caps=(), subject="s")
    await place.store.close()
    with closing(sqlite3.connect(place.options.path)) as connection:
        connection.execute("ALTER TABLE tasks DROP COLUMN subject")
    store = await place.reopen()
    await store.insert(new_record(), caps=cap, subject="s")
    with pytest.raises(TooManyTasks):
        await store.insert(new_record(), caps=cap, subject="s")
