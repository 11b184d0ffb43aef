"""The interval that is advised: longer where a server is busy or a task old, a little different for each."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from taskgate.domain import polling as domain
from taskgate.domain.polling import PollPolicy

MILLISECOND = timedelta(milliseconds=1)


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
