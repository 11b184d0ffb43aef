"""Whoever waits has a turn in each round, however many others wait, and however much of them does."""

import time
from collections import Counter, defaultdict, deque

from hypothesis import given
from hypothesis import strategies as st

from taskgate.limits.fairness import FairQueue

CONTEXTS = ("ann", "bob", "cleo", "dora")
LIMIT = 12

# A context that puts an item, None for a turn, a number for the one of those that wait that leaves.
histories = st.lists(st.one_of(st.sampled_from(CONTEXTS), st.none(), st.integers(0, LIMIT)), max_size=80)


def filled(*contexts: str, limit: int = 1000) -> "FairQueue[str]":
    """A queue in which one item of each waits, named after its context and how many it has."""
    queue: FairQueue[str] = FairQueue(limit)
    counts: Counter[str] = Counter()
    for context in contexts:
        counts[context] += 1
        assert queue.put(context, f"{context}{counts[context]}")
    return queue


def drained(queue: "FairQueue[str]") -> list[str]:
    """All that waits, in the order in which it is taken."""
    taken = []
    while (item := queue.take()) is not None:
        taken.append(item)
    return taken


def test_many_items_of_one_context_do_not_go_before_one_of_another() -> None:
    queue = filled("a", "a", "a", "b", "a", "b", "c")
    assert drained(queue) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]
    assert len(queue) == 0


def test_a_context_that_comes_back_is_the_last_of_the_round() -> None:
    queue = filled("a", "b", "c")
    assert queue.take() == "a1"
    assert queue.put("a", "a2")
    assert drained(queue) == ["b1", "c1", "a2"]


def test_nothing_is_taken_where_nothing_waits() -> None:
    assert FairQueue[str](1).take() is None


def test_no_more_wait_than_may_but_for_what_must() -> None:
    queue = filled("a", "b", limit=2)
    assert not queue.put("c", "c1")
    assert queue.put("c", "c1", must=True)
    assert not queue.put("c", "c2")
    assert len(queue) == 3
    queue.limit = 4
    assert queue.put("c", "c2")


def test_an_item_leaves_from_wherever_it_is() -> None:
    queue = filled("a", "a", "a", "b")
    assert queue.remove("a2")
    assert not queue.remove("a2")
    assert queue.remove("b1")
    assert "b1" not in queue
    assert "a3" in queue
    assert drained(queue) == ["a1", "a3"]
    assert not queue.remove("a1")


def test_what_is_ahead_counts_turns_and_not_who_came_first() -> None:
    queue = filled("a", "a", "a", "b", "c", "c")
    assert [queue.ahead(item) for item in ("a1", "b1", "c1", "a2", "c2", "a3")] == [0, 1, 2, 3, 4, 5]


def test_what_is_ahead_may_count_those_that_have_left_from_between_until_it_is_first() -> None:
    queue = filled("a", "a", "a", "a", "b", "b", "b")
    queue.remove("a2")
    queue.remove("a3")
    # One of its own and, for all that it can tell, one more of the other; never too few.
    assert queue.ahead("a4") == 2
    queue.take()
    assert [queue.ahead("b1"), queue.ahead("a4")] == [0, 1]


@given(histories)
def test_a_queue_is_bounded_in_order_and_fair_whatever_happens(history: list[str | int | None]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue(LIMIT)
    own: dict[str, deque[tuple[str, int]]] = defaultdict(deque)
    others_turns: dict[str, Counter[str]] = {}
    for number, step in enumerate(history):
        waiting = [item for items in own.values() for item in items]
        if isinstance(step, str):
            item = (step, number)
            assert queue.put(step, item) is (len(waiting) < LIMIT)
            if len(waiting) < LIMIT:
                if not own[step]:
                    others_turns[step] = Counter()
                own[step].append(item)
        elif step is None:
            taken = queue.take()
            assert (taken is None) is (not waiting)
            if taken is not None:
                # First of its own, and no context has had a second turn while this one waited for its first.
                assert own[taken[0]].popleft() == taken
                assert all(turns <= 1 for turns in others_turns[taken[0]].values())
                others_turns[taken[0]] = Counter()
                for turns in others_turns.values():
                    turns[taken[0]] += 1
                others_turns[taken[0]].clear()
        elif step < len(waiting):
            assert queue.remove(waiting[step])
            own[waiting[step][0]].remove(waiting[step])
        assert len(queue) == sum(map(len, own.values()))


@given(histories)
def test_what_is_said_to_be_ahead_is_never_too_little(history: list[str | int | None]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue(LIMIT)
    waiting: list[tuple[str, int]] = []
    left = False
    for number, step in enumerate(history):
        if isinstance(step, str):
            if queue.put(step, (step, number)):
                waiting.append((step, number))
        elif step is None:
            taken = queue.take()
            if taken is not None:
                waiting.remove(taken)
        elif step < len(waiting):
            left = True
            queue.remove(waiting.pop(step))
        order = list(queue.order())
        assert sorted(order) == sorted(waiting)
        for place, item in enumerate(order):
            assert place <= queue.ahead(item) < len(order)
            assert left or queue.ahead(item) == place
    order = list(queue.order())
    assert [queue.take() for _ in waiting] == order


def test_a_turn_takes_no_longer_for_a_hundred_thousand_contexts() -> None:
    def seconds(contexts: int) -> float:
        queue: FairQueue[int] = FairQueue(contexts)
        for number in range(contexts):
            queue.put(str(number), number)
        begun = time.process_time()
        for _ in range(contexts):
            queue.take()
        return (time.process_time() - begun) / contexts

    # A search would take hundreds of times as long; a busy machine does not.
    assert seconds(100_000) < 25 * seconds(1_000) + 1e-6


def test_one_context_alone_leaves_room_for_others_where_there_is_much() -> None:
    queue: FairQueue[str] = FairQueue(256)
    assert sum(queue.put("greedy", f"g{number}") for number in range(300)) == 228
    assert sum(queue.put("other", f"o{number}") for number in range(300)) == 25
    assert queue.put("third", "t1")
    for _ in range(9):
        queue.take()
    assert queue.put("other", "o300")


def test_of_a_short_queue_one_context_may_have_all() -> None:
    for limit in range(9):
        queue: FairQueue[str] = FairQueue(limit)
        assert sum(queue.put("alone", f"a{number}") for number in range(20)) == limit
