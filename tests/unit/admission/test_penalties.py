"""Who looks for too many tasks that are not theirs is kept out for a while, whoever else comes meanwhile."""

import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.admission.lookup_guard import PenaltyBox


def penalties(threshold: int = 2, window: float = 60, penalty: float = 300, size: int = 3) -> PenaltyBox:
    return PenaltyBox(threshold, timedelta(seconds=window), timedelta(seconds=penalty), size)


def fail(box: PenaltyBox, context: str, *times: float) -> list[bool]:
    return [box.add_failure(context, now) for now in times]


# --- into the box -----------------------------------------------------------------------------------------------------


def test_more_than_twenty_failures_in_a_minute_cost_five_minutes() -> None:
    box = PenaltyBox()
    assert fail(box, "a", *range(21)) == [False] * 20 + [True]
    assert box.remaining("a", 20) == 300
    assert box.remaining("a", 319.5) == 0.5
    assert box.remaining("a", 320) == 0
    assert not any(fail(box, "b", 0, *[60] * 20))


def test_ten_thousand_contexts_are_remembered_unless_told_otherwise() -> None:
    for others, is_remembered in ((9_999, True), (10_000, False)):
        box = PenaltyBox()
        fail(box, "a", *[0] * 20)
        for number in range(others):
            box.add_failure(f"other {number}", 1)
        assert fail(box, "a", 2) == [is_remembered]


def test_who_stays_at_the_threshold_is_left_alone() -> None:
    box = penalties()
    assert fail(box, "a", 0, 1, 60, 61, 120, 121) == [False] * 6
    assert box.remaining("a", 121) == 0


def test_a_failure_counts_for_less_than_the_window() -> None:
    assert fail(penalties(), "a", 0, 1, 59.9) == [False, False, True]
    assert fail(penalties(), "a", 0, 1, 60) == [False, False, False]


def test_one_task_counts_once_in_the_window() -> None:
    box = penalties()
    assert [box.add_failure("a", 0, "one") for _ in range(9)] == [False] * 9
    assert [box.add_failure("a", 1, task) for task in ("two", "one", "three")] == [False, False, True]
    assert [box.add_failure("b", now, "one") for now in (0, 60, 61, 120)] == [False] * 4


def test_failures_in_one_moment_count() -> None:
    assert fail(penalties(), "a", 7, 7, 7) == [False, False, True]


def test_with_a_threshold_of_none_the_first_failure_is_one_too_many() -> None:
    assert fail(penalties(threshold=0), "a", 5) == [True]


def test_one_context_is_not_punished_for_another() -> None:
    box = penalties()
    assert fail(box, "a", 0, 1) == fail(box, "b", 2, 3) == [False, False]
    assert fail(box, "a", 4) == [True]
    assert box.remaining("b", 4) == 0
    assert box.remaining("unknown", 4) == 0


# --- in the box, and out of it ----------------------------------------------------------------------------------------


def test_failures_in_the_box_are_no_news_and_make_nothing_longer() -> None:
    box = penalties()
    assert fail(box, "a", 0, 0, 0, 1, 2, 299) == [False, False, True, False, False, False]
    assert box.remaining("a", 299) == 1


def test_after_the_penalty_the_count_starts_from_nothing() -> None:
    box = penalties(window=1000)
    assert fail(box, "a", 0, 1, 2, 200, 302, 303, 304) == [False, False, True, False, False, False, True]
    assert box.remaining("a", 304) == 300


def test_the_number_in_the_box_is_told() -> None:
    box = penalties()
    assert box.count(0) == 0
    fail(box, "a", 0, 0, 0)
    fail(box, "b", 10, 10, 10)
    assert [box.count(now) for now in (10, 299, 300, 309, 310)] == [2, 2, 1, 1, 0]


# --- what is remembered -----------------------------------------------------------------------------------------------


def test_the_context_whose_last_failure_is_longest_ago_is_forgotten_for_a_new_one() -> None:
    box = penalties(size=2)
    fail(box, "a", 0)
    fail(box, "b", 1)
    fail(box, "a", 2)
    fail(box, "new", 3)
    assert fail(box, "a", 4) == [True]
    assert fail(box, "b", 5, 6) == [False, False]


def test_a_known_context_pushes_nobody_out() -> None:
    box = penalties(size=2)
    fail(box, "a", 0, 1)
    fail(box, "b", 2, 3)
    assert fail(box, "b", 4) == [True]
    assert fail(box, "a", 5) == [True]


def test_many_newcomers_let_nobody_out_of_the_box() -> None:
    box = penalties(size=3)
    fail(box, "a", 0, 0, 0)
    for number in range(1000):
        box.add_failure(f"new {number}", 1)
    assert box.remaining("a", 1) == 299


def test_from_a_box_that_is_full_the_one_goes_whose_penalty_would_end_first_and_only_that_one() -> None:
    box = penalties(size=2)
    fail(box, "a", 0, 0, 0)
    fail(box, "b", 1, 1, 1)
    assert fail(box, "new", 2) == [False]
    assert (box.remaining("a", 2), box.remaining("b", 2)) == (0, 299)
    for number in range(1000):
        box.add_failure(f"new {number}", 3)
    assert box.remaining("b", 3) == 298
    assert fail(box, "last", 4, 4, 4) == [False, False, True]
    assert (box.remaining("last", 4), box.remaining("b", 4)) == (300, 297)


def test_whose_penalty_is_over_makes_room_before_anybody_is_forgotten() -> None:
    box = penalties(size=2)
    fail(box, "a", 0, 0, 0)
    fail(box, "b", 299, 299)
    fail(box, "new", 300)
    assert fail(box, "b", 301) == [True]


def test_one_place_is_enough_to_be_put_into_the_box() -> None:
    box = penalties(size=1)
    assert fail(box, "a", 0, 1, 2) == [False, False, True]
    assert box.remaining("a", 2) == 300


# --- against a model that keeps everything ----------------------------------------------------------------------------


class NaiveBox:
    """All failures that still may count, in one list in order, and all penalties: slow, and plainly right."""

    def __init__(self, threshold: int, window: int, penalty: int, size: int) -> None:
        self.threshold, self.window, self.penalty, self.size = threshold, window, penalty, size
        self.failures: list[tuple[str, int]] = []
        self.penalties: list[tuple[str, int]] = []

    def failed(self, context: str, now: int) -> bool:
        if self.left(context, now):
            return False
        running = [(one, end) for one, end in self.penalties if end > now]
        last = list(dict.fromkeys(one for one, _ in reversed(self.failures) if one != context))
        crowded = len(running) + len(last) + 1 > self.size
        if crowded and last:
            self.failures = [one for one in self.failures if one[0] != last[-1]]
        elif crowded:
            running.remove(min(running, key=lambda one: one[1]))
        self.penalties = running
        self.failures.append((context, now))
        counted = [at for one, at in self.failures if one == context and at > now - self.window]
        if len(counted) <= self.threshold:
            return False
        self.failures = [one for one in self.failures if one[0] != context]
        self.penalties.append((context, now + self.penalty))
        return True

    def left(self, context: str, now: int) -> int:
        return next((end - now for one, end in self.penalties if one == context and end > now), 0)


steps = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 4)), max_size=80)


@given(
    threshold=st.integers(0, 3),
    window=st.integers(1, 10),
    penalty=st.integers(1, 20),
    size=st.integers(1, 6),
    steps=steps,
)
def test_the_box_agrees_with_a_model_that_keeps_everything(
    threshold: int, window: int, penalty: int, size: int, steps: list[tuple[str, int]]
) -> None:
    box, model = penalties(threshold, window, penalty, size), NaiveBox(threshold, window, penalty, size)
    now = 0
    for context, pause in steps:
        now += pause
        assert box.add_failure(context, now) is model.failed(context, now)
        assert [box.remaining(one, now) for one in "abcde"] == [model.left(one, now) for one in "abcde"]
        assert box.count(now) == sum(model.left(one, now) > 0 for one in "abcde")


@pytest.mark.parametrize("threshold", [0, 20, 10_000])
def test_memory_is_bounded_by_contexts_and_by_failures(threshold: int) -> None:
    """Whether each context comes once, or one comes again and again."""
    box, sizes = penalties(threshold=threshold, penalty=1e6, size=5), list[int]()
    for number in range(2000):
        for context in (f"{number:04}", "again"):
            box.add_failure(context, number * 5.0)
        sizes.append(len(pickle.dumps(box)))
    assert max(sizes[1000:]) <= max(sizes[:1000])


def test_other_numbers_count_from_now_on_and_let_nobody_out() -> None:
    box = penalties(threshold=0, window=10, penalty=100, size=5)
    assert box.add_failure("early", 0)
    box.adjust(1, timedelta(seconds=20), timedelta(seconds=5))
    assert box.remaining("early", 1) == 99
    assert [box.add_failure("late", 1), box.add_failure("late", 15)] == [False, True]
    assert box.remaining("late", 15) == 5


def test_a_penalty_that_is_over_behind_a_longer_one_is_over() -> None:
    box = penalties(threshold=0, window=10, penalty=100, size=5)
    box.add_failure("long", 0)
    box.adjust(0, timedelta(seconds=10), timedelta(seconds=5))
    assert box.add_failure("short", 0)
    assert not box.add_failure("short", 4)
    assert box.add_failure("short", 5)
    assert box.remaining("short", 5) == 5
