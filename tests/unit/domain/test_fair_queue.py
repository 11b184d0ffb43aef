"""Whoever waits has a turn in each round, and no context takes what others need, however much one sends."""

import sys
import time
from collections import Counter, defaultdict, deque
from types import CodeType
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.domain.fair_queue import FairQueue, reserved_permits

CONTEXTS = ("ann", "bob", "cleo", "dora")
LIMIT = 12

# A context that puts an item, None for a turn, a number for the one of those that wait that leaves.
queue_histories = st.lists(st.one_of(st.sampled_from(CONTEXTS), st.none(), st.integers(0, LIMIT)), max_size=80)


def filled(*contexts: str, size: int = 1000) -> "FairQueue[str]":
    """One permit, and items that wait for it, named after their context and how many it has."""
    permits: FairQueue[str] = FairQueue(1, size)
    counts: Counter[str] = Counter()
    for context in contexts:
        counts[context] += 1
        assert permits.enqueue(context, f"{context}{counts[context]}")
    return permits


def turn(permits: "FairQueue[str]") -> str | None:
    """The item whose turn it is, which gives its permit back at once."""
    item = permits.grant()
    if item is not None:
        permits.release(item.rstrip("0123456789-"))
    return item


def drained(permits: "FairQueue[str]") -> list[str]:
    """All that waits, in the order of the turns."""
    taken = []
    while (item := turn(permits)) is not None:
        taken.append(item)
    return taken


# --- the queue --------------------------------------------------------------------------------------------------------


def test_many_items_of_one_context_do_not_go_before_one_of_another() -> None:
    permits = filled("a", "a", "a", "b", "a", "b", "c")
    assert list(permits.order()) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]
    assert drained(permits) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]
    assert len(permits) == 0


def test_a_context_that_comes_back_is_the_last_of_the_round() -> None:
    permits = filled("a", "b", "c")
    assert turn(permits) == "a1"
    assert permits.enqueue("a", "a2")
    assert drained(permits) == ["b1", "c1", "a2"]


def test_nothing_is_granted_where_nothing_waits() -> None:
    assert FairQueue[str](1, 1).grant() is None


def test_no_more_wait_than_may_but_for_what_must() -> None:
    permits = filled("a", "b", size=2)
    assert not permits.enqueue("c", "c1")
    assert permits.enqueue("c", "c1", must=True)
    assert not permits.enqueue("c", "c2")
    assert len(permits) == 3
    permits.adjust(1, 4, share=1, reserved=0)
    assert permits.enqueue("c", "c2")


def test_an_item_leaves_from_wherever_it_is() -> None:
    permits = filled("a", "a", "a", "b")
    assert permits.withdraw("a2")
    assert not permits.withdraw("a2")
    assert permits.withdraw("b1")
    assert "b1" not in permits
    assert "a3" in permits
    assert drained(permits) == ["a1", "a3"]
    assert not permits.withdraw("a1")


def test_what_is_ahead_counts_turns_and_not_who_came_first() -> None:
    permits = filled("a", "a", "a", "b", "c", "c")
    assert [permits.ahead(item) for item in ("a1", "b1", "c1", "a2", "c2", "a3")] == [0, 1, 2, 3, 4, 5]


def test_what_is_ahead_may_count_those_that_have_left_from_between_until_it_is_first() -> None:
    permits = filled("a", "a", "a", "a", "b", "b", "b")
    permits.withdraw("a2")
    permits.withdraw("a3")
    # One of its own and, for all that it can tell, one more of the other; never too few.
    assert permits.ahead("a4") == 2
    turn(permits)
    assert [permits.ahead("b1"), permits.ahead("a4")] == [0, 1]


@given(queue_histories)
def test_a_queue_is_bounded_in_order_and_fair_whatever_happens(history: list[str | int | None]) -> None:
    permits: FairQueue[str] = FairQueue(1, LIMIT)
    own: dict[str, deque[str]] = defaultdict(deque)
    others_turns: dict[str, Counter[str]] = {}
    for number, step in enumerate(history):
        waiting = [item for items in own.values() for item in items]
        if isinstance(step, str):
            item = f"{step}-{number}"
            assert permits.enqueue(step, item) is (len(waiting) < LIMIT)
            if len(waiting) < LIMIT:
                if not own[step]:
                    others_turns[step] = Counter()
                own[step].append(item)
        elif step is None:
            taken = turn(permits)
            assert (taken is None) is (not waiting)
            if taken is not None:
                # First of its own, and no context has had a second turn while this one waited for its first.
                context = taken.split("-")[0]
                assert own[context].popleft() == taken
                assert all(turns <= 1 for turns in others_turns[context].values())
                for turns in others_turns.values():
                    turns[context] += 1
                others_turns[context].clear()
        elif step < len(waiting):
            assert permits.withdraw(waiting[step])
            own[waiting[step].split("-")[0]].remove(waiting[step])
        assert len(permits) == sum(map(len, own.values()))


@given(queue_histories)
def test_what_is_said_to_be_ahead_is_never_too_little_of_a_single_permit(history: list[str | int | None]) -> None:
    permits: FairQueue[str] = FairQueue(1, LIMIT)
    waiting: list[str] = []
    left = False
    for number, step in enumerate(history):
        if isinstance(step, str):
            if permits.enqueue(step, f"{step}-{number}"):
                waiting.append(f"{step}-{number}")
        elif step is None:
            taken = turn(permits)
            if taken is not None:
                waiting.remove(taken)
        elif step < len(waiting):
            left = True
            permits.withdraw(waiting.pop(step))
        order = list(permits.order())
        assert sorted(order) == sorted(waiting)
        for place, item in enumerate(order):
            assert place <= permits.ahead(item) < len(order)
            assert left or permits.ahead(item) == place
    order = list(permits.order())
    assert [turn(permits) for _ in waiting] == order


def test_one_context_alone_leaves_room_for_others_where_there_is_much() -> None:
    permits: FairQueue[str] = FairQueue(0, 256)
    assert sum(permits.enqueue("greedy", f"g{number}") for number in range(300)) == 228
    assert sum(permits.enqueue("other", f"o{number}") for number in range(300)) == 25
    assert permits.enqueue("third", "t1")
    permits.adjust(9, 256, share=9, reserved=0)
    for _ in range(9):
        assert permits.grant()
    assert permits.enqueue("other", "o300")


def test_of_a_short_queue_one_context_may_have_all() -> None:
    for size in range(9):
        permits: FairQueue[str] = FairQueue(0, size)
        assert sum(permits.enqueue("alone", f"a{number}") for number in range(20)) == size


# --- the permits ------------------------------------------------------------------------------------------------------


def test_one_of_every_eight_permits_is_for_those_who_have_none_and_none_of_fewer() -> None:
    assert {limit: reserved_permits(limit) for limit in (0, 1, 2, 4, 7, 8, 15, 16, 32, 100)} == {
        0: 0, 1: 0, 2: 0, 4: 0, 7: 0, 8: 1, 15: 1, 16: 2, 32: 4, 100: 12
    }  # fmt: skip


def test_permits_that_are_lent_go_back_when_another_context_calls() -> None:
    permits: FairQueue[str] = FairQueue(16, 64, reserved=2)
    for number in range(16):
        permits.acquire("alone") or permits.enqueue("alone", f"alone{number}")
    assert permits.can_lend
    permits.lend()
    assert not permits.can_lend
    assert (permits.grant(), permits.in_use, permits.kept, permits.changes) == ("alone14", 15, 1, 1)
    assert permits.grant() is None
    # The one that is never lent is for the next that comes, at once.
    assert permits.acquire("other")
    assert (permits.kept, permits.changes) == (2, 2)
    granted = []
    for _ in range(3):
        permits.release("alone")
        granted.append(permits.grant())
    # Two are reserved again.
    assert granted == [None, None, "alone15"]


def test_of_what_is_kept_each_context_has_one_until_others_give_back() -> None:
    permits: FairQueue[str] = FairQueue(8, 8, reserved=2)
    assert [permits.acquire("greedy") for _ in range(8)] == [True] * 6 + [False] * 2
    assert [permits.acquire("ann"), permits.acquire("ann"), permits.acquire("bob")] == [True, False, True]
    assert not permits.acquire("cleo")
    assert permits.in_use == 8


def test_a_share_shrinks_as_others_come_and_is_whole_again_when_they_left() -> None:
    permits: FairQueue[str] = FairQueue(8, 64, share=3, reserved=1)
    for number in range(20):
        permits.acquire("greedy") or permits.enqueue("greedy", f"greedy{number}")
    assert permits.acquire("modest")
    for number in range(3):
        permits.enqueue("modest", f"modest{number}")
    granted = []
    for _ in range(5):
        permits.release("greedy")
        granted.append(permits.grant())
    # The first to be free is kept; then the other has its share, and then each of them one in turn.
    assert granted == [None, "modest0", "modest1", "greedy7", "modest2"]
    for _ in range(4):
        permits.release("modest")
    while permits.grant():
        pass
    assert (permits.in_use, permits.reserved) == (7, 1)


def test_a_context_may_have_another_share_and_loses_it_where_it_comes_back_without() -> None:
    permits: FairQueue[str] = FairQueue(4, 64, share=1)
    for context in ("gold", "gold", "plain", "plain"):
        assert permits.acquire(context)
    permits.enqueue("plain", "plain1")
    permits.enqueue("gold", "gold1", share=4)
    permits.release("plain")
    assert permits.grant() == "gold1"
    permits.enqueue("gold", "gold2", share=4)
    permits.enqueue("gold", "gold3")
    permits.release("gold")
    assert permits.grant() == "plain1"


def test_other_bounds_count_at_once_for_those_who_wait() -> None:
    permits: FairQueue[str] = FairQueue(4, 64, share=8, reserved=2)
    for context in ("ann", "ann", "bob"):
        assert permits.acquire(context)
    permits.enqueue("ann", "ann1")
    permits.enqueue("bob", "bob1")
    assert permits.grant() is None
    permits.adjust(4, 64, share=2, reserved=0)
    assert [permits.grant(), permits.grant()] == ["bob1", None]
    permits.adjust(2, 64, share=2, reserved=0)
    assert (permits.grant(), permits.in_use, permits.acquire("cleo")) == (None, 4, False)


class Act(NamedTuple):
    """A context asks for a permit, gives one back, or withdraws what waits; or the operator sets other bounds."""

    kind: str
    context: str
    number: int


acts = st.builds(
    Act, st.sampled_from(("ask", "ask", "ask", "give", "give", "leave", "adjust")),
    st.sampled_from(CONTEXTS), st.integers(0, 9)
)  # fmt: skip


@given(st.integers(1, 9), st.integers(0, 3), st.integers(1, 4), st.lists(acts, max_size=120))
def test_no_permit_is_lost_or_out_twice_and_nobody_without_one_is_passed_by(
    limit: int, kept: int, share: int, history: list[Act]
) -> None:
    permits: FairQueue[str] = FairQueue(limit, 1000, share=share, reserved=kept)
    held: Counter[str] = Counter()
    waiting: dict[str, deque[str]] = {context: deque() for context in CONTEXTS}
    # Of each context that waits without a permit: who had one granted since.
    passed: dict[str, Counter[str]] = {}
    for number, act in enumerate(history):
        if act.kind == "ask":
            if permits.acquire(act.context):
                held[act.context] += 1
                assert not any(waiting[each] for each in CONTEXTS if not held[each])
            else:
                waiting[act.context].append(f"{act.context}-{number}")
                assert permits.enqueue(act.context, f"{act.context}-{number}")
        elif act.kind == "give" and held[act.context]:
            held[act.context] -= 1
            assert permits.release(act.context) is any(waiting.values())
        elif act.kind == "leave" and waiting[act.context]:
            assert permits.withdraw(waiting[act.context].pop())
        elif act.kind == "adjust":
            limit, kept, share = max(limit, act.number), act.number % 3, 1 + act.number % 4
            permits.adjust(limit, 1000, share=share, reserved=kept)
        while (item := permits.grant()) is not None:
            context = item.split("-")[0]
            free = limit - held.total()
            assert waiting[context].popleft() == item, "items of one context leave in order"
            assert not held[context] or free > kept, "what is kept is for those who have none"
            less = [each for each in CONTEXTS if each != context and waiting[each] and held[each] < share]
            assert held[context] < share or not less, "whoever has its share waits for those who have less"
            held[context] += 1
            for others in passed.values():
                others[context] += 1
        passed = {each: passed.get(each, Counter()) for each in CONTEXTS if waiting[each] and not held[each]}
        assert all(most <= 1 for others in passed.values() for most in others.values()), "nobody has two meanwhile"
        assert permits.in_use == held.total() <= limit
        assert len(permits) == sum(map(len, waiting.values()))
        free = limit - held.total()
        assert free <= 0 or not any(waiting[each] and (not held[each] or free > kept) for each in CONTEXTS)
    for context in CONTEXTS:
        while held[context]:
            held[context] -= 1
            permits.release(context)
        while waiting[context]:
            permits.withdraw(waiting[context].pop())
    assert (permits.in_use, len(permits)) == (0, 0)


# --- growth -----------------------------------------------------------------------------------------------------------


def lines_of_one_turn(contexts: int) -> int:
    """How many lines of the module are executed for a call that waits, has its turn and ends, while so many wait."""
    permits: FairQueue[str] = FairQueue(1, 10 * contexts)
    assert permits.acquire("c0")
    for number in range(contexts):
        for item in range(3):
            permits.enqueue(f"c{number}", f"c{number}-{item}")
    count, code = 0, FairQueue.grant.__code__.co_filename

    def count_line(frame: object, event: str, _: object) -> object:
        nonlocal count
        found: CodeType = frame.f_code  # type: ignore[attr-defined]
        count += event == "line" and found.co_filename == code
        return count_line if found.co_filename == code else None

    before = sys.gettrace()
    sys.settrace(count_line)  # type: ignore[arg-type]
    try:
        assert permits.enqueue("last", "last-0")
        permits.release("c0")
        granted = permits.grant()
        permits.withdraw("last-0")
    finally:
        sys.settrace(before)
    assert granted == "c1-0"
    return count


def test_the_next_permit_costs_the_same_whether_a_hundred_or_three_thousand_callers_wait() -> None:
    assert lines_of_one_turn(100) == lines_of_one_turn(3_000) > 10


@pytest.mark.thorough
def test_a_turn_takes_no_longer_for_a_hundred_thousand_contexts() -> None:
    def seconds(contexts: int) -> float:
        permits: FairQueue[str] = FairQueue(contexts, contexts, reserved=0)
        for number in range(contexts):
            permits.enqueue(str(number), str(number))
        begun = time.process_time()
        for _ in range(contexts):
            permits.grant()
        return (time.process_time() - begun) / contexts

    # A search would take hundreds of times as long; a busy machine does not.
    assert seconds(100_000) < 25 * seconds(1_000) + 1e-6


def test_permits_and_waiting_items_are_told_by_context() -> None:
    permits: FairQueue[str] = FairQueue(2, 3)
    assert permits.acquire("a")
    assert permits.acquire("a")
    assert permits.enqueue("a", "a1")
    assert permits.enqueue("b", "b1")
    assert permits.usage() == {"a": (2, 1), "b": (0, 1)}
    permits.release("a")
    assert permits.grant() == "b1"
    assert permits.usage() == {"a": (1, 1), "b": (1, 0)}
