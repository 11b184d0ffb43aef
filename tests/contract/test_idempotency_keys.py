"""Idempotency keys: the same key of the same owner is the same record."""

import asyncio
from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_record
from helpers.waiting import bounded
from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.record import FaultReason, OwnerKey, TaskRecord, TaskStatus
from taskgate.errors import TooManyTasks
from taskgate.stores.base import Store

FULL = (Cap(scope=CapScope.CONTEXT, limit=0),)
SOON = timedelta(seconds=1)


def named(key: str = "key", **changes: object) -> TaskRecord:
    return new_record(idempotency_digest=key, **changes)


async def count(store: Store) -> int:
    return sum((await store.census()).tasks.values())


async def test_a_record_without_a_name_stands_for_itself(store: Store) -> None:
    records = [new_record(), new_record()]
    assert [await store.insert(record, caps=()) for record in records] == [record.id for record in records]


async def test_the_second_of_a_name_is_the_first_and_asks_for_no_room(store: Store) -> None:
    first, second = named(), named()
    assert await store.insert(first, caps=()) == first.id
    assert await store.insert(second, caps=FULL) == first.id
    assert await store.load(OWNER, second.id, now=EPOCH) is None
    assert await count(store) == 1


async def test_what_has_ended_still_stands_for_its_name(store: Store) -> None:
    first = named()
    await keep(store, first)
    assert await store.swap(after(first, CallSucceeded(result="{}", tool_error=False)), expected=0)
    assert await store.insert(named(), caps=()) == first.id


def unsent(record: TaskRecord, *, really: bool = True) -> TaskRecord:
    """The record after its call failed, without having left."""
    return after(record, CallFaulted(error="{}", reason=FaultReason.QUEUE, message="no", unsent=really))


async def test_what_ended_without_its_call_having_left_leaves_its_name_free(store: Store) -> None:
    first = named()
    await keep(store, first)
    assert await store.swap(unsent(first), expected=0)
    assert await store.repeated(OWNER, "key", now=EPOCH) is None
    second = named()
    assert await store.insert(second, caps=()) == second.id
    assert await store.insert(named(), caps=()) == second.id
    found = await store.load(OWNER, first.id, now=EPOCH, bodies=True)
    assert found is not None
    assert found.idempotency_digest is None


async def test_what_failed_and_may_have_run_still_stands_for_its_name(store: Store) -> None:
    first = named()
    await keep(store, first)
    assert await store.swap(unsent(first, really=False), expected=0)
    assert await store.insert(named(), caps=()) == first.id


async def test_a_name_that_was_left_is_not_taken_from_who_has_it_now(store: Store) -> None:
    first, second = named(ttl=SOON), named(created_at=EPOCH + SOON)
    await keep(store, first, second)
    assert await store.swap(unsent(first), expected=0)
    assert await store.repeated(OWNER, "key", now=EPOCH + SOON) == second.id
    await store.purge(now=EPOCH + SOON, limit=9)
    assert await store.repeated(OWNER, "key", now=EPOCH + SOON) == second.id


async def test_an_expired_record_is_removed_after_a_later_one_has_left_their_name(store: Store) -> None:
    first, second = named(ttl=SOON), named(created_at=EPOCH + SOON)
    await keep(store, first, second)
    assert await store.swap(unsent(second), expected=0)
    assert [one.id for one in await store.purge(now=EPOCH + SOON, limit=9)] == [first.id]
    assert await count(store) == 1


@pytest.mark.parametrize("owner", [OwnerKey("somebody", OWNER.mount), OwnerKey(OWNER.context, "elsewhere")])
async def test_a_name_is_its_owners_alone(store: Store, owner: OwnerKey) -> None:
    await keep(store, named())
    other = named(owner=owner)
    assert await store.insert(other, caps=()) == other.id
    assert await store.repeated(owner, "key", now=EPOCH) == other.id


async def test_another_name_is_another_record(store: Store) -> None:
    await keep(store, named())
    for key in ("other", "", "\ud800", "key\0"):
        other = named(key)
        assert await store.insert(other, caps=()) == other.id
        assert await store.repeated(OWNER, key, now=EPOCH) == other.id


async def test_a_name_is_free_again_when_its_record_expires_though_it_is_not_purged(store: Store) -> None:
    first = named(ttl=SOON)
    await keep(store, first)
    before, later = named(created_at=first.expires_at - SOON / 2), named(created_at=first.expires_at)
    assert await store.insert(before, caps=()) == first.id
    assert await store.insert(later, caps=()) == later.id
    assert await store.insert(named(created_at=first.expires_at), caps=()) == later.id
    # The purge of the first one leaves the name to the second.
    (purged,) = await store.purge(now=first.expires_at, limit=9)
    assert purged.id == first.id
    assert await store.repeated(OWNER, "key", now=first.expires_at) == later.id


async def test_a_name_is_free_again_when_its_record_is_purged(store: Store) -> None:
    first = named(ttl=SOON)
    await keep(store, first)
    await store.purge(now=first.expires_at, limit=9)
    assert await store.repeated(OWNER, "key", now=EPOCH) is None
    second = named()
    assert await store.insert(second, caps=()) == second.id


async def test_a_name_can_be_looked_up_until_its_record_expires(store: Store) -> None:
    first = named(ttl=SOON)
    assert await store.repeated(OWNER, "key", now=EPOCH) is None
    await keep(store, first)
    assert await store.repeated(OWNER, "key", now=first.expires_at - SOON / 2) == first.id
    assert await store.repeated(OWNER, "key", now=first.expires_at) is None
    assert await store.repeated(OWNER, "other", now=EPOCH) is None
    assert await store.repeated(OwnerKey("b", "c"), "key", now=EPOCH) is None


async def test_what_a_cap_refuses_leaves_its_name_free(store: Store) -> None:
    with pytest.raises(TooManyTasks):
        await store.insert(named(), caps=FULL)
    second = named()
    assert await store.insert(second, caps=()) == second.id


async def test_of_many_of_a_name_that_come_at_once_one_is_kept_and_stands_for_all(store: Store) -> None:
    records = [named(f"key-{number % 4}") for number in range(200)]
    async with bounded():
        ids = await asyncio.gather(*(store.insert(record, caps=()) for record in records))
    assert len(set(ids)) == await count(store) == 4
    for number, id in enumerate(ids):
        assert id == ids[number % 4]
        assert await store.load(OWNER, id, now=EPOCH) is not None


async def test_a_name_that_comes_while_it_is_looked_up_is_found_once_it_is_kept(store: Store) -> None:
    first = named()
    async with bounded():
        stands, found = await asyncio.gather(store.insert(first, caps=()), store.repeated(OWNER, "key", now=EPOCH))
    assert stands == first.id
    assert found in (None, first.id)
    assert await store.repeated(OWNER, "key", now=EPOCH) == first.id


async def test_a_record_comes_back_with_its_name_and_terms(store: Store) -> None:
    record = named(tenant="t", deadline=timedelta(minutes=5), reruns=2, status=TaskStatus.WORKING)
    await keep(store, record)
    assert await store.load(OWNER, record.id, now=EPOCH, bodies=True) == record
