"""Two stores over one server, as in two processes: each sees the changes and caps of both."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import HOLDER, OWNER, after, keep, new_lease, new_record
from helpers.redis_stores import several
from helpers.shared_store import SharedServer
from helpers.waiting import bounded
from taskgate.domain.events import CallSucceeded, CancelRequested, Progressed
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.record import TaskRecord
from taskgate.errors import TooManyTasks
from taskgate.stores.base import ChangeBatch, HolderWatch, OwnerWatch, RecordChange, StoreWatch, TaskWatch, Watch
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.redis.records.store import RedisStore

LONG = timedelta(hours=1)
NONE = timedelta()
ENDED = CallSucceeded(result="{}", tool_error=False)


@pytest.fixture
async def stores(shared_options: RedisOptions) -> AsyncIterator[list[RedisStore]]:
    async with several(shared_options) as opened:
        yield opened


async def begin(store: RedisStore, watch: Watch) -> "asyncio.Task[ChangeBatch]":
    """A wait that has begun, and looked."""
    waiting = asyncio.create_task(store.changed(watch, timeout=LONG))
    # A round trip behind the look, over another connection, is long enough for it as a rule; no test depends on it.
    await store.census()
    assert not waiting.done()
    return waiting


async def kept(here: RedisStore, there: RedisStore, record: TaskRecord) -> int:
    """Keep a record at one, and wait until the other has heard of it; its place then."""
    since = (await there.changed(OwnerWatch(owner=OWNER), timeout=NONE)).place
    await keep(here, record)
    heard = await there.changed(OwnerWatch(owner=OWNER, since=since), timeout=LONG)
    assert heard.changes == (RecordChange(record.id, 0),)
    return heard.place


def watches(record: TaskRecord) -> list[Watch]:
    return [TaskWatch(id=record.id, revision=0), OwnerWatch(owner=OWNER), HolderWatch(holder=HOLDER), StoreWatch()]


@pytest.mark.parametrize("kind", [0, 1, 2, 3], ids=["task", "owner", "holder", "store"])
async def test_what_one_changes_wakes_who_waits_at_the_other(stores: list[RedisStore], kind: int) -> None:
    here, there = stores
    record = new_record(lease=new_lease())
    async with bounded():
        place = await kept(here, there, record)
        waiting = await begin(there, watches(record)[kind])
        assert await here.swap(after(record, CancelRequested()), expected=0)
        heard = await waiting
    assert heard.changes == (RecordChange(record.id, 1),)
    assert heard.place > place


async def test_what_one_purges_wakes_who_waits_at_the_other(stores: list[RedisStore]) -> None:
    here, there = stores
    record = new_record(lease=new_lease())
    async with bounded():
        await kept(here, there, record)
        waiting = await begin(there, TaskWatch(id=record.id, revision=0))
        assert await here.purge(now=record.expires_at, limit=1)
        assert (await waiting).changes == (RecordChange(record.id, -1),)


async def test_a_change_of_the_other_before_the_wait_is_news_at_once(stores: list[RedisStore]) -> None:
    """Whether its message came or not: the record is looked at."""
    here, there = stores
    record = new_record()
    await keep(here, record)
    head = await there.load(OWNER, record.id, now=EPOCH)
    assert head is not None
    assert await here.swap(after(record, ENDED), expected=0)
    async with bounded():
        heard = await there.changed(TaskWatch(id=record.id, revision=head.revision), timeout=LONG)
    assert heard.changes == (RecordChange(record.id, 1),)


async def test_a_head_that_one_has_read_is_new_after_a_swap_of_the_other(stores: list[RedisStore]) -> None:
    here, there = stores
    record = new_record(lease=new_lease())
    await keep(here, record)
    assert await there.load(OWNER, record.id, now=EPOCH) is not None
    moved = after(record, Progressed(message="half"))
    assert await here.swap(moved, expected=0)
    head = await there.load(OWNER, record.id, now=EPOCH)
    assert head is not None
    assert (head.revision, head.status_message) == (1, "half")
    await here.renew(HOLDER, frozenset({record.id}), EPOCH + LONG)
    head = await there.load(OWNER, record.id, now=EPOCH)
    assert head is not None
    assert head.lease == new_lease(until=EPOCH + LONG)


async def test_what_lapsed_is_given_to_one_of_both(stores: list[RedisStore]) -> None:
    records = [new_record() for _ in range(30)]
    await keep(stores[0], *records)
    async with bounded():
        takings = await asyncio.gather(
            *(
                stores[number % 2].lapsed(holder=f"taker-{number}", until=EPOCH + LONG, now=EPOCH, limit=7)
                for number in range(8)
            )
        )
    assert sorted(taken.id for taking in takings for taken in taking) == sorted(record.id for record in records)


async def test_a_cap_is_held_by_both_together(stores: list[RedisStore]) -> None:
    caps = (Cap(scope=CapScope.CONTEXT, limit=7),)
    async with bounded():
        ends = await asyncio.gather(
            *(stores[number % 2].insert(new_record(), caps=caps) for number in range(40)), return_exceptions=True
        )
    assert sum(isinstance(end, str) for end in ends) == 7
    assert sum(isinstance(end, TooManyTasks) for end in ends) == 33


async def test_one_of_many_racers_at_both_wins(stores: list[RedisStore]) -> None:
    record = new_record()
    await keep(stores[0], record)
    # They say the same, to the byte: who wins is told by the store and not by what is there afterwards.
    moved = after(record, Progressed(message="half"))
    async with bounded():
        won = await asyncio.gather(*(stores[number % 2].swap(moved, expected=0) for number in range(20)))
    assert won.count(True) == 1


async def test_calls_of_one_name_that_come_to_both_are_one_record(stores: list[RedisStore]) -> None:
    records = [new_record(idempotency_digest=f"key-{number % 4}") for number in range(80)]
    async with bounded():
        ids = await asyncio.gather(
            *(stores[number // 4 % 2].insert(record, caps=()) for number, record in enumerate(records))
        )
    assert len(set(ids)) == 4
    assert all(id == ids[number % 4] for number, id in enumerate(ids))


async def test_after_a_lost_connection_of_the_news_every_watcher_is_told_that_something_may_be_missing(
    stores: list[RedisStore], shared_server: SharedServer
) -> None:
    here, there = stores
    record = new_record(lease=new_lease())
    async with bounded():
        place = await kept(here, there, record)
        waiting = [await begin(there, watch) for watch in watches(record)[1:]]
        shared_server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        assert [(await one).complete for one in waiting] == [False] * 3
        heard = await there.changed(OwnerWatch(owner=OWNER, since=place), timeout=LONG)
        assert not heard.complete
        # And what comes then is heard as before.
        waiting = [await begin(there, OwnerWatch(owner=OWNER, since=heard.place))]
        assert await here.swap(after(record, ENDED), expected=0)
        assert (await waiting[0]).changes == (RecordChange(record.id, 1),)
