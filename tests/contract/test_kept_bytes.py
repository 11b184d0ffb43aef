"""Caps on what is kept: nothing new is taken once it reaches them, and a result always is."""

import asyncio
from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_call, new_peer, new_record
from helpers.waiting import bounded
from taskgate.domain.events import CallFaulted, CallSucceeded, CancelRequested
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.record import FaultReason, OwnerKey
from taskgate.errors import TooManyBytes, TooManyTasks
from taskgate.stores.base import Store


def kept_below(limit: int, scope: CapScope = CapScope.CONTEXT) -> tuple[Cap, ...]:
    return (Cap(scope=scope, limit=limit, bytes=True),)


async def kept(store: Store, owner: OwnerKey = OWNER, scope: CapScope = CapScope.CONTEXT) -> int:
    """How many bytes are kept, found by asking for room above and below."""
    low, high = 0, 1 << 20
    while low < high:
        limit = (low + high + 1) // 2
        # A cap of tasks without room stands behind: nothing is stored whatever the first says.
        caps = (*kept_below(limit, scope), Cap(scope=CapScope.GLOBAL, limit=0))
        with pytest.raises((TooManyBytes, TooManyTasks)) as refusal:
            await store.insert(new_record(owner=owner), caps=caps)
        low, high = (limit, high) if isinstance(refusal.value, TooManyBytes) else (low, limit - 1)
    return low


async def test_an_insert_is_refused_once_what_is_kept_reaches_the_limit(store: Store) -> None:
    await store.insert(new_record(params="x" * 10), caps=kept_below(1))
    refused = new_record()
    with pytest.raises(TooManyBytes) as refusal:
        await store.insert(refused, caps=kept_below(10))
    assert (refusal.value.limit, refusal.value.scope) == (10, "context")
    assert await store.load(OWNER, refused.id, now=EPOCH) is None
    await store.insert(new_record(params="x" * 10), caps=kept_below(11))
    assert await kept(store) == 20


@pytest.mark.parametrize("scope", [CapScope.CONTEXT, CapScope.GLOBAL])
async def test_bytes_are_those_of_parameters_and_outcomes_as_they_are_stored(store: Store, scope: CapScope) -> None:
    record, other = new_record(params="\xe4" * 5), new_record(params=None, owner=OwnerKey("somebody", "else"))
    await keep(store, record, other)
    assert await kept(store, scope=scope) == 10
    assert await store.swap(after(record, CallSucceeded(result="x" * 7, tool_error=False)), expected=0)
    faulted = CallFaulted(error="y" * 3, reason=FaultReason.CLOSED, message="gone")
    assert await store.swap(after(other, faulted), expected=0)
    assert await kept(store, scope=scope) == (17 if scope is CapScope.CONTEXT else 20)
    assert await kept(store, other.owner) == 3


@pytest.mark.parametrize(("declared", "counted"), [(800, 0), (10_000, 10_000 - 1024)], ids=["usual", "much"])
async def test_what_a_host_declares_counts_where_it_is_much(store: Store, declared: int, counted: int) -> None:
    peer = new_peer(capabilities={"experimental": {"a": "x" * declared}})
    await keep(store, new_record(call=new_call(peer=peer), params="x" * 10))
    # Besides there are the names, the revision and who the host is.
    assert 10 + counted <= await kept(store) < 10 + counted + 200


async def test_an_outcome_is_kept_however_little_room_there_is(store: Store) -> None:
    record = new_record(params="x" * 10)
    await store.insert(record, caps=kept_below(1))
    assert await store.swap(after(record, CallSucceeded(result="x" * 100, tool_error=False)), expected=0)
    assert await kept(store) == 110


async def test_what_ended_expired_or_was_cancelled_takes_its_bytes_until_it_is_purged(store: Store) -> None:
    cancelled, expires = new_record(params="x" * 5), new_record(params="x" * 6, ttl=timedelta(seconds=1))
    await keep(store, cancelled, expires)
    assert await store.swap(after(cancelled, CancelRequested()), expected=0)
    late = new_record(created_at=expires.expires_at, params=None)
    with pytest.raises(TooManyBytes):
        await store.insert(late, caps=kept_below(11))
    assert len(await store.purge(now=expires.expires_at, limit=9)) == 1
    assert await kept(store) == 5
    assert len(await store.purge(now=cancelled.expires_at, limit=9)) == 1
    assert await kept(store) == 0


async def test_concurrent_inserts_keep_no_more_than_one_beyond_the_limit(store: Store) -> None:
    async with bounded():
        ends = await asyncio.gather(
            *(store.insert(new_record(params="x" * 100), caps=kept_below(950)) for _ in range(40)),
            return_exceptions=True,
        )
    assert sum(isinstance(end, str) for end in ends) == 10
    assert sum(isinstance(end, TooManyBytes) for end in ends) == 30
