"""Suspicions: told once of each for a while, and of no more than are remembered."""

from datetime import timedelta

from helpers.manual_clock import ManualClock
from taskgate.admission.suspicions import PAUSE, Suspicions
from taskgate.telemetry.events import SuspicionRaised
from unit.lifecycle.recorded_events import RecordedEvents

MISMATCH = SuspicionRaised("header_mismatch", "reports")


def test_the_same_of_the_same_one_is_told_once_a_minute(clock: ManualClock) -> None:
    emitted = RecordedEvents()
    suspicions = Suspicions(emitted, clock)
    for _ in range(3):
        suspicions.raise_once("header_mismatch", "alice", "reports")
    assert emitted.all == [MISMATCH]
    clock.advance(timedelta(seconds=PAUSE))
    suspicions.raise_once("header_mismatch", "alice", "reports")
    assert emitted.all == [MISMATCH] * 2


def test_another_one_and_another_kind_are_told_apart(clock: ManualClock) -> None:
    emitted = RecordedEvents()
    suspicions = Suspicions(emitted, clock)
    suspicions.raise_once("header_mismatch", "alice", "reports")
    suspicions.raise_once("header_mismatch", "bob", "reports")
    suspicions.raise_once("excessive_polling", "alice", "orders")
    assert emitted.all == [MISMATCH, MISMATCH, SuspicionRaised("excessive_polling", "orders")]


def test_who_goes_on_is_told_of_again_whoever_else_does(clock: ManualClock) -> None:
    """What was told does not begin anew with what is not told."""
    emitted = RecordedEvents()
    suspicions = Suspicions(emitted, clock)
    for _ in range(4):
        suspicions.raise_once("header_mismatch", "alice", "reports")
        clock.advance(timedelta(seconds=PAUSE / 2))
    assert emitted.all == [MISMATCH] * 2


def test_the_one_told_of_longest_ago_is_forgotten_first(clock: ManualClock) -> None:
    emitted = RecordedEvents()
    suspicions = Suspicions(emitted, clock, size=2)
    for who in ("alice", "bob", "carol"):
        suspicions.raise_once("header_mismatch", who, "reports")
    for who in ("bob", "carol"):
        suspicions.raise_once("header_mismatch", who, "reports")
    assert len(emitted.all) == 3
    suspicions.raise_once("header_mismatch", "alice", "reports")
    assert len(emitted.all) == 4


def test_to_be_told_of_again_is_to_be_remembered_longest(clock: ManualClock) -> None:
    emitted = RecordedEvents()
    suspicions = Suspicions(emitted, clock, size=2)
    suspicions.raise_once("header_mismatch", "alice", "reports")
    clock.advance(timedelta(seconds=PAUSE))
    suspicions.raise_once("header_mismatch", "bob", "reports")
    suspicions.raise_once("header_mismatch", "alice", "reports")
    suspicions.raise_once("header_mismatch", "carol", "reports")
    suspicions.raise_once("header_mismatch", "alice", "reports")
    assert len(emitted.all) == 4
