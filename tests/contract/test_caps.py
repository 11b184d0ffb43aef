"""Caps: all of them have room, in one step with the insert, or nothing is kept. An outcome always is."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any, Final

import pytest

from contract.backends import Backend
from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_call, new_peer, new_record
from helpers.waiting import bounded
from requirements import covers
from taskgate.domain.events import CallFaulted, CallSucceeded, CancelRequested
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.record import FaultReason, OwnerKey, TaskRecord, TaskStatus
from taskgate.errors import TooManyBytes, TooManyTasks
from taskgate.stores.base import Store


def at_most(*limits: int) -> tuple[Cap, ...]:
    return tuple(Cap(scope=CapScope.CONTEXT, limit=limit) for limit in limits)


async def test_an_insert_beyond_the_cap_is_refused_and_not_kept(store: Store) -> None:
    await store.insert(new_record(), caps=at_most(2))
    await store.insert(new_record(), caps=at_most(2))
    refused = new_record()
    with pytest.raises(TooManyTasks) as refusal:
        await store.insert(refused, caps=at_most(1))
    assert refusal.value.limit == 1
    assert "(2 of 1)" in str(refusal.value)
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
SUBJECT: Final = "alice"
"""The person of FIRST, and of none of those near it but in the scope SUBJECT, nor of those far from it there."""
NEAR: dict[CapScope, dict[str, Any]] = {
    CapScope.CONTEXT: {"owner": OwnerKey("a", "y"), "tenant": "u", "call": new_call(tool="other")},
    CapScope.SUBJECT: {"owner": OwnerKey("b", "y"), "tenant": "u", "call": new_call(tool="other")},
    CapScope.TENANT: {"owner": OwnerKey("b", "y"), "tenant": "t", "call": new_call(tool="other")},
    CapScope.TOOL: {"owner": OwnerKey("b", "x"), "tenant": "u", "call": new_call(tool="build")},
    CapScope.UPSTREAM: {"owner": OwnerKey("b", "x"), "tenant": "u", "call": new_call(tool="other")},
    CapScope.GLOBAL: {"owner": OwnerKey("b", "y"), "tenant": "u", "call": new_call(tool="other")},
}
FAR: dict[CapScope, tuple[dict[str, Any], ...]] = {
    CapScope.CONTEXT: ({"owner": OwnerKey("b", "x"), "tenant": "t"},),
    CapScope.SUBJECT: ({},),
    CapScope.TENANT: ({"owner": OwnerKey("a", "x"), "tenant": "u"}, {"owner": OwnerKey("a", "x"), "tenant": None}),
    CapScope.TOOL: ({"owner": OwnerKey("a", "y"), "tenant": "t"}, {"call": new_call(tool="other")}),
    CapScope.UPSTREAM: ({"owner": OwnerKey("a", "y"), "tenant": "t"},),
    CapScope.GLOBAL: (),
}


def subject_near(scope: CapScope) -> str:
    """The person of a record near FIRST."""
    return SUBJECT if scope is CapScope.SUBJECT else "bob"


def scoped(scope: CapScope, limit: int) -> tuple[Cap, ...]:
    return (Cap(scope=scope, limit=limit),)


@pytest.mark.parametrize("scope", CapScope)
async def test_a_cap_lets_in_what_is_below_it_and_no_more(store: Store, scope: CapScope) -> None:
    near = subject_near(scope)
    await store.insert(new_record(**FIRST), caps=scoped(scope, 3), subject=SUBJECT)
    await store.insert(new_record(**NEAR[scope]), caps=scoped(scope, 3), subject=near)
    await store.insert(new_record(**FIRST), caps=scoped(scope, 3), subject=SUBJECT)
    for limit in (3, 2, 0):
        with pytest.raises(TooManyTasks) as refusal:
            await store.insert(new_record(**NEAR[scope]), caps=scoped(scope, limit), subject=near)
        assert (refusal.value.limit, refusal.value.scope) == (limit, scope.value)
    await store.insert(new_record(**NEAR[scope]), caps=scoped(scope, 4), subject=near)


@pytest.mark.parametrize(
    ("scope", "changes"), [(scope, changes) for scope, others in FAR.items() for changes in others]
)
async def test_what_does_not_share_the_scope_takes_no_room(
    store: Store, scope: CapScope, changes: dict[str, Any]
) -> None:
    far = "bob" if scope is CapScope.SUBJECT else SUBJECT
    for _ in range(3):
        await store.insert(new_record(**{**FIRST, **changes}), caps=(), subject=far)
    await store.insert(new_record(**FIRST), caps=scoped(scope, 1), subject=SUBJECT)


@pytest.mark.parametrize("scope", [CapScope.SUBJECT, CapScope.TENANT])
async def test_records_without_a_person_or_a_tenant_share_none(store: Store, scope: CapScope) -> None:
    await keep(store, new_record(), new_record())
    await store.insert(new_record(), caps=scoped(scope, 1))


@pytest.mark.parametrize("scope", CapScope)
async def test_concurrent_inserts_of_every_scope_are_exactly_as_many_as_may_be(store: Store, scope: CapScope) -> None:
    near = subject_near(scope)
    records = [new_record(**(FIRST if number % 2 else NEAR[scope])) for number in range(200)]
    async with bounded():
        ends = await asyncio.gather(
            *(
                store.insert(record, caps=scoped(scope, 17), subject=SUBJECT if number % 2 else near)
                for number, record in enumerate(records)
            ),
            return_exceptions=True,
        )
    kept = [record for record, end in zip(records, ends, strict=True) if end == record.id]
    assert len(kept) == 17
    assert sum(isinstance(end, TooManyTasks) for end in ends) == 200 - 17
    assert (await store.census()).tasks[TaskStatus.WORKING] == 17
    async with bounded():
        await asyncio.gather(*(store.swap(after(record, CancelRequested()), expected=0) for record in kept[:5]))
        ends = await asyncio.gather(
            *(store.insert(new_record(**NEAR[scope]), caps=scoped(scope, 17), subject=near) for _ in range(50)),
            return_exceptions=True,
        )
    assert sum(isinstance(end, str) for end in ends) == 5


def counted(record: TaskRecord) -> dict[CapScope, Any]:
    """What a record shares with others, by scope. Here its person is known by its call."""
    (context, mount), tool = record.owner, record.call.tool
    return dict(zip(CapScope, (context, tool, record.tenant, (mount, tool), mount, None), strict=True))


@pytest.mark.parametrize("tight", CapScope)
async def test_caps_of_all_scopes_are_held_at_once(store: Store, backend: Backend, tight: CapScope) -> None:
    limits = {scope: 6 if scope is tight else 25 for scope in CapScope}
    caps = tuple(Cap(scope=scope, limit=limit) for scope, limit in limits.items())
    kinds = [FIRST, *NEAR.values()]
    records = [new_record(**kinds[number % len(kinds)]) for number in range(200)]
    async with bounded():
        ends = await asyncio.gather(
            *(store.insert(record, caps=caps, subject=record.call.tool) for record in records), return_exceptions=True
        )
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


# --- bytes ------------------------------------------------------------------------------------------------------------


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
