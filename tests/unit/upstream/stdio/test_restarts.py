"""How long a program is held back, in numbers."""

import pytest

from taskgate.upstream.stdio.exits import Cause, Restarts


def test_nothing_is_held_back_of_whom_nothing_is_known() -> None:
    restarts = Restarts(1, 60)
    assert (restarts.wait("a", 0), restarts.failures("a"), restarts.started("a")) == (0, 0, None)


def test_the_pause_doubles_up_to_the_longest() -> None:
    restarts = Restarts(1, 60)
    pauses = []
    for _ in range(9):
        restarts.failed("a", 100, Cause.EXIT)
        pauses.append(restarts.wait("a", 100))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert restarts.failures("a") == 9
    assert (restarts.wait("a", 130), restarts.wait("a", 160), restarts.wait("a", 999)) == (30, 0, 0)
    assert restarts.wait("b", 100) == 0


def test_a_thousand_failures_are_no_longer_than_that() -> None:
    restarts = Restarts(0.001, 60)
    for _ in range(1000):
        restarts.failed("a", 0)
    assert restarts.wait("a", 0) == 60


def test_after_one_that_was_of_use_it_begins_anew() -> None:
    restarts = Restarts(1, 60)
    for _ in range(5):
        restarts.failed("a", 0, Cause.EXIT)
    restarts.ended("a", Cause.SIGNAL)
    assert restarts.wait("a", 0) == 0
    restarts.failed("a", 0, Cause.EXIT)
    assert restarts.wait("a", 0) == 1


def test_why_the_last_one_ended_is_told_once() -> None:
    restarts = Restarts(1, 60)
    restarts.failed("a", 0, Cause.EXIT)
    restarts.failed("a", 0)
    assert (restarts.started("a"), restarts.started("a")) == (Cause.EXIT, None)
    restarts.ended("a", Cause.SIGNAL)
    assert (restarts.started("a"), restarts.started("a")) == (Cause.SIGNAL, None)


def test_of_those_that_failed_longest_ago_nothing_is_kept_once_there_are_many() -> None:
    restarts = Restarts(1, 60)
    for number in range(1025):
        restarts.failed(number, 0)
    assert [restarts.failures(number) for number in (0, 1, 1024)] == [0, 1, 1]


@pytest.mark.parametrize("first", [0, 0.5])
def test_the_first_pause_is_what_the_operator_said(first: float) -> None:
    restarts = Restarts(first, 60)
    restarts.failed("a", 0)
    assert restarts.wait("a", 0) == first
