"""The last hour in memory: requests by the second, durations by steps, levels as they change."""

from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock
from helpers.memory_kept import memory_kept
from taskgate.telemetry.history import MINUTES, Counts, Durations, History, Levels

HOUR = 3600


def test_a_sum_has_the_seconds_up_to_now_and_no_earlier_one() -> None:
    counts = Counts()
    for second in range(1000):
        counts.add(second + 0.5)
    assert (counts.sum(999.9), counts.sum(1000.5), counts.sum(1298.9), counts.sum(1299)) == (300, 299, 1, 0)


def test_minutes_end_now_and_the_newest_is_the_last() -> None:
    counts = Counts()
    counts.add(0, 7)
    counts.add(HOUR - 61, 5)
    counts.add(HOUR - 60, 3)
    counts.add(HOUR - 1, 2)
    minutes = counts.minutes(HOUR - 1)
    assert len(minutes) == MINUTES
    assert (minutes[0], minutes[-2:], sum(minutes)) == (7, [5, 5], 17)
    assert sum(counts.minutes(HOUR)) == 10
    assert sum(counts.minutes(3 * HOUR)) == 0


def test_what_is_added_late_counts_now() -> None:
    counts = Counts()
    counts.add(100)
    counts.add(90)
    assert counts.sum(100, 1) == 2


def test_the_largest_level_of_each_minute_is_shown_and_a_level_holds_until_the_next() -> None:
    levels = Levels()
    for second, level in ((0, 4), (30, 9), (60, 2), (3 * 60, 2), (HOUR - 10, 0)):
        levels.note(second, level)
    minutes = levels.minutes(HOUR - 1)
    assert (len(minutes), minutes[:2], set(minutes[2:])) == (MINUTES, [9, 9], {2})
    assert levels.minutes(HOUR + 119)[0] == 2
    assert levels.minutes(HOUR + 119)[-1] == 0
    assert levels.minutes(5 * HOUR) == [0] * MINUTES


def test_levels_before_the_first_one_are_zero() -> None:
    assert Levels().minutes(HOUR) == [0] * MINUTES
    levels = Levels()
    levels.note(HOUR - 90, 3)
    assert levels.minutes(HOUR - 1) == [0] * (MINUTES - 2) + [3, 3]


@pytest.mark.parametrize("seconds", [0.0, 0.0004, 0.001, 0.05, 1.0, 95.4, 3600.0, 86_400.0])
def test_a_duration_is_told_as_at_most_a_fourth_longer(seconds: float) -> None:
    durations = Durations()
    durations.add(5, seconds)
    high = durations.high(5)
    assert high is not None
    assert max(seconds, 0.001) * 0.95 <= high <= max(seconds * 1.3, 0.001)


def test_95_of_100_calls_take_no_longer_than_is_told() -> None:
    durations = Durations()
    for seconds in [0.1] * 95 + [60.0] * 5:
        durations.add(1, seconds)
    high = durations.high(1)
    assert high is not None
    assert high < 0.13
    durations.add(1, 60.0)
    assert (durations.high(1) or 0) > 55


def test_durations_of_a_minute_stand_at_its_place_and_old_ones_are_gone() -> None:
    durations = Durations()
    durations.add(5, 0.001)
    durations.add(HOUR - 1, 10)
    minutes = durations.minutes(HOUR - 1)
    assert (minutes[0], minutes[1:-1]) == (0.001, [None] * (MINUTES - 2))
    assert minutes[-1] == pytest.approx(10, rel=0.3)
    assert durations.minutes(HOUR + 60)[0] is None
    assert durations.high(HOUR + 400) is None


def test_a_peak_within_a_second_is_seen_however_often_levels_are_noted() -> None:
    levels = Levels()
    for half in range(2 * HOUR):
        levels.note(half / 2, half % 2)
    assert levels.minutes(HOUR - 1) == [1] * MINUTES
    peak = Levels()
    peak.note(60.1, 5)
    peak.note(60.2, 0)
    assert peak.minutes(HOUR - 1) == [0, 5, *[0] * (MINUTES - 2)]


def test_memory_does_not_grow_with_requests_or_time() -> None:
    counts, levels, durations = Counts(), Levels(), Durations()

    def go_on(hours: range) -> None:
        for second in range(hours.start * HOUR, hours.stop * HOUR, 5):
            counts.add(second, second % 7)
            levels.note(second, second % 3)
            durations.add(second, second % 11)
            durations.add(second, second % 13)

    go_on(range(2))
    assert memory_kept(lambda: go_on(range(2, 6))) < 20_000 + memory_kept(lambda: go_on(range(6, 8)))


def test_a_history_takes_present_numbers_and_what_was_refused_since() -> None:
    clock, numbers = ManualClock(), {"unfinished": 0, "waiting": 0, "refused": 5}
    history = History(
        unfinished=lambda: numbers["unfinished"],
        waiting=lambda: numbers["waiting"],
        refused=lambda: numbers["refused"],
        clock=clock,
    )
    numbers.update(unfinished=3, waiting=2, refused=9)
    at = history.take()
    taken = (history.unfinished.minutes(at)[-1], history.waiting.minutes(at)[-1], history.refusals.minutes(at)[-1])
    assert taken == (3, 2, 4)
    clock.advance(timedelta(minutes=2))
    numbers.update(unfinished=0, waiting=0)
    at = history.take()
    assert history.unfinished.minutes(at)[-3:] == [3, 3, 3]
    assert history.refusals.minutes(at)[-3:] == [4, 0, 0]
