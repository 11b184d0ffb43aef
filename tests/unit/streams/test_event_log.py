"""What rests of streams, and for how long: never more than there is room for, and never less than is said."""

import pytest

from helpers.manual_clock import ManualClock
from taskgate.streams.event_log import (
    EVENT_WEIGHT,
    RETENTION,
    STREAM_BYTES,
    STREAM_WEIGHT,
    EventBounds,
    EventBudget,
    MemoryEventLog,
)

EVENT = EVENT_WEIGHT + 1
SMALL = STREAM_WEIGHT + EVENT
"""What a stream counts for that ended with one event of one byte."""


class Logs:
    """Logs of sessions that share one budget; `bounds` may change at any time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bounds = EventBounds()
        self.budget = EventBudget(lambda: self.bounds)

    def of(self, caller: str) -> MemoryEventLog:
        """The log of a new session."""
        return MemoryEventLog(self.clock, budget=self.budget, caller=caller)


@pytest.fixture
def logs() -> Logs:
    return Logs()


@pytest.fixture
def log(logs: Logs) -> MemoryEventLog:
    return logs.of("alice")


def fill(log: MemoryEventLog, stream: str, count: int, size: int = 1) -> None:
    for number in range(1, count + 1):
        log.append(stream, number, b"x" * size)


def test_what_came_after_an_event_is_told_in_order_and_of_one_stream(log: MemoryEventLog) -> None:
    for number, event in enumerate((b"a", b"b", b"c"), 1):
        log.append("one", number, event)
    log.append("two", 1, b"z")
    assert log.events_after("one", 0) == [b"a", b"b", b"c"]
    assert log.events_after("one", 2) == [b"c"]
    assert log.events_after("one", 3) == []
    assert log.events_after("one", 4) is None
    assert log.events_after("none", 0) is None


def test_a_stream_that_ended_is_told_with_its_end(log: MemoryEventLog) -> None:
    log.append("one", 1, b"a")
    log.end("one", 2, b"end")
    assert log.events_after("one", 0) == [b"a", b"end"]
    assert log.events_after("one", 2) == []
    log.end("silent", 0, None)
    assert log.events_after("silent", 0) == []
    assert log.events_after("silent", 1) is None


def test_a_stream_that_ended_is_forgotten_after_a_while(logs: Logs, log: MemoryEventLog) -> None:
    log.end("one", 1, b"a")
    logs.clock.advance(RETENTION / 2)
    log.end("two", 1, b"b")
    logs.clock.advance(RETENTION / 2)
    assert log.events_after("one", 0) is None
    assert log.events_after("two", 0) == [b"b"]
    assert logs.budget.weight == logs.budget.usage("alice") == SMALL


def test_what_goes_on_is_not_forgotten(logs: Logs, log: MemoryEventLog) -> None:
    log.append("one", 1, b"a")
    logs.clock.advance(RETENTION * 10)
    log.purge()
    assert log.events_after("one", 0) == [b"a"]
    log.delete("one")
    log.delete("one")
    assert log.events_after("one", 0) is None
    log.end("two", 1, b"b")
    log.delete("two")
    assert logs.budget.weight == logs.budget.usage("alice") == 0


def test_a_stream_loses_its_oldest_events_to_newer_ones(logs: Logs, log: MemoryEventLog) -> None:
    most = STREAM_BYTES // (1 + EVENT_WEIGHT)
    fill(log, "one", most + 2)
    assert log.events_after("one", 1) is None
    told = log.events_after("one", 2)
    assert told is not None
    assert len(told) == most
    assert logs.budget.weight <= STREAM_BYTES


def test_an_event_without_room_is_dropped_and_its_stream_is_not_told_wholly(logs: Logs, log: MemoryEventLog) -> None:
    log.append("one", 1, b"a")
    log.append("one", 2, b"x" * (STREAM_BYTES + 1))
    assert log.events_after("one", 1) is None
    assert log.events_after("one", 2) == []
    assert logs.budget.weight == 0


def test_a_caller_has_one_bound_for_the_streams_of_all_sessions(logs: Logs) -> None:
    logs.bounds = EventBounds(context=10 * SMALL)
    sessions = [logs.of("alice") for _ in range(100)]
    for session in sessions:
        fill(session, "one", 1)
    assert logs.budget.usage("alice") <= 10 * SMALL
    assert sessions[0].events_after("one", 0) is None
    assert sessions[-1].events_after("one", 0) == [b"x"]
    for session in sessions:
        session.end("one", 2, b"x")
        assert session.events_after("one", 1) == [b"x"]
    assert logs.budget.usage("alice") <= 10 * SMALL


def test_streams_that_ended_are_forgotten_before_what_goes_on_and_the_oldest_first(logs: Logs) -> None:
    logs.bounds = EventBounds(context=EVENT + 2 * SMALL)
    first, second = logs.of("alice"), logs.of("alice")
    first.append("open", 1, b"a")
    second.end("one", 1, b"b")
    first.end("two", 1, b"c")
    assert second.events_after("one", 0) == [b"b"]
    first.end("three", 1, b"d")
    assert second.events_after("one", 0) is None
    assert first.events_after("two", 0) == [b"c"]
    first.append("open", 2, b"e")
    assert first.events_after("two", 0) is None
    assert first.events_after("three", 0) == [b"d"]
    assert first.events_after("open", 0) == [b"a", b"e"]


def test_without_ended_streams_the_oldest_event_of_the_caller_gives_way(logs: Logs) -> None:
    logs.bounds = EventBounds(context=2 * EVENT)
    first, second = logs.of("alice"), logs.of("alice")
    first.append("one", 1, b"a")
    second.append("two", 1, b"b")
    second.append("two", 2, b"c")
    assert first.events_after("one", 0) is None
    assert first.events_after("one", 1) == []
    assert second.events_after("two", 0) == [b"b", b"c"]
    second.append("two", 3, b"d")
    assert second.events_after("two", 0) is None
    assert second.events_after("two", 1) == [b"c", b"d"]


def test_no_caller_takes_from_a_stream_of_another_that_goes_on(logs: Logs) -> None:
    logs.bounds = EventBounds(context=100 * SMALL, total=3 * EVENT + SMALL)
    alice, bob = logs.of("alice"), logs.of("bob")
    for number in range(3):
        fill(bob, f"open-{number}", 1)
    bob.end("ended", 1, b"x")
    alice.append("one", 1, b"a")
    assert bob.events_after("ended", 0) is None
    fill(alice, "two", 9)
    assert [bob.events_after(f"open-{number}", 0) for number in range(3)] == [[b"x"]] * 3
    assert alice.events_after("one", 0) is None
    assert alice.events_after("two", 0) is None
    alice.end("two", 10, b"x" * SMALL)
    assert alice.events_after("two", 9) is None
    assert [bob.events_after(f"open-{number}", 0) for number in range(3)] == [[b"x"]] * 3
    assert logs.budget.weight <= 3 * EVENT + SMALL


def test_an_answer_larger_than_the_bound_of_its_caller_is_kept_with_its_events_and_alone(logs: Logs) -> None:
    logs.bounds = EventBounds(context=4 * SMALL)
    log = logs.of("alice")
    log.append("open", 1, b"o")
    log.end("before", 1, b"b")
    log.append("large", 1, b"a")
    log.end("large", 2, b"x" * (8 * SMALL))
    told = log.events_after("large", 0)
    assert told is not None
    assert [len(event) for event in told] == [1, 8 * SMALL]
    assert log.events_after("before", 0) is None
    assert log.events_after("open", 0) is None
    log.end("after", 1, b"c")
    assert log.events_after("large", 0) is None
    assert log.events_after("after", 0) == [b"c"]


def test_a_log_that_is_closed_gives_back_what_it_held_and_keeps_nothing(logs: Logs, log: MemoryEventLog) -> None:
    other = logs.of("alice")
    other.end("one", 1, b"a")
    log.append("one", 1, b"a")
    log.end("two", 1, b"a")
    log.close()
    log.append("one", 2, b"b")
    log.end("one", 3, b"c")
    log.append("new", 1, b"d")
    assert log.events_after("one", 0) is None
    assert log.events_after("new", 0) is None
    assert other.events_after("one", 0) == [b"a"]
    assert logs.budget.weight == SMALL
    other.close()
    assert logs.budget.weight == logs.budget.usage("alice") == 0


def test_lower_bounds_count_from_the_next_event_on(logs: Logs, log: MemoryEventLog) -> None:
    for number in range(5):
        log.end(f"one-{number}", 1, b"x")
    logs.bounds = EventBounds(context=2 * SMALL)
    log.end("one-5", 1, b"x")
    assert logs.budget.weight == 2 * SMALL
    assert log.events_after("one-4", 0) == [b"x"]
    assert log.events_after("one-3", 0) is None
