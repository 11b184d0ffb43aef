"""The system's clock and chance, and those that tests hold in hand instead."""

import sys
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

import pytest

from helpers.manual_clock import EPOCH, ManualClock, SeededEntropy
from taskgate.clock import Clock, Entropy, SharedClock, SteadyClock, SystemClock, SystemEntropy


def test_the_time_of_day_is_aware_and_in_utc() -> None:
    before = datetime.now(UTC)
    now = SystemClock().now()
    assert before <= now <= datetime.now(UTC)
    assert now.utcoffset() == timedelta(0)


def test_the_stopwatch_never_goes_back() -> None:
    clock = SystemClock()
    readings = [clock.elapsed() for _ in range(100)]
    assert readings == sorted(readings)


@pytest.mark.parametrize("count", [0, 1, 24])
@pytest.mark.parametrize("entropy", [SystemEntropy(), SeededEntropy()], ids=lambda source: type(source).__name__)
def test_a_token_has_as_many_bytes_as_asked_for(entropy: Entropy, count: int) -> None:
    assert len(entropy.token(count)) == count


def test_two_tokens_of_the_system_differ() -> None:
    assert SystemEntropy().token(24) != SystemEntropy().token(24)


def test_tokens_of_several_lengths_have_each_its_own() -> None:
    entropy = SystemEntropy()
    for _ in range(200):
        assert [len(entropy.token(count)) for count in (1, 8, 24, 32, 33, 1024)] == [1, 8, 24, 32, 33, 1024]


def test_no_token_is_given_out_twice_wherever_another_thread_takes_one() -> None:
    entropy, tokens, tracing = SystemEntropy(), list[bytes](), sys.gettrace()

    def take_one(frame: FrameType, *_: object) -> Any:
        # As a thread that runs between two steps of another.
        frame.f_trace_opcodes = True
        tokens.append(entropy.token(16))
        return take_one

    sys.settrace(take_one)
    try:
        for _ in range(200):
            tokens.append(entropy.token(16))
    finally:
        sys.settrace(tracing)
    assert len(set(tokens)) == len(tokens) > 1000


def test_time_in_hand_stands_still_until_it_is_moved(clock: ManualClock) -> None:
    held: Clock = clock
    assert (held.now(), held.now(), held.elapsed()) == (EPOCH, EPOCH, 0.0)
    assert clock.advance(timedelta(seconds=1.5)) == held.now() == EPOCH + timedelta(seconds=1.5)
    assert held.elapsed() == 1.5


def test_a_wall_clock_that_is_set_back_leaves_the_stopwatch_alone(clock: ManualClock) -> None:
    clock.advance(timedelta(seconds=2))
    assert clock.set_wall(EPOCH - timedelta(days=1)) == clock.now() == EPOCH - timedelta(days=1)
    assert clock.elapsed() == 2.0


@pytest.mark.parametrize("days", [400, -400])
def test_steady_time_passes_as_the_stopwatch_says_however_the_wall_clock_is_set(clock: ManualClock, days: int) -> None:
    steady: Clock = SteadyClock(clock)
    clock.advance(timedelta(seconds=2))
    clock.set_wall(EPOCH + timedelta(days=days))
    assert (steady.now(), steady.elapsed()) == (EPOCH + timedelta(seconds=2), 2.0)
    assert steady.wall() == EPOCH + timedelta(days=days)


def test_time_in_hand_does_not_pass_backwards(clock: ManualClock) -> None:
    with pytest.raises(AssertionError):
        clock.advance(timedelta(seconds=-1))


def test_chance_in_hand_is_the_same_in_every_run_and_never_the_same_twice(entropy: SeededEntropy) -> None:
    first = entropy.token(8)
    assert first == SeededEntropy().token(8)
    assert first != entropy.token(8)
    assert first != SeededEntropy(1).token(8)


# --- the time of a store that several processes share ----------------------------------------------------------------

SECOND = timedelta(seconds=1)
THEIRS = EPOCH + timedelta(hours=3)


def test_until_the_store_has_told_its_time_it_is_that_of_the_machine(clock: ManualClock) -> None:
    shared = SharedClock(clock)
    assert shared.now() == EPOCH
    clock.set_wall(THEIRS)
    assert shared.now() == THEIRS


def test_the_stores_time_goes_on_by_the_stopwatch_whatever_the_wall_says(clock: ManualClock) -> None:
    shared: Clock = aligned(clock, THEIRS)
    clock.advance(5 * SECOND)
    clock.set_wall(EPOCH - timedelta(days=9))
    assert (shared.now(), shared.elapsed()) == (THEIRS + 5 * SECOND, 5.0)


def test_the_first_time_that_is_told_is_taken_for_the_middle_of_the_way(clock: ManualClock) -> None:
    shared = SharedClock(clock)
    clock.advance(4 * SECOND)
    shared.align(THEIRS, asked=2.0, answered=4.0)
    assert shared.now() == THEIRS + SECOND


@pytest.mark.parametrize(("told", "now"), [(-5, -3), (-2, 0), (-1, 0), (0, 0), (3, 3)])
def test_a_later_one_moves_it_only_as_far_as_it_must(clock: ManualClock, told: int, now: int) -> None:
    """It was read at some time between the question and the answer, two seconds later."""
    shared = aligned(clock, THEIRS)
    shared.align(THEIRS + told * SECOND, asked=-2.0, answered=0.0)
    assert shared.now() == THEIRS + now * SECOND


def aligned(clock: ManualClock, moment: datetime) -> SharedClock:
    shared = SharedClock(clock)
    shared.align(moment, asked=0.0, answered=0.0)
    return shared


def test_the_seconds_of_the_wall_clock_are_its_time(clock: ManualClock) -> None:
    before = SystemClock().wall().timestamp()
    assert before <= SystemClock().wall_seconds() <= before + 60
    held: list[Clock] = [clock, SteadyClock(clock), SharedClock(clock)]
    clock.set_wall(EPOCH + timedelta(days=3))
    assert {each.wall_seconds() for each in held} == {(EPOCH + timedelta(days=3)).timestamp()}
