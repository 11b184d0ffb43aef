"""Lost answers: a change is made once; one of unknown outcome is undone or announced."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from helpers.loop_pace import paced
from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_lease, new_record
from helpers.redis_stores import LosingConnection, connect, store_over
from helpers.waiting import bounded
from taskgate.domain.events import CallSucceeded
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.record import TaskStatus
from taskgate.errors import StoreUnavailable, TooManyBytes
from taskgate.stores.base import OwnerWatch, RecordChange
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.redis.records.store import RedisStore

LATER = EPOCH + timedelta(minutes=10)
LONG = timedelta(hours=1)
ENDED = CallSucceeded(result="{}", tool_error=False)


async def test_an_insert_whose_answer_was_lost_is_one_record(store: RedisStore, connection: LosingConnection) -> None:
    record = new_record(params="x" * 10)
    connection.lost = 1
    assert await store.insert(record, caps=(Cap(scope=CapScope.CONTEXT, limit=1),)) == record.id
    assert await store.load(OWNER, record.id, now=EPOCH, bodies=True) == record
    assert (await store.census()).tasks[TaskStatus.WORKING] == 1
    with pytest.raises(TooManyBytes):
        await store.insert(new_record(), caps=(Cap(scope=CapScope.CONTEXT, limit=10, bytes=True),))


async def test_a_swap_whose_answer_was_lost_has_won(store: RedisStore, connection: LosingConnection) -> None:
    record = new_record()
    await keep(store, record)
    connection.lost = 1
    assert await store.swap(after(record, ENDED), expected=0)
    assert await store.load(OWNER, record.id, now=EPOCH, bodies=True) == after(record, ENDED)
    # Another of the same is another.
    assert not await store.swap(after(record, ENDED), expected=0)


async def test_an_insert_that_nobody_was_told_of_is_removed_again(
    store: RedisStore, connection: LosingConnection
) -> None:
    record = new_record()
    connection.lost = 2
    with pytest.raises(StoreUnavailable):
        await store.insert(record, caps=())
    async with bounded():
        while (await store.census()).tasks[TaskStatus.WORKING]:
            await asyncio.sleep(0.05)
    assert await store.lapsed(holder="next", until=LATER, now=LATER, limit=1) == ()


async def test_an_insert_that_has_a_name_stays_for_who_comes_again(
    store: RedisStore, connection: LosingConnection
) -> None:
    record = new_record(idempotency_digest="key")
    connection.lost = 2
    with pytest.raises(StoreUnavailable):
        await store.insert(record, caps=())
    for _ in range(5):
        await asyncio.sleep(0.2)
        assert (await store.census()).tasks[TaskStatus.WORKING] == 1
    assert await store.insert(new_record(idempotency_digest="key"), caps=()) == record.id


async def test_an_insert_that_never_came_is_looked_for_no_longer_than_for_a_while(
    store: RedisStore, connection: LosingConnection
) -> None:
    connection.lost, connection.unsent = 3, True
    with pytest.raises(StoreUnavailable):
        await store.insert(new_record(), caps=())
    with paced(20):
        async with bounded():
            while any(task.get_name() == "taskgate-store-withdrawals" for task in asyncio.all_tasks()):
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("unsent", [False, True])
async def test_a_change_that_nobody_knows_of_sends_whoever_waits_to_look(
    store: RedisStore, connection: LosingConnection, unsent: bool
) -> None:
    record = new_record(lease=new_lease())
    await keep(store, record)
    async with bounded():
        since = (await store.changed(OwnerWatch(owner=OWNER), timeout=timedelta())).place
        connection.lost, connection.unsent = 2, unsent
        with pytest.raises(StoreUnavailable):
            await store.swap(after(record, ENDED), expected=0)
        heard = await store.changed(OwnerWatch(owner=OWNER, since=since), timeout=LONG)
    assert heard.changes == (RecordChange(record.id, 1),)


async def test_a_change_that_is_done_after_all_is_told_when_it_is(
    store: RedisStore, connection: LosingConnection
) -> None:
    """As by a server that was stopped for a while and goes on: what was sent to it is done then."""
    record = new_record()
    await keep(store, record)
    connection.lost, connection.unsent = 2, True
    with pytest.raises(StoreUnavailable):
        await store.swap(after(record, ENDED), expected=0)
    since = (await store.changed(OwnerWatch(owner=OWNER), timeout=timedelta())).place
    async with bounded():
        await connection.run_unsent()
        heard = await store.changed(OwnerWatch(owner=OWNER, since=since), timeout=LONG)
    assert heard.changes == (RecordChange(record.id, 1),)


async def test_what_comes_too_late_is_not_inserted(shared_options: RedisOptions) -> None:
    """A silent network may deliver it when its host was told that nothing was done, and its process is gone."""
    store = await store_over(connect(shared_options), shared_options, within=timedelta(seconds=5))
    try:
        now = datetime.now(UTC)
        late, early = (new_record(created_at=now - timedelta(seconds=ago)) for ago in (60, 0))
        with pytest.raises(StoreUnavailable, match="too late"):
            await store.insert(late, caps=())
        assert await store.insert(early, caps=()) == early.id
        assert await store.load(OWNER, late.id, now=now) is None
        # What is there already came in time, whenever its sender asks again.
        assert (await store.census()).tasks[TaskStatus.WORKING] == 1
    finally:
        await store.close()
