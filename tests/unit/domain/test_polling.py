"""The interval that is advised: longer where a server is busy or a task old, a little different for each."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.domain import polling as domain
from taskgate.domain.polling import PollPolicy

SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)
USUAL = PollPolicy(base=2 * SECOND, least=SECOND / 2, most=30 * SECOND)
EVEN = PollPolicy(base=2 * SECOND, least=SECOND / 2, most=30 * SECOND, jitter=0.0)
NO_AGE = timedelta()


def advised_interval(
    policy: PollPolicy, *, utilization: float, age: timedelta, last: timedelta | None, chance: float
) -> timedelta:
    """What is advised, as a span of time."""
    before = None if last is None else last // MILLISECOND
    advised = domain.advised_interval(
        policy, utilization=utilization, age=age.total_seconds(), last=before, chance=chance
    )
    assert isinstance(advised, int)
    return advised * MILLISECOND


spans = st.timedeltas(min_value=MILLISECOND, max_value=timedelta(hours=2))
chances = st.floats(min_value=0, max_value=1, exclude_max=True)
loads = st.floats(min_value=0, max_value=50)
ages = st.timedeltas(min_value=timedelta(days=-1), max_value=timedelta(days=400))


@st.composite
def pollings(draw: st.DrawFn) -> PollPolicy:
    least, base, most = sorted(draw(st.lists(spans, min_size=3, max_size=3)))
    whole = [span // MILLISECOND * MILLISECOND for span in (least, base, most)]
    return PollPolicy(
        base=whole[1],
        least=whole[0],
        most=whole[2],
        jitter=draw(st.floats(min_value=0, max_value=0.99)),
        target=draw(st.floats(min_value=0.01, max_value=1)),
    )


@pytest.mark.parametrize(
    ("utilization", "seconds"),
    [(0.0, 2.0), (0.35, 2.0), (0.7, 2.0), (1.4, 8.0), (2.1, 18.0), (2.8, 30.0), (100.0, 30.0)],
)
def test_up_to_the_target_it_is_the_base_and_above_it_grows_with_the_square(utilization: float, seconds: float) -> None:
    interval = advised_interval(EVEN, utilization=utilization, age=NO_AGE, last=None, chance=0.0)
    assert abs(interval - seconds * SECOND) <= MILLISECOND


def test_it_grows_by_a_hundredth_of_the_age_of_the_task() -> None:
    def advised(age: timedelta) -> timedelta:
        return advised_interval(EVEN, utilization=0, age=age, last=None, chance=0)

    assert advised(timedelta(seconds=100)) == 3 * SECOND
    assert advised(timedelta(hours=1)) == 30 * SECOND
    # A clock was set back.
    assert advised(timedelta(seconds=-100)) == 2 * SECOND


@pytest.mark.parametrize(("chance", "milliseconds"), [(0.0, 1800), (0.5, 2000), (0.999, 2199)])
def test_it_differs_from_task_to_task_by_the_jitter_at_most(chance: float, milliseconds: int) -> None:
    assert advised_interval(USUAL, utilization=0, age=NO_AGE, last=None, chance=chance) == milliseconds * MILLISECOND


def test_at_its_longest_it_still_differs() -> None:
    told = [
        advised_interval(USUAL, utilization=100, age=NO_AGE, last=None, chance=chance) for chance in (0.0, 0.25, 0.75)
    ]
    assert told == [27 * SECOND, 28.5 * SECOND, 30 * SECOND]


def test_what_cannot_be_written_in_binary_is_no_millisecond_less() -> None:
    odd = PollPolicy(base=1001 * MILLISECOND, least=MILLISECOND, most=2 * SECOND, jitter=0.0)
    assert advised_interval(odd, utilization=0, age=NO_AGE, last=None, chance=0) == 1001 * MILLISECOND


def test_it_shrinks_by_half_at_most_from_one_answer_to_the_next() -> None:
    def advised(last: timedelta) -> timedelta:
        return advised_interval(EVEN, utilization=0, age=NO_AGE, last=last, chance=0)

    assert advised(4999 * MILLISECOND) == 2500 * MILLISECOND
    assert [advised(last * SECOND) for last in (20, 5, 4, 3)] == [10 * SECOND, 2.5 * SECOND, 2 * SECOND, 2 * SECOND]


def test_new_bounds_of_the_operator_hold_at_once() -> None:
    assert advised_interval(EVEN, utilization=0, age=NO_AGE, last=timedelta(hours=1), chance=0) == 30 * SECOND


def test_where_it_is_not_adaptive_it_is_the_base_for_everybody() -> None:
    fixed = PollPolicy(base=2 * SECOND, least=SECOND, most=30 * SECOND, adaptive=False)
    assert advised_interval(fixed, utilization=9, age=timedelta(days=1), last=30 * SECOND, chance=0.9) == 2 * SECOND


@given(polling=pollings(), load=loads, age=ages, last=st.none() | spans, chance=chances)
def test_it_is_whole_milliseconds_within_the_bounds(
    polling: PollPolicy, load: float, age: timedelta, last: timedelta | None, chance: float
) -> None:
    interval = advised_interval(polling, utilization=load, age=age, last=last, chance=chance)
    assert polling.least <= interval <= polling.most
    assert interval % MILLISECOND == timedelta()


@given(polling=pollings(), load=loads, age=ages, last=spans, chance=chances)
def test_it_is_never_less_than_half_of_the_last_within_the_bounds(
    polling: PollPolicy, load: float, age: timedelta, last: timedelta, chance: float
) -> None:
    interval = advised_interval(polling, utilization=load, age=age, last=last, chance=chance)
    assert 2 * interval >= min(last // MILLISECOND * MILLISECOND, 2 * polling.most)


@given(polling=pollings(), loads=st.tuples(loads, loads), ages=st.tuples(ages, ages), chance=chances)
def test_more_load_or_age_never_makes_it_shorter(
    polling: PollPolicy, loads: tuple[float, float], ages: tuple[timedelta, timedelta], chance: float
) -> None:
    one, other = [
        advised_interval(polling, utilization=load, age=age, last=None, chance=chance)
        for load, age in zip(sorted(loads), sorted(ages), strict=True)
    ]
    assert one <= other


def test_an_interval_that_varies_is_never_below_the_least() -> None:
    least = PollPolicy(base=2 * SECOND, least=2 * SECOND, most=30 * SECOND)
    assert advised_interval(least, utilization=0, age=NO_AGE, last=None, chance=0.0) == 2 * SECOND
