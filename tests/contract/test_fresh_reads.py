"""A head that was read before: a store may cache heads, and must not return an old one."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import HOLDER, OWNER, after, keep, new_lease, new_record
from taskgate.domain.events import CallSucceeded, Dispatched
from taskgate.domain.record import OwnerKey, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import Store
from taskgate.stores.codec import as_head

LATER = EPOCH + timedelta(minutes=10)
MINUTE = timedelta(minutes=1)
ENDED = CallSucceeded(result="{}", tool_error=False)


async def polled(store: Store) -> TaskRecord:
    """A record whose head was read."""
    record = new_record(lease=new_lease())
    await keep(store, record)
    for _ in range(2):
        assert await store.load(OWNER, record.id, now=EPOCH) == as_head(record)
    return record


async def test_a_head_is_new_after_every_swap(store: Store) -> None:
    record = await polled(store)
    for event in (Dispatched(), ENDED):
        moved = after(record, event)
        assert await store.swap(moved, expected=record.revision)
        for _ in range(2):
            assert await store.load(OWNER, record.id, now=EPOCH) == as_head(moved)
        record = moved


async def test_a_head_is_as_it_was_after_a_swap_that_was_lost(store: Store) -> None:
    record = await polled(store)
    assert not await store.swap(after(record, ENDED), expected=7)
    assert await store.load(OWNER, record.id, now=EPOCH) == as_head(record)


async def test_a_head_has_the_lease_that_was_renewed(store: Store) -> None:
    record = await polled(store)
    await store.renew(HOLDER, frozenset({record.id}), LATER)
    head = await store.load(OWNER, record.id, now=EPOCH)
    assert head is not None
    assert head.lease == new_lease(until=LATER)


@pytest.mark.parametrize("dispatched", [False, True])
async def test_a_head_has_the_lease_of_who_took_the_call_over(store: Store, dispatched: bool) -> None:
    record = await polled(store)
    if dispatched:
        assert await store.swap(after(record, Dispatched()), expected=0)
        assert await store.load(OWNER, record.id, now=EPOCH) is not None
    assert await store.lapsed(holder="next", until=LATER + MINUTE, now=LATER, limit=1)
    head = await store.load(OWNER, record.id, now=EPOCH)
    assert head is not None
    assert head.lease == new_lease(holder="next", until=LATER + MINUTE)


async def test_a_head_is_gone_with_a_purge_and_its_id_starts_anew(store: Store) -> None:
    record = await polled(store)
    assert await store.purge(now=record.expires_at, limit=1)
    assert await store.load(OWNER, record.id, now=EPOCH) is None
    new = new_record(id=record.id, status_message="another")
    await keep(store, new)
    assert await store.load(OWNER, record.id, now=EPOCH) == as_head(new)


@pytest.mark.parametrize(
    "owner", [OwnerKey("somebody", OWNER.mount), OwnerKey(OWNER.context, "elsewhere")], ids=["context", "mount"]
)
async def test_a_head_that_its_owner_has_read_is_not_found_by_another(store: Store, owner: OwnerKey) -> None:
    record = await polled(store)
    assert store.recall(owner, record.id, now=EPOCH) is None
    assert await store.load(owner, record.id, now=EPOCH) is None
    assert store.recall(OWNER, record.id, now=EPOCH) in (None, as_head(record))
    assert await store.load(OWNER, record.id, now=EPOCH) == as_head(record)


async def test_a_head_that_was_read_is_not_found_from_the_moment_it_expires(store: Store) -> None:
    record = await polled(store)
    assert store.recall(OWNER, record.id, now=record.expires_at) is None
    assert await store.load(OWNER, record.id, now=record.expires_at) is None
    assert await store.load(OWNER, record.id, now=record.expires_at - timedelta(microseconds=1)) == as_head(record)


async def test_a_read_of_bodies_is_whole_after_a_read_of_the_head_and_the_other_way_round(store: Store) -> None:
    record = await polled(store)
    assert await store.load(OWNER, record.id, now=EPOCH, bodies=True) == record
    assert await store.load(OWNER, record.id, now=EPOCH) == as_head(record)


READS: dict[str, Callable[[Store, TaskRecord], Awaitable[object]]] = {
    "its owner": lambda store, record: store.load(OWNER, record.id, now=EPOCH),
    "another": lambda store, record: store.load(OwnerKey("somebody", "else"), record.id, now=EPOCH),
    "too late": lambda store, record: store.load(OWNER, record.id, now=record.expires_at),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_a_closed_store_tells_no_head_that_was_read(
    store: Store, read: Callable[[Store, TaskRecord], Awaitable[object]]
) -> None:
    record = await polled(store)
    await store.close()
    with pytest.raises(StoreUnavailable):
        await read(store, record)
