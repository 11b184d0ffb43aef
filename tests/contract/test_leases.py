"""Leases: renewed by their holder, and taken over once after they lapse."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

from helpers.manual_clock import EPOCH
from helpers.records import HOLDER, OWNER, after, keep, new_lease, new_record
from helpers.waiting import bounded
from taskgate.domain.events import CallSucceeded, Dispatched
from taskgate.domain.record import Lease, TaskRecord, TaskStatus
from taskgate.stores.base import OwnerWatch, Store
from taskgate.stores.codec import as_head

LATER = EPOCH + timedelta(minutes=10)
NEXT = "process-2"


async def lease_of(store: Store, record: TaskRecord) -> Lease | None:
    head = await store.load(OWNER, record.id, now=EPOCH)
    assert head is not None
    return head.lease


async def lapsed(store: Store, now: datetime, limit: int = 100, holder: str = NEXT) -> list[str]:
    until = now + timedelta(minutes=1)
    return [record.id for record in await store.lapsed(holder=holder, until=until, now=now, limit=limit)]


async def test_renewing_extends_the_lease_and_nothing_else(store: Store) -> None:
    record = new_record(lease=new_lease())
    await keep(store, record)
    place = (await store.changed(OwnerWatch(owner=OWNER), timeout=timedelta())).place
    await store.renew(HOLDER, frozenset({record.id}), LATER)
    head = await store.load(OWNER, record.id, now=EPOCH, bodies=True)
    assert head is not None
    assert head.lease == new_lease(until=LATER)
    assert (head.revision, head.updated_at, head.call) == (record.revision, record.updated_at, record.call)
    assert (await store.changed(OwnerWatch(owner=OWNER), timeout=timedelta())).place == place


async def test_renewing_passes_over_what_others_hold_and_what_is_gone(store: Store) -> None:
    mine, foreign, free = new_record(lease=new_lease()), new_record(lease=new_lease(holder=NEXT)), new_record()
    await keep(store, mine, foreign, free)
    await store.renew(HOLDER, frozenset({mine.id, foreign.id, free.id, "gone", "\ud800"}), LATER)
    assert await lease_of(store, mine) == new_lease(until=LATER)
    assert await lease_of(store, foreign) == foreign.lease
    assert await lease_of(store, free) is None


async def test_renewing_nothing_does_nothing(store: Store) -> None:
    await store.renew(HOLDER, frozenset(), LATER)


async def test_a_lease_lapses_at_its_last_moment(store: Store) -> None:
    record = new_record(lease=new_lease())
    await keep(store, record)
    assert record.lease is not None
    assert await lapsed(store, record.lease.until - timedelta(microseconds=1)) == []
    assert await lapsed(store, record.lease.until) == [record.id]


async def test_a_record_that_nobody_holds_has_lapsed(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    assert await lapsed(store, EPOCH) == [record.id]


async def test_a_renewed_lease_has_not_lapsed(store: Store) -> None:
    record = new_record(lease=new_lease())
    await keep(store, record)
    await store.renew(HOLDER, frozenset({record.id}), LATER)
    assert await lapsed(store, LATER - timedelta(seconds=1)) == []


async def test_what_was_never_dispatched_lapses_with_its_parameters_and_the_takers_lease(store: Store) -> None:
    record = new_record(lease=new_lease())
    await keep(store, record)
    (taken,) = await store.lapsed(holder=NEXT, until=LATER + timedelta(hours=1), now=LATER, limit=5)
    assert taken == replace(record, lease=Lease(holder=NEXT, until=LATER + timedelta(hours=1)))
    assert await store.load(OWNER, record.id, now=EPOCH, bodies=True) == taken


async def test_what_was_dispatched_lapses_as_a_head_with_the_takers_lease(store: Store) -> None:
    record = new_record(lease=new_lease())
    await keep(store, record)
    moved = after(record, Dispatched())
    assert await store.swap(moved, expected=0)
    (taken,) = await store.lapsed(holder=NEXT, until=LATER + timedelta(hours=1), now=LATER, limit=5)
    assert taken == replace(as_head(moved), lease=Lease(holder=NEXT, until=LATER + timedelta(hours=1)))
    whole = await store.load(OWNER, record.id, now=EPOCH, bodies=True)
    assert whole == replace(moved, lease=taken.lease)


async def test_what_was_dispatched_and_may_run_again_lapses_with_its_parameters(store: Store) -> None:
    record = new_record(lease=new_lease(), reruns=1)
    await keep(store, record)
    moved = after(record, Dispatched())
    assert await store.swap(moved, expected=0)
    (taken,) = await store.lapsed(holder=NEXT, until=LATER, now=LATER, limit=5)
    assert taken == replace(moved, lease=Lease(holder=NEXT, until=LATER))
    assert await store.swap(after(taken, Dispatched()), expected=1)
    (taken,) = await store.lapsed(holder=NEXT, until=LATER + timedelta(hours=1), now=LATER, limit=5)
    assert (taken.reruns, taken.call.params) == (0, None)


async def test_what_is_finished_or_expired_never_lapses(store: Store) -> None:
    ended = new_record(lease=new_lease())
    await keep(
        store,
        ended,
        new_record(status=TaskStatus.CANCELLED),
        new_record(lease=new_lease(), ttl=LATER - EPOCH),
    )
    assert await store.swap(after(ended, CallSucceeded(result="{}", tool_error=False)), expected=0)
    assert await lapsed(store, LATER) == []


async def test_what_waits_for_input_lapses_as_well(store: Store) -> None:
    record = new_record(status=TaskStatus.INPUT_REQUIRED)
    await keep(store, record)
    assert await lapsed(store, EPOCH) == [record.id]


async def test_the_oldest_are_given_first_whoever_held_them(store: Store) -> None:
    records = [
        new_record(
            created_at=EPOCH - timedelta(seconds=number % 4, milliseconds=number),
            lease=new_lease() if number % 2 else None,
        )
        for number in range(8)
    ]
    await keep(store, *records)
    oldest_first = [record.id for record in sorted(records, key=lambda record: record.created_at)]
    assert await lapsed(store, LATER, limit=3) == oldest_first[:3]
    assert await lapsed(store, LATER, limit=3) == oldest_first[3:6]
    assert await lapsed(store, LATER, limit=3) == oldest_first[6:]
    assert await lapsed(store, LATER, limit=3) == []


async def test_each_is_given_to_one_of_many_takers(store: Store) -> None:
    records = [new_record() for _ in range(30)]
    await keep(store, *records)
    async with bounded():
        takings = await asyncio.gather(*(lapsed(store, EPOCH, 7, f"taker-{number}") for number in range(8)))
    taken = [id for taking in takings for id in taking]
    assert sorted(taken) == sorted(record.id for record in records)


async def test_the_takers_own_lease_lapses_in_its_turn(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    assert await lapsed(store, EPOCH) == [record.id]
    assert await lapsed(store, EPOCH + timedelta(seconds=59)) == []
    assert await lapsed(store, EPOCH + timedelta(minutes=1), holder="process-3") == [record.id]
