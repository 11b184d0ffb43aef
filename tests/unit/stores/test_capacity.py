"""What caps count: unfinished tasks of each scope until they expire, and stored bytes."""

from typing import Any

import pytest

from helpers.memory_kept import memory_kept
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.record import Faulted, FaultReason, Outcome, Succeeded
from taskgate.errors import TooManyBytes, TooManyTasks
from taskgate.stores.capacity import MOST_UNUSED, CapKeys, StoreUsage, stored_size

MINE = CapKeys("context", "subject", "tenant", "tool", "upstream")


def at_most(limit: int, scope: CapScope = CapScope.CONTEXT, **changes: Any) -> tuple[Cap, ...]:
    return (Cap(scope=scope, limit=limit, **changes),)


@pytest.mark.parametrize("scope", CapScope)
def test_every_scope_counts_what_shares_it(scope: CapScope) -> None:
    room, place = StoreUsage(), list(CapScope).index(scope)
    shares = CapKeys(*(key if at == place else f"other {key}" for at, key in enumerate(MINE)))
    room.add_task(shares, 10)
    refusal = room.refusal(MINE, at_most(1, scope), 9)
    assert isinstance(refusal, TooManyTasks)
    assert (refusal.limit, refusal.scope) == (1, scope.value)
    assert room.refusal(MINE, at_most(1, scope), 10) is None
    assert room.refusal(MINE, at_most(2, scope), 9) is None
    for other in CapScope:
        assert other is scope or room.refusal(MINE, at_most(1, other), 9) is None
    room.remove_task(shares, 10)
    assert room.refusal(MINE, at_most(1, scope), 9) is None


@pytest.mark.parametrize(
    ("scope", "whose"),
    [
        (CapScope.CONTEXT, "this caller (1 of 1)"),
        (CapScope.TENANT, "the tenant (limit 1)"),
        (CapScope.TOOL, "the tool, from all callers (limit 1)"),
        (CapScope.UPSTREAM, "the server, from all callers (limit 1)"),
        (CapScope.GLOBAL, "all callers (limit 1)"),
    ],
)
def test_a_refusal_says_whose_tasks_are_too_many(scope: CapScope, whose: str) -> None:
    """Where a model reads the text alone, it is to know whether tasks of its own are in the way."""
    usage = StoreUsage()
    usage.add_task(MINE, 10)
    told = f"Too many unfinished tasks of {whose}: wait until one ends, or cancel one"
    assert str(usage.refusal(MINE, at_most(1, scope), 0)) == told


@pytest.mark.parametrize("missing", ["tenant", "tool", "upstream"])
def test_what_a_record_has_not_is_shared_with_nobody(missing: str) -> None:
    room, shares = StoreUsage(), MINE._replace(**{missing: None})
    room.add_task(shares, 10)
    assert room.refusal(shares, at_most(0, CapScope(missing)), 0) is None
    assert room.refusal(MINE, at_most(1, CapScope(missing)), 0) is None
    assert room.refusal(shares, at_most(1), 0) is not None
    room.remove_task(shares, 10)
    assert room.refusal(shares, at_most(1), 0) is None


def test_the_first_cap_without_room_refuses() -> None:
    room = StoreUsage()
    room.add_task(MINE, 10)
    room.add_bytes(MINE, 5)
    caps = (*at_most(2), *at_most(1, CapScope.UPSTREAM), *at_most(1, CapScope.GLOBAL), *at_most(5, bytes=True))
    refusals = [room.refusal(MINE, caps[place:], 0) for place in range(5)]
    scopes = [(type(refusal), refusal.scope) for refusal in refusals if refusal is not None]
    assert scopes == [
        (TooManyTasks, "upstream"),
        (TooManyTasks, "upstream"),
        (TooManyTasks, "global"),
        (TooManyBytes, "context"),
    ]
    assert refusals[-1] is None


def test_bytes_are_kept_of_a_context_of_its_person_and_of_all() -> None:
    room = StoreUsage()
    # The reference of a person may be that of one of its contexts.
    other, stranger = CapKeys("subject", "subject", None, None, None), CapKeys("stranger", None, None, None, None)
    room.add_bytes(MINE, 4)
    room.add_bytes(other, 3)
    room.add_bytes(stranger, 2)
    for scope, kept in ((CapScope.CONTEXT, 4), (CapScope.SUBJECT, 7), (CapScope.GLOBAL, 9)):
        refusal = room.refusal(MINE, at_most(kept, scope, bytes=True), 0)
        assert isinstance(refusal, TooManyBytes)
        assert (refusal.limit, refusal.scope) == (kept, scope.value)
        assert room.refusal(MINE, at_most(kept + 1, scope, bytes=True), 0) is None
    room.add_bytes(stranger, -2)
    room.add_bytes(other, -3)
    room.add_bytes(MINE, -4)
    assert room.refusal(MINE, at_most(1, bytes=True), 0) is None
    assert room.refusal(MINE, at_most(1, CapScope.GLOBAL, bytes=True), 0) is None


def test_where_nothing_may_be_kept_nothing_is_taken() -> None:
    assert isinstance(StoreUsage().refusal(MINE, at_most(0, bytes=True), 0), TooManyBytes)


@pytest.mark.parametrize(
    ("params", "outcome", "size"),
    [
        (None, None, 0),
        ("abc", None, 3),
        ("\xe4\N{ROCKET}\ud800", None, 2 + 4 + 3),
        (None, Succeeded(result="abcd", tool_error=True), 4),
        ("abc", Faulted(error="\xe4", reason=FaultReason.CLOSED), 5),
    ],
)
def test_bodies_count_in_the_bytes_that_they_are_stored_in(
    params: str | None, outcome: Outcome | None, size: int
) -> None:
    assert stored_size(params, outcome) == size


# --- unfinished tasks of a key ----------------------------------------------------------------------------------------


def of(context: bytes) -> CapKeys:
    return CapKeys(context, None, None, None, None)


def unfinished(*tasks: tuple[bytes, int]) -> StoreUsage:
    """The usage by tasks of those contexts that expire then."""
    usage = StoreUsage()
    for context, expires in tasks:
        usage.add_task(of(context), expires)
    return usage


def count(usage: StoreUsage, context: bytes, now: int) -> int:
    """How many unfinished tasks of the context count: the lowest cap with room, less one."""
    return next(most for most in range(9) if usage.refusal(of(context), at_most(most + 1), now) is None)


def test_each_context_is_counted_by_itself() -> None:
    usage = unfinished((b"a", 10), (b"b", 10), (b"a", 10), (b"b", 5), (b"c", 7))
    assert [count(usage, context, 0) for context in (b"a", b"b", b"c", b"d")] == [2, 2, 1, 0]


def test_what_has_expired_counts_no_more_whatever_the_order_it_came_in() -> None:
    usage = unfinished(*((b"a", expires) for expires in (30, 10, 20, 10)))
    assert [count(usage, b"a", now) for now in (0, 9, 10, 19, 20, 29, 30, 31)] == [4, 4, 2, 2, 1, 1, 0, 0]


def test_one_of_several_that_expire_together_is_removed() -> None:
    usage = unfinished((b"a", 10), (b"a", 10), (b"a", 20))
    usage.remove_task(of(b"a"), 10)
    assert [count(usage, b"a", now) for now in (9, 10, 20)] == [2, 1, 0]


def test_a_context_can_come_again_after_its_last_task() -> None:
    usage = unfinished((b"a", 10))
    usage.remove_task(of(b"a"), 10)
    assert count(usage, b"a", 0) == 0
    usage.add_task(of(b"a"), 20)
    assert count(usage, b"a", 0) == 1


@pytest.mark.parametrize(("context", "expires"), [(b"a", 5), (b"a", 15), (b"a", 25), (b"b", 10)])
def test_what_was_never_added_is_passed_over(context: bytes, expires: int) -> None:
    usage = unfinished((b"a", 10), (b"a", 20))
    usage.remove_task(of(context), expires)
    assert count(usage, b"a", 0) == 2


def test_a_task_is_counted_however_many_others_come_and_go() -> None:
    """Keys without a task are forgotten some day; those that it shares with them are not."""
    usage = StoreUsage()
    usage.add_task(MINE, 10)
    for number in range(2 * MOST_UNUSED):
        others = MINE._replace(context=f"other {number}")
        usage.add_task(others, 20)
        assert isinstance(usage.refusal(MINE, at_most(2, CapScope.TOOL), 0), TooManyTasks)
        usage.remove_task(others, 20)
        assert usage.refusal(MINE, at_most(2, CapScope.TOOL), 0) is None
    first = MINE._replace(context="other 0")
    usage.add_task(first, 20)
    assert isinstance(usage.refusal(first._replace(tool="another"), at_most(1), 0), TooManyTasks)
    assert usage.refusal(MINE, at_most(2), 0) is None
    assert isinstance(usage.refusal(MINE, at_most(1), 0), TooManyTasks)
    usage.remove_task(MINE, 10)
    assert usage.refusal(MINE, at_most(1), 0) is None


def test_only_keys_with_tasks_take_memory() -> None:
    kept = []

    def others(count: int) -> None:
        kept.append(usage := StoreUsage())
        for number in range(count):
            keys = MINE._replace(context=f"other {number}", tool=f"tool {number}")
            usage.add_task(keys, 20)
            usage.remove_task(keys, 20)

    assert memory_kept(lambda: others(20 * MOST_UNUSED)) < 2 * memory_kept(lambda: others(MOST_UNUSED))
