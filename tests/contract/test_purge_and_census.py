"""What a purge removes, and what the census counts."""

from datetime import datetime, timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_lease, new_record
from taskgate.domain.events import CallSucceeded, Dispatched
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.listing import TaskFilter, TaskOrder
from taskgate.domain.record import TaskRecord, TaskStatus, evolve
from taskgate.errors import TooManyTasks
from taskgate.stores.base import Store
from taskgate.stores.codec import as_head

HOUR = timedelta(hours=1)
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


async def test_an_end_may_move_the_expiry_in_both_directions(store: Store) -> None:
    """As it does: an unfinished task expires when it gets too old, an ended one when it was stored for long enough."""
    short, long = (new_record(lease=new_lease(), expires_at=EPOCH + HOUR * hours, idempotency_digest=f"k{hours}")
                   for hours in (2, 24))  # fmt: skip
    await keep(store, short, long)
    for record in (short, long):
        # The head does not have it.
        assert (await loaded(store, record, EPOCH)).expires_at == record.expires_at
    later = evolve(after(short, ENDED), ttl=3 * HOUR, expires_at=EPOCH + 3 * HOUR)
    sooner = evolve(after(long, ENDED), ttl=HOUR, expires_at=EPOCH + HOUR)
    for end in (later, sooner):
        assert await store.swap(end, expected=0)
        assert await loaded(store, end, EPOCH) == as_head(end)
    now = EPOCH + HOUR
    assert [head.id for head in await store.purge(now=now, limit=10)] == [long.id]
    assert await store.repeated(OWNER, "k24", now=EPOCH) is None
    assert await store.repeated(OWNER, "k2", now=EPOCH + 2 * HOUR) == short.id
    assert await store.purge(now=EPOCH + 2 * HOUR, limit=10) == ()
    tasks = (await store.page(OWNER, where=TaskFilter(), order=TaskOrder(), after=None, limit=9, now=now)).tasks
    assert [task.id for task in tasks] == [short.id]
    assert await store.purge(now=EPOCH + 3 * HOUR, limit=10) == (as_head(later),)


async def test_a_key_is_free_once_its_ended_task_has_expired(store: Store) -> None:
    first = new_record(lease=new_lease(), expires_at=EPOCH + 24 * HOUR, idempotency_digest="k")
    await keep(store, first)
    assert await store.swap(evolve(after(first, ENDED), ttl=HOUR, expires_at=EPOCH + HOUR), expected=0)
    again = new_record(created_at=EPOCH + HOUR, idempotency_digest="k")
    assert await store.insert(again, caps=()) == again.id


async def test_a_task_that_ends_is_counted_no_more_whatever_its_expiry_was(store: Store) -> None:
    one = Cap(scope=CapScope.CONTEXT, limit=1)
    first = new_record(lease=new_lease(), expires_at=EPOCH + 24 * HOUR)
    await store.insert(first, caps=(one,))
    assert await store.swap(evolve(after(first, ENDED), ttl=HOUR, expires_at=EPOCH + HOUR), expected=0)
    await store.insert(new_record(lease=new_lease()), caps=(one,))
    with pytest.raises(TooManyTasks):
        await store.insert(new_record(lease=new_lease()), caps=(one,))


async def test_a_task_that_is_taken_over_expires_when_it_would_have(store: Store) -> None:
    record = new_record(expires_at=EPOCH + 24 * HOUR)
    await keep(store, record)
    [taken] = await store.lapsed(holder="another", until=EPOCH + 3 * HOUR, now=EPOCH + 2 * HOUR, limit=9)
    assert taken.expires_at == EPOCH + 24 * HOUR


async def loaded(store: Store, record: TaskRecord, now: datetime) -> TaskRecord:
    found = await store.load(OWNER, record.id, now=now)
    assert found is not None
    return found
