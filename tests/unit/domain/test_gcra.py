"""The cell rate algorithm against a bucket that is filled and emptied in fractions, which are never rounded."""

from fractions import Fraction
from math import inf, isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.domain.rates import TOLERANCE, RateLimit, gcra

TICK = 1 / 1024
"""Seconds that a float adds up exactly."""

# Ticks that pass before a request, and what it costs.
schedules = st.lists(st.tuples(st.integers(0, 4096), st.integers(1, 6)), max_size=60)
limits = st.builds(RateLimit, every=st.integers(1, 2048).map(lambda ticks: ticks * TICK), burst=st.integers(1, 8))


class Bucket:
    """Tokens drop in at a steady pace until it is full; who finds too few takes none."""

    def __init__(self, limit: RateLimit) -> None:
        self.every, self.burst = Fraction(limit.every), limit.burst
        self.tokens, self.at = Fraction(limit.burst), Fraction(0)

    def take(self, now: Fraction, cost: int) -> bool:
        self.tokens = min(Fraction(self.burst), self.tokens + (now - self.at) / self.every)
        self.at = now
        if self.tokens < cost:
            return False
        self.tokens -= cost
        return True


@given(limits, schedules)
def test_it_says_what_a_bucket_of_tokens_says(limit: RateLimit, schedule: list[tuple[int, int]]) -> None:
    bucket, tat, ticks = Bucket(limit), None, 0
    for passed, cost in schedule:
        ticks += passed
        now = ticks * TICK
        verdict, tat = gcra(tat, now, limit, cost)
        assert verdict.allowed == bucket.take(Fraction(now), cost)
        assert verdict.remaining == int(bucket.tokens)
        assert isclose(verdict.reset_after, (bucket.burst - bucket.tokens) * bucket.every, abs_tol=TOLERANCE)
        if verdict.allowed:
            assert verdict.retry_after == 0
        elif cost > limit.burst:
            assert verdict.retry_after == inf
        else:
            assert isclose(verdict.retry_after, (cost - bucket.tokens) * bucket.every, abs_tol=TOLERANCE)


moments = st.floats(0, 1e7)


@given(moments, st.floats(0.001, 3600), st.integers(1, 50), st.data())
def test_the_same_passes_after_the_time_that_was_told_and_not_before(
    start: float, every: float, burst: int, data: st.DataObject
) -> None:
    limit, tat, now = RateLimit(every=every, burst=burst), None, start
    for _ in range(burst + 1):
        now += data.draw(st.floats(0, every / (burst + 1)))
        cost = data.draw(st.integers(1, burst))
        verdict, tat = gcra(tat, now, limit, cost)
        if not verdict.allowed:
            assert gcra(tat, now + verdict.retry_after, limit, cost)[0].allowed
            assert not gcra(tat, now + verdict.retry_after - 10 * TOLERANCE, limit, cost)[0].allowed


@pytest.mark.parametrize("every", [0.2, 0.1, 1 / 3, 0.7, 6.0, 0.001])
@pytest.mark.parametrize("start", [0.0, 0.1, 1234.567, 1e6 + 0.3])
def test_a_burst_is_as_long_as_it_is_said_to_be(every: float, start: float) -> None:
    """Sums of fractions end beside what they should be, and must not take the last of a burst away."""
    limit, tat, remaining = RateLimit(every=every, burst=60), None, []
    for _ in range(61):
        verdict, tat = gcra(tat, start, limit)
        remaining.append((verdict.allowed, verdict.remaining))
    assert remaining == [*((True, left) for left in range(59, -1, -1)), (False, 0)]


@pytest.mark.parametrize("start", [0.0, 0.1, 1234.567, 1e6 + 0.3])
def test_a_steady_pace_at_the_rate_goes_on_for_ever(start: float) -> None:
    limit, tat = RateLimit(every=0.1, burst=1), None
    for beat in range(10_000):
        verdict, tat = gcra(tat, start + beat * 0.1, limit)
        assert verdict.allowed
    assert not gcra(tat, start + 9_999.5 * 0.1, limit)[0].allowed


def test_what_is_refused_changes_nothing() -> None:
    limit = RateLimit(every=1.0, burst=1)
    verdict, tat = gcra(None, 0.0, limit)
    assert verdict.allowed
    refused, after = gcra(tat, 0.25, limit)
    assert (refused.allowed, refused.retry_after, refused.reset_after, after) == (False, 0.75, 0.75, tat)


def test_more_than_ever_is_there_is_never_allowed() -> None:
    limit = RateLimit(every=1.0, burst=2)
    verdict, tat = gcra(None, 5.0, limit, 3)
    assert (verdict.allowed, verdict.remaining, verdict.retry_after, tat) == (False, 2, inf, 5.0)


def test_nothing_costs_nothing() -> None:
    limit = RateLimit(every=1.0, burst=2)
    _, tat = gcra(None, 5.0, limit, 2)
    verdict, after = gcra(tat, 5.5, limit, 0)
    assert (verdict.allowed, verdict.remaining, verdict.reset_after, after) == (True, 0, 1.5, tat)


def test_what_was_owed_long_ago_is_forgotten() -> None:
    limit = RateLimit(every=1.0, burst=3)
    _, tat = gcra(None, 0.0, limit, 3)
    assert gcra(tat, 1_000_000.0, limit)[0] == gcra(None, 1_000_000.0, limit)[0]


def test_what_is_owed_to_a_slower_limit_counts_for_no_more_than_all_units_of_this_one() -> None:
    slow, fast, tat = RateLimit(every=3600.0, burst=5), RateLimit(every=0.1, burst=5), None
    for _ in range(5):
        _, tat = gcra(tat, 0.0, slow)
    verdict, tat = gcra(tat, 1.0, fast)
    assert (verdict.allowed, verdict.remaining) == (False, 0)
    assert isclose(verdict.retry_after, 0.1, abs_tol=TOLERANCE)
    assert isclose(verdict.reset_after, 0.5, abs_tol=TOLERANCE)
    assert gcra(tat, 1.1, fast)[0].allowed


@given(moments, st.floats(0.001, 60), st.integers(1, 20), st.floats(0, 60))
def test_what_is_taken_ahead_has_turns_one_after_the_other_and_none_later_than_it_may(
    start: float, every: float, burst: int, ahead: float
) -> None:
    limit, tat, turns = RateLimit(every=every, burst=burst, ahead=ahead), None, []
    for _ in range(burst + 50):
        verdict, tat = gcra(tat, start, limit)
        if not verdict.allowed:
            # It passes at once after the time that it is told.
            assert gcra(tat, start + verdict.retry_after, limit)[0].retry_after == 0.0
            assert verdict.retry_after > ahead
            break
        turns.append(verdict.retry_after)
    assert turns[:burst] == [0.0] * burst
    for place, turn in enumerate(turns[burst:], start=1):
        assert isclose(turn, place * every, abs_tol=100 * TOLERANCE)
        assert turn <= ahead + TOLERANCE


def test_what_was_taken_ahead_is_owed_also_to_what_only_looks() -> None:
    limit, tat = RateLimit(every=1.0, burst=2, ahead=3.0), None
    for _ in range(5):
        _, tat = gcra(tat, 0.0, limit)
    verdict, after = gcra(tat, 0.0, limit, 0)
    assert (verdict.remaining, verdict.reset_after, after) == (0, 5.0, 5.0)
    # Without `ahead`, the debt is cut to what the limit can owe.
    assert gcra(tat, 0.0, RateLimit(every=1.0, burst=2), 0)[1] == 2.0


def test_a_debt_that_is_more_than_may_be_taken_ahead_is_of_another_limit_and_counts_as_the_burst() -> None:
    assert gcra(3600.0, 0.0, RateLimit(every=1.0, burst=2, ahead=3.0), 0)[1] == 2.0
