"""Swaps: one winner for each revision, and what a swap keeps."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import HOLDER, OWNER, after, in_text, keep, new_lease, new_record
from helpers.waiting import bounded
from taskgate.domain.events import CallFaulted, CallSucceeded, Dispatched, Progressed, ResultRetrieved, TaskEvent
from taskgate.domain.record import FaultReason, TaskRecord
from taskgate.stores.base import Store
from taskgate.stores.codec import as_head

SUCCEEDED = CallSucceeded(result='{"content":[{"type":"text","text":"\ud800"}]}', tool_error=False)
LARGE = CallSucceeded(result='"' + "x" * 1024 * 1024 + '"', tool_error=True, message="a tool's error")
FAULTED = CallFaulted(error='{"code":-32603,"message":"gone"}', reason=FaultReason.CLOSED, message="gone")


async def whole(store: Store, record: TaskRecord) -> TaskRecord | None:
    return in_text(await store.load(record.owner, record.id, now=EPOCH, bodies=True))


@pytest.mark.parametrize("event", [SUCCEEDED, LARGE, FAULTED], ids=["succeeded", "1 MiB", "faulted"])
async def test_a_swap_keeps_the_outcome_beside_the_parameters(store: Store, event: TaskEvent) -> None:
    record = new_record(lease=new_lease())
    await keep(store, record)
    ended = after(record, event)
    assert await store.swap(replace(ended, call=as_head(ended).call), expected=0)
    assert await whole(store, record) == ended
    assert await store.load(OWNER, record.id, now=EPOCH) == as_head(ended)


async def test_a_swap_of_a_head_leaves_the_bodies_as_they_are(store: Store) -> None:
    record = new_record(params='{"kept":true}')
    await keep(store, record)
    moved = after(record, Dispatched(), Progressed(message="half"))
    assert await store.swap(as_head(moved), expected=0)
    assert await whole(store, record) == moved


async def test_a_swap_of_an_ended_head_keeps_the_outcome(store: Store) -> None:
    ended = after(new_record(), SUCCEEDED)
    await keep(store, ended)
    later = replace(ended, revision=2, status_message="seen")
    assert await store.swap(as_head(later), expected=1)
    assert await whole(store, ended) == later


async def test_a_retrieval_is_kept_beside_the_outcome_and_leaves_everything_else(store: Store) -> None:
    record = new_record(params="{}", trace="00-1-2-01")
    await keep(store, record)
    ended = after(record, SUCCEEDED)
    assert await store.swap(ended, expected=0)
    assert await store.swap(as_head(after(ended, ResultRetrieved())), expected=1)
    assert await whole(store, record) == replace(ended, revision=2, retrieved=True)
    assert await store.load(OWNER, record.id, now=EPOCH) == as_head(replace(ended, revision=2, retrieved=True))
    (purged,) = await store.purge(now=record.expires_at, limit=9)
    assert (purged.retrieved, purged.trace) == (True, "00-1-2-01")


async def test_a_swap_of_another_revision_changes_nothing(store: Store) -> None:
    record = new_record(revision=3)
    await keep(store, record)
    for expected in (2, 4, -1):
        assert not await store.swap(after(record, SUCCEEDED), expected=expected)
    assert await whole(store, record) == record


async def test_a_swap_of_a_record_that_never_was_is_lost(store: Store) -> None:
    record = new_record()
    assert not await store.swap(after(record, SUCCEEDED), expected=0)
    assert await whole(store, record) is None


async def test_a_swap_of_a_record_that_was_purged_is_lost(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    await store.purge(now=record.expires_at, limit=1)
    assert not await store.swap(after(record, SUCCEEDED), expected=0)
    assert await whole(store, record) is None


async def test_one_of_many_racers_wins_and_its_record_stays(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    racers = [after(record, Progressed(message=str(number))) for number in range(20)]
    async with bounded():
        won = await asyncio.gather(*(store.swap(racer, expected=0) for racer in racers))
    assert won.count(True) == 1
    assert await whole(store, record) == racers[won.index(True)]


async def test_racers_at_every_revision_make_one_line_of_revisions(store: Store) -> None:
    record = new_record()
    await keep(store, record)

    async def advance_five_times(name: str) -> None:
        done = 0
        while done < 5:
            head = await store.load(OWNER, record.id, now=EPOCH)
            assert head is not None
            done += await store.swap(after(head, Progressed(message=name)), expected=head.revision)

    async with bounded():
        await asyncio.gather(*(advance_five_times(str(number)) for number in range(4)))
    head = await store.load(OWNER, record.id, now=EPOCH)
    assert head is not None
    assert head.revision == 20


async def test_a_swap_does_not_shorten_a_lease_that_was_renewed_meanwhile(store: Store) -> None:
    record, later = new_record(lease=new_lease()), EPOCH + timedelta(minutes=9)
    await keep(store, record)
    await store.renew(HOLDER, frozenset({record.id}), later)
    assert await store.swap(after(record, Dispatched()), expected=0)
    head = await store.load(OWNER, record.id, now=EPOCH)
    assert head is not None
    assert head.lease == new_lease(until=later)


async def test_a_swap_gives_the_lease_to_another_holder(store: Store) -> None:
    record, other = new_record(lease=new_lease()), new_lease(holder="other", until=EPOCH)
    await keep(store, record)
    assert await store.swap(replace(after(record, Dispatched()), lease=other), expected=0)
    head = await store.load(OWNER, record.id, now=EPOCH)
    assert head is not None
    assert head.lease == other
