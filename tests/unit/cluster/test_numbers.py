"""Numbers of words: larger each time, and remembered of as many processes as there may be."""

from datetime import timedelta

from helpers.manual_clock import ManualClock, SeededEntropy
from taskgate.cluster.bus import is_holder
from taskgate.cluster.numbers import MOST, NUMBERED, Numbering, Replays, name_of_numbered


def test_a_number_is_larger_than_the_one_before_though_the_time_goes_back() -> None:
    clock = ManualClock()
    numbering = Numbering(clock.now)
    numbers = [numbering.next(), numbering.next()]
    clock.set_wall(clock.now() - timedelta(days=1))
    numbers.append(numbering.next())
    clock.set_wall(clock.now() + timedelta(days=2))
    numbers += [numbering.next(), numbering.next()]
    assert numbers == sorted(set(numbers))


def test_a_process_that_is_heard_stays_heard_however_its_time_is_set() -> None:
    clock = ManualClock()
    numbering, replays = Numbering(clock.now), Replays(clock.now)
    assert replays.is_new("a", numbering.next())
    clock.set_wall(clock.now() - timedelta(days=1))
    assert replays.is_new("a", numbering.next())
    clock.set_wall(clock.now() + timedelta(days=3))
    assert replays.is_new("a", numbering.next())


def test_of_so_many_processes_the_last_number_is_remembered_and_no_more() -> None:
    clock = ManualClock()
    numbering, replays = Numbering(clock.now), Replays(clock.now)
    numbers = [numbering.next() for _ in range(MOST + 1)]
    for place, number in enumerate(numbers):
        assert replays.is_new(str(place), number)
    assert not replays.is_new(str(MOST), numbers[MOST])
    assert not replays.is_new("1", numbers[1])
    clock.advance(timedelta(minutes=5))
    # Forgotten, but too old to be the first word of anybody.
    assert not replays.is_new("0", numbers[0])


def test_a_process_that_numbers_its_words_has_a_name_that_tells() -> None:
    name = name_of_numbered(SeededEntropy())
    assert is_holder(name)
    assert not Replays(ManualClock().now).is_new(name, None)
    assert Replays(ManualClock().now).is_new("0" * 16, None)
    assert name.endswith(NUMBERED)
