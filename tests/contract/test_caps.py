"""Caps: all of them have room, in one step with the insert, or nothing is kept."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from contract.backends import Backend
from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_call, new_record
from helpers.waiting import bounded
from requirements import covers
from taskgate.domain.events import CancelRequested
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.record import OwnerKey, TaskRecord, TaskStatus
from taskgate.errors import TooManyTasks
from taskgate.stores.base import Store


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


@covers("T40")
async def test_concurrent_inserts_never_exceed_the_cap(store: Store) -> None:
    async with bounded():
        ends = await asyncio.gather(
            *(store.insert(new_record(), caps=at_most(3)) for _ in range(40)), return_exceptions=True
        )
    assert len([end for end in ends if isinstance(end, str)]) == 3
    assert all(isinstance(end, TooManyTasks) for end in ends if not isinstance(end, str))
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
    assert ends[1:] == [record.id for record in others]


# --- every scope -----------------------------------------------------------------------------------------------------

# Of each scope: a record that shares it with FIRST and nothing else but the whole store, and one that does not.
FIRST: dict[str, Any] = {"owner": OwnerKey("a", "x"), "tenant": "t", "call": new_call(tool="build")}
NEAR: dict[CapScope, dict[str, Any]] = {
    CapScope.CONTEXT: {"owner": OwnerKey("a", "y"), "tenant": "u", "call": new_call(tool="other")},
    CapScope.TENANT: {"owner": OwnerKey("b", "y"), "tenant": "t", "call": new_call(tool="other")},
    CapScope.TOOL: {"owner": OwnerKey("b", "x"), "tenant": "u", "call": new_call(tool="build")},
    CapScope.UPSTREAM: {"owner": OwnerKey("b", "x"), "tenant": "u", "call": new_call(tool="other")},
    CapScope.GLOBAL: {"owner": OwnerKey("b", "y"), "tenant": "u", "call": new_call(tool="other")},
}
FAR: dict[CapScope, tuple[dict[str, Any], ...]] = {
    CapScope.CONTEXT: ({"owner": OwnerKey("b", "x"), "tenant": "t"},),
    CapScope.TENANT: ({"owner": OwnerKey("a", "x"), "tenant": "u"}, {"owner": OwnerKey("a", "x"), "tenant": None}),
    CapScope.TOOL: ({"owner": OwnerKey("a", "y"), "tenant": "t"}, {"call": new_call(tool="other")}),
    CapScope.UPSTREAM: ({"owner": OwnerKey("a", "y"), "tenant": "t"},),
    CapScope.GLOBAL: (),
}


def scoped(scope: CapScope, limit: int) -> tuple[Cap, ...]:
    return (Cap(scope=scope, limit=limit),)


@pytest.mark.parametrize("scope", CapScope)
async def test_a_cap_lets_in_what_is_below_it_and_no_more(store: Store, scope: CapScope) -> None:
    await store.insert(new_record(**FIRST), caps=scoped(scope, 3))
    await store.insert(new_record(**NEAR[scope]), caps=scoped(scope, 3))
    await store.insert(new_record(**FIRST), caps=scoped(scope, 3))
    for limit in (3, 2, 0):
        with pytest.raises(TooManyTasks) as refusal:
            await store.insert(new_record(**NEAR[scope]), caps=scoped(scope, limit))
        assert (refusal.value.limit, refusal.value.scope) == (limit, scope.value)
    await store.insert(new_record(**NEAR[scope]), caps=scoped(scope, 4))


@pytest.mark.parametrize(
    ("scope", "changes"), [(scope, changes) for scope, others in FAR.items() for changes in others]
)
async def test_what_does_not_share_the_scope_takes_no_room(
    store: Store, scope: CapScope, changes: dict[str, Any]
) -> None:
    await keep(store, *(new_record(**{**FIRST, **changes}) for _ in range(3)))
    await store.insert(new_record(**FIRST), caps=scoped(scope, 1))


async def test_records_without_a_tenant_share_none(store: Store) -> None:
    await keep(store, new_record(), new_record())
    await store.insert(new_record(), caps=scoped(CapScope.TENANT, 1))


@pytest.mark.parametrize("scope", CapScope)
async def test_concurrent_inserts_of_every_scope_are_exactly_as_many_as_may_be(store: Store, scope: CapScope) -> None:
    records = [new_record(**(FIRST if number % 2 else NEAR[scope])) for number in range(200)]
    async with bounded():
        ends = await asyncio.gather(
            *(store.insert(record, caps=scoped(scope, 17)) for record in records), return_exceptions=True
        )
    kept = [record for record, end in zip(records, ends, strict=True) if end == record.id]
    assert len(kept) == 17
    assert sum(isinstance(end, TooManyTasks) for end in ends) == 200 - 17
    assert (await store.census()).tasks[TaskStatus.WORKING] == 17
    async with bounded():
        await asyncio.gather(*(store.swap(after(record, CancelRequested()), expected=0) for record in kept[:5]))
        ends = await asyncio.gather(
            *(store.insert(new_record(**NEAR[scope]), caps=scoped(scope, 17)) for _ in range(50)),
            return_exceptions=True,
        )
    assert sum(isinstance(end, str) for end in ends) == 5


def counted(record: TaskRecord) -> dict[CapScope, Any]:
    """What a record shares with others, by scope."""
    (context, mount), tool = record.owner, record.call.tool
    return dict(zip(CapScope, (context, record.tenant, (mount, tool), mount, None), strict=True))


@pytest.mark.parametrize("tight", CapScope)
async def test_caps_of_all_scopes_are_held_at_once(store: Store, backend: Backend, tight: CapScope) -> None:
    limits = {scope: 6 if scope is tight else 25 for scope in CapScope}
    caps = tuple(Cap(scope=scope, limit=limit) for scope, limit in limits.items())
    kinds = [FIRST, *NEAR.values()]
    records = [new_record(**kinds[number % len(kinds)]) for number in range(200)]
    async with bounded():
        ends = await asyncio.gather(*(store.insert(record, caps=caps) for record in records), return_exceptions=True)
    # One after another, by hand: where others may come in between, only what all of them came to can be told.
    counts: Counter[tuple[CapScope, Any]] = Counter()
    if backend.server is not None:
        kept = [record for record, end in zip(records, ends, strict=True) if end == record.id]
        counts = Counter(item for record in kept for item in counted(record).items())
        assert all(count <= limits[scope] for (scope, _), count in counts.items())
    for record, end in zip(records, ends, strict=True):
        full = [scope for scope, limit in limits.items() if counts[scope, counted(record)[scope]] >= limit]
        if isinstance(end, TooManyTasks):
            assert end.scope in full
            assert end.scope == full[0].value or backend.server is not None
        else:
            assert end == record.id
            assert not full or backend.server is not None
            if backend.server is None:
                counts.update(counted(record).items())
    assert tight.value in {error.scope for error in ends if isinstance(error, TooManyTasks)}
