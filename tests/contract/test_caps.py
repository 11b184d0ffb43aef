"""Caps: all of them have room, in one step with the insert, or nothing is kept."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_record
from helpers.waiting import bounded
from taskgate.errors import TooManyTasks
from taskgate.stores.base import Cap, CapScope, Store
from taskgate.tasks.events import CancelRequested
from taskgate.tasks.record import OwnerKey, TaskStatus


def at_most(*limits: int) -> tuple[Cap, ...]:
    return tuple(Cap(scope=CapScope.CONTEXT, limit=limit) for limit in limits)


async def test_an_insert_at_the_cap_is_refused_and_not_kept(store: Store) -> None:
    await store.insert(new_record(), caps=at_most(2))
    await store.insert(new_record(), caps=at_most(2))
    refused = new_record()
    with pytest.raises(TooManyTasks) as refusal:
        await store.insert(refused, caps=at_most(2))
    assert refusal.value.limit == 2
    assert await store.load(OWNER, refused.id, now=EPOCH) is None
    assert (await store.census()).tasks[TaskStatus.WORKING] == 2


async def test_the_tightest_of_several_caps_refuses(store: Store) -> None:
    await keep(store, new_record())
    with pytest.raises(TooManyTasks) as refusal:
        await store.insert(new_record(), caps=at_most(5, 1, 3))
    assert refusal.value.limit == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"status": TaskStatus.COMPLETED},
        {"status": TaskStatus.FAILED},
        {"status": TaskStatus.CANCELLED},
        {"created_at": EPOCH - timedelta(hours=1)},
        {"owner": OwnerKey("somebody", OWNER.mount)},
    ],
    ids=["completed", "failed", "cancelled", "expired", "of another context"],
)
async def test_what_is_done_expired_or_foreign_takes_no_room(store: Store, changes: dict[str, Any]) -> None:
    await keep(store, new_record(**changes))
    await store.insert(new_record(), caps=at_most(1))


@pytest.mark.parametrize(
    "changes",
    [{"status": TaskStatus.INPUT_REQUIRED}, {"owner": OwnerKey(OWNER.context, "elsewhere")}],
    ids=["waiting for input", "on another mount"],
)
async def test_every_unfinished_task_of_the_context_takes_room(store: Store, changes: dict[str, Any]) -> None:
    await keep(store, new_record(**changes))
    with pytest.raises(TooManyTasks):
        await store.insert(new_record(), caps=at_most(1))


async def test_a_task_that_ends_makes_room(store: Store) -> None:
    record = new_record()
    await keep(store, record)
    assert await store.swap(after(record, CancelRequested()), expected=0)
    await store.insert(new_record(), caps=at_most(1))


async def test_a_task_that_expires_makes_room_before_it_is_purged(store: Store) -> None:
    first = new_record(ttl=timedelta(seconds=1))
    await keep(store, first)
    await store.insert(new_record(created_at=first.expires_at), caps=at_most(1))


async def test_concurrent_inserts_never_exceed_the_cap(store: Store) -> None:
    async with bounded():
        ends = await asyncio.gather(
            *(store.insert(new_record(), caps=at_most(3)) for _ in range(40)), return_exceptions=True
        )
    assert ends.count(None) == 3
    assert all(isinstance(end, TooManyTasks) for end in ends if end is not None)
    assert (await store.census()).tasks[TaskStatus.WORKING] == 3


async def test_a_refusal_leaves_those_who_insert_at_the_same_time_alone(store: Store) -> None:
    others = [new_record(owner=OwnerKey(f"context-{number}", "mount")) for number in range(10)]
    await keep(store, new_record())
    async with bounded():
        ends = await asyncio.gather(
            store.insert(new_record(), caps=at_most(1)),
            *(store.insert(record, caps=at_most(1)) for record in others),
            return_exceptions=True,
        )
    assert isinstance(ends[0], TooManyTasks)
    assert ends[1:] == [None] * 10
