"""Changes: told at once if there are any, a wake-up when they come, none lost in between."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from helpers.records import HOLDER, OWNER, after, keep, new_lease, new_record
from helpers.waiting import bounded
from taskgate.domain.events import CallSucceeded, CancelRequested, Progressed, ResultRetrieved
from taskgate.domain.record import OwnerKey, TaskRecord
from taskgate.stores.base import (
    ChangeBatch,
    HolderWatch,
    OwnerWatch,
    RecordChange,
    Store,
    StoreWatch,
    TaskWatch,
    Watch,
)
from taskgate.stores.codec import as_head

LONG = timedelta(hours=1)
MOMENT = timedelta(milliseconds=1)
ENDED = CallSucceeded(result="{}", tool_error=False)
GONE = -1


async def news(store: Store, watch: Watch, timeout: timedelta = LONG) -> ChangeBatch:
    async with bounded():
        return await store.changed(watch, timeout=timeout)


async def begin(store: Store, watch: Watch) -> "asyncio.Task[ChangeBatch]":
    """A wait that has begun."""
    waiting = asyncio.create_task(news(store, watch))
    await asyncio.sleep(0)
    assert not waiting.done()
    return waiting


async def place(store: Store, watch: Watch) -> int:
    """Where the store's sequence of changes is now."""
    return (await news(store, watch, timedelta())).place


def watches(record: TaskRecord, since: int | None = None) -> list[Watch]:
    return [
        TaskWatch(id=record.id, revision=record.revision),
        OwnerWatch(owner=record.owner, since=since),
        HolderWatch(holder=HOLDER, since=since),
        StoreWatch(since=since),
    ]


@pytest.mark.parametrize("kind", [0, 1, 2, 3], ids=["task", "owner", "holder", "store"])
class TestEveryWatch:
    async def test_wakes_when_the_record_is_swapped(self, store: Store, kind: int) -> None:
        record = new_record(lease=new_lease())
        await keep(store, record)
        waiting = await begin(store, watches(record)[kind])
        assert await store.swap(after(record, Progressed(message="half")), expected=0)
        assert (await waiting).changes == (RecordChange(record.id, 1),)

    async def test_hears_of_the_end_that_takes_the_lease_away(self, store: Store, kind: int) -> None:
        record = new_record(lease=new_lease())
        await keep(store, record)
        waiting = await begin(store, watches(record)[kind])
        assert await store.swap(after(record, CancelRequested()), expected=0)
        assert (await waiting).changes == (RecordChange(record.id, 1),)

    async def test_hears_of_a_purge(self, store: Store, kind: int) -> None:
        record = new_record(lease=new_lease())
        await keep(store, record)
        waiting = await begin(store, watches(record)[kind])
        assert await store.purge(now=record.expires_at, limit=1)
        assert (await waiting).changes == (RecordChange(record.id, GONE),)

    async def test_hears_at_once_of_a_change_between_the_look_and_the_wait(self, store: Store, kind: int) -> None:
        record = new_record(lease=new_lease())
        await keep(store, record)
        since = await place(store, OwnerWatch(owner=OWNER))
        assert await store.swap(after(record, Progressed(message="half")), expected=0)
        heard = await news(store, watches(record, since)[kind])
        assert heard.changes == (RecordChange(record.id, 1),)
        assert heard.place > since

    async def test_ends_early_and_empty_when_its_time_is_up(self, store: Store, kind: int) -> None:
        record = new_record(lease=new_lease())
        await keep(store, record)
        assert (await news(store, watches(record)[kind], MOMENT)).changes == ()

    async def test_is_not_woken_by_what_does_not_concern_it(self, store: Store, kind: int) -> None:
        record = new_record(lease=new_lease())
        other = new_record(lease=new_lease(holder="other"), owner=OwnerKey("somebody", OWNER.mount))
        await keep(store, record, other)
        watch = watches(record)[kind]
        waiting = await begin(store, watch)
        assert await store.swap(after(other, ENDED), expected=0)
        await asyncio.sleep(0)
        if isinstance(watch, StoreWatch):
            assert (await waiting).changes == (RecordChange(other.id, 1),)
            return
        assert not waiting.done()
        assert await store.swap(after(record, ENDED), expected=0)
        assert (await waiting).changes == (RecordChange(record.id, 1),)

    async def test_is_not_woken_by_what_becomes_of_a_task_that_has_ended(self, store: Store, kind: int) -> None:
        """Nobody waits for more of it: that it was looked at is no news."""
        record = after(new_record(lease=new_lease()), ENDED)
        await keep(store, replace(record, lease=new_lease()))
        since = await place(store, OwnerWatch(owner=OWNER))
        waiting = await begin(store, watches(record)[kind])
        assert await store.swap(as_head(after(record, ResultRetrieved())), expected=record.revision)
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        if kind:
            assert (await news(store, watches(record, since)[kind], MOMENT)).changes == ()

    async def test_wakes_everybody_who_waits(self, store: Store, kind: int) -> None:
        record = new_record(lease=new_lease())
        await keep(store, record)
        waiting = [await begin(store, watches(record)[kind]) for _ in range(3)]
        assert await store.swap(after(record, ENDED), expected=0)
        for heard in await asyncio.gather(*waiting):
            assert heard.changes == (RecordChange(record.id, 1),)

    async def test_a_wait_that_is_given_up_harms_nobody(self, store: Store, kind: int) -> None:
        record = new_record(lease=new_lease())
        await keep(store, record)
        given_up, waiting = [await begin(store, watches(record)[kind]) for _ in range(2)]
        given_up.cancel()
        assert await store.swap(after(record, ENDED), expected=0)
        assert (await waiting).changes == (RecordChange(record.id, 1),)


async def test_a_task_that_is_newer_already_is_news_at_once(store: Store) -> None:
    record = new_record(revision=5)
    await keep(store, record)
    heard = await news(store, TaskWatch(id=record.id, revision=4))
    assert heard.changes == (RecordChange(record.id, 5),)


@pytest.mark.parametrize("id", ["unknown", "\ud800"])
async def test_a_task_that_is_not_there_is_news_at_once(store: Store, id: str) -> None:
    assert (await news(store, TaskWatch(id=id, revision=0))).changes == (RecordChange(id, GONE),)


async def test_a_new_task_is_news_to_its_owner_and_its_holder_and_to_who_watches_all(store: Store) -> None:
    for watch in (OwnerWatch(owner=OWNER), HolderWatch(holder=HOLDER), StoreWatch()):
        record = new_record(lease=new_lease())
        waiting = await begin(store, watch)
        await keep(store, record)
        assert (await waiting).changes == (RecordChange(record.id, 0),)


async def test_who_goes_on_from_each_place_hears_every_change(store: Store) -> None:
    records = [new_record() for _ in range(3)]
    since = await place(store, OwnerWatch(owner=OWNER))
    for record in records:
        await keep(store, record)
    heard = await news(store, OwnerWatch(owner=OWNER, since=since))
    assert heard.changes == tuple(RecordChange(record.id, 0) for record in records)
    for record in records:
        assert await store.swap(after(record, ENDED), expected=0)
        heard = await news(store, OwnerWatch(owner=OWNER, since=heard.place))
        assert heard.changes == (RecordChange(record.id, 1),)


@pytest.mark.parametrize(
    "watch",
    [OwnerWatch(owner=OWNER), HolderWatch(holder=HOLDER), StoreWatch()],
    ids=["owner", "holder", "store"],
)
async def test_no_change_is_lost_to_who_waits_in_short_turns(
    store: Store, watch: OwnerWatch | HolderWatch | StoreWatch
) -> None:
    """The end of a wait is a moment that changes can fall into: many turns and many changes find it."""
    records = [new_record(lease=new_lease()) for _ in range(60)]
    await keep(store, *records)
    since, heard = await place(store, watch), set[RecordChange]()

    async def end_all() -> None:
        for record in records:
            assert await store.swap(after(record, ENDED), expected=0)
            await asyncio.sleep(0)

    ending = asyncio.create_task(end_all())
    async with bounded():
        while not ending.done():
            told = await store.changed(replace(watch, since=since), timeout=timedelta())
            assert told.complete
            since, heard = told.place, heard.union(told.changes)
    await ending
    heard.update((await news(store, replace(watch, since=since), timedelta())).changes)
    assert heard == {RecordChange(record.id, 1) for record in records}


async def test_several_changes_of_a_task_are_told_as_the_newest(store: Store) -> None:
    record = new_record()
    since = await place(store, OwnerWatch(owner=OWNER))
    await keep(store, record)
    moved = after(record, Progressed(message="half"))
    assert await store.swap(moved, expected=0)
    assert await store.swap(after(moved, ENDED), expected=1)
    heard = await news(store, OwnerWatch(owner=OWNER, since=since))
    assert heard.changes == (RecordChange(record.id, 2),)


async def test_a_place_that_never_was_ends_early_and_tells_that_something_may_be_missing(store: Store) -> None:
    now = await place(store, OwnerWatch(owner=OWNER))
    for since in (now + 1000, -1000):
        assert await news(store, OwnerWatch(owner=OWNER, since=since)) == ChangeBatch(place=now, complete=False)


async def test_a_swap_that_loses_is_no_news(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    since = await place(store, OwnerWatch(owner=OWNER))
    assert not await store.swap(after(record, ENDED), expected=7)
    assert await place(store, OwnerWatch(owner=OWNER)) == since


async def test_news_is_of_what_can_be_loaded_already(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    waiting = await begin(store, TaskWatch(id=record.id, revision=0))
    swapping = asyncio.create_task(store.swap(after(record, ENDED), expected=0))
    assert (await waiting).changes == (RecordChange(record.id, 1),)
    head = await store.load(OWNER, record.id, now=record.created_at)
    assert head is not None
    assert head.revision == 1
    assert await swapping
