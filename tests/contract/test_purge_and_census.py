"""What a purge removes, and what the census counts."""

from datetime import timedelta

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_lease, new_record
from taskgate.domain.events import CallSucceeded, Dispatched
from taskgate.domain.listing import TaskFilter, TaskOrder
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.stores.base import Store
from taskgate.stores.codec import as_head

ENDED = CallSucceeded(result="{}", tool_error=False)


def living_for(seconds: int) -> TaskRecord:
    return new_record(ttl=timedelta(seconds=seconds), lease=new_lease())


async def test_a_purge_removes_what_has_expired_and_returns_its_heads(store: Store) -> None:
    ended, running, young = living_for(1), living_for(2), living_for(3)
    await keep(store, ended, running, young)
    end = after(ended, ENDED)
    assert await store.swap(end, expected=0)
    purged = await store.purge(now=EPOCH + timedelta(seconds=2), limit=10)
    assert purged == (as_head(end), as_head(running))
    # Seen from a time when all of them lived.
    assert await store.load(OWNER, ended.id, now=EPOCH) is None
    assert await store.load(OWNER, running.id, now=EPOCH) is None
    assert await store.load(OWNER, young.id, now=EPOCH, bodies=True) == young


async def test_a_purge_takes_no_more_than_its_limit_and_the_longest_expired_first(store: Store) -> None:
    records = [living_for(seconds) for seconds in (3, 1, 5, 2, 4)]
    await keep(store, *records)
    now = EPOCH + timedelta(seconds=4)
    purged = [[head.ttl.seconds for head in await store.purge(now=now, limit=2)] for _ in range(3)]
    assert purged == [[1, 2], [3, 4], []]


async def test_what_was_purged_is_listed_counted_and_taken_over_no_more(store: Store) -> None:
    record = living_for(1)
    await keep(store, record)
    await store.purge(now=record.expires_at, limit=1)
    found = await store.page(OWNER, where=TaskFilter(), order=TaskOrder(), after=None, limit=5, now=EPOCH)
    assert found.tasks == ()
    assert set((await store.census()).tasks.values()) == {0}
    assert await store.lapsed(holder="p", until=record.expires_at, now=EPOCH, limit=5) == ()


async def test_the_id_of_a_purged_record_starts_anew(store: Store) -> None:
    old = new_record(status=TaskStatus.FAILED, ttl=timedelta(seconds=1), params='"old"')
    await keep(store, old)
    await store.purge(now=old.expires_at, limit=1)
    new = new_record(id=old.id, params=None)
    await keep(store, new)
    assert await store.load(OWNER, new.id, now=EPOCH, bodies=True) == new


async def test_the_bodies_of_a_purged_record_go_with_it(store: Store) -> None:
    size = 512 * 1024
    for _ in range(4):
        record = new_record(params='"' + "x" * size + '"', ttl=timedelta(seconds=1))
        await keep(store, record)
        await store.swap(after(record, CallSucceeded(result="y" * size, tool_error=False)), expected=0)
        await store.purge(now=record.expires_at, limit=1)
    kept = (await store.census()).size
    assert kept is None or kept < 3 * size


async def test_the_census_counts_every_status_until_the_purge(store: Store) -> None:
    assert (await store.census()).tasks == dict.fromkeys(TaskStatus, 0)
    moved, ended = new_record(), new_record()
    await keep(store, moved, ended, new_record(), new_record(status=TaskStatus.INPUT_REQUIRED))
    await keep(store, new_record(status=TaskStatus.CANCELLED, created_at=EPOCH - timedelta(days=1)))
    assert await store.swap(after(moved, Dispatched()), expected=0)
    assert await store.swap(after(ended, ENDED), expected=0)
    assert (await store.census()).tasks == {
        TaskStatus.WORKING: 2,
        TaskStatus.INPUT_REQUIRED: 1,
        TaskStatus.COMPLETED: 1,
        TaskStatus.FAILED: 0,
        TaskStatus.CANCELLED: 1,
    }
    await store.purge(now=EPOCH, limit=1)
    assert (await store.census()).tasks[TaskStatus.CANCELLED] == 0


async def test_a_size_that_is_known_grows_with_what_is_kept(store: Store) -> None:
    before = (await store.census()).size
    await keep(store, new_record(params='"' + "x" * 200_000 + '"'))
    grown = (await store.census()).size
    assert (before is None) == (grown is None)
    assert grown is None or before is None or grown > before + 190_000
