"""What rests of streams, and for how long: never more than there is room for, and never less than is said."""

import pytest

from helpers.manual_clock import ManualClock
from taskgate.engine.streams import event_log
from taskgate.engine.streams.event_log import (
    KEEP,
    SESSION_BYTES,
    SESSION_EVENTS,
    STREAM_BYTES,
    STREAM_EVENTS,
    MemoryEventLog,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> MemoryEventLog:
    return MemoryEventLog(clock)


def fill(log: MemoryEventLog, stream: str, count: int, size: int = 1) -> None:
    for number in range(1, count + 1):
        log.append(stream, number, b"x" * size)


def held(log: MemoryEventLog) -> tuple[int, int]:
    """Bytes and events, counted one by one, which the log's own sums must agree with."""
    kept = [each for part in (log._open, log._ended) for each in part.streams.values()]
    size, events = sum(len(event) for each in kept for _, event in each.events), sum(len(each.events) for each in kept)
    assert (size, events) == (log._open.size + log._ended.size, log._open.events + log._ended.events)
    return size, events


def test_what_came_after_an_event_is_told_in_order_and_of_one_stream(log: MemoryEventLog) -> None:
    for number, event in enumerate((b"a", b"b", b"c"), 1):
        log.append("one", number, event)
    log.append("two", 1, b"z")
    assert log.since("one", 0) == [b"a", b"b", b"c"]
    assert log.since("one", 2) == [b"c"]
    assert log.since("one", 3) == []
    assert log.since("one", 4) is None
    assert log.since("none", 0) is None


def test_a_stream_that_ended_is_told_with_its_end(log: MemoryEventLog) -> None:
    log.append("one", 1, b"a")
    log.end("one", 2, b"end")
    assert log.since("one", 0) == [b"a", b"end"]
    assert log.since("one", 2) == []
    log.end("silent", 0, None)
    assert log.since("silent", 0) == []
    assert log.since("silent", 1) is None


def test_a_stream_that_ended_is_forgotten_after_a_while(log: MemoryEventLog, clock: ManualClock) -> None:
    log.end("one", 1, b"a")
    clock.advance(KEEP / 2)
    log.end("two", 1, b"b")
    clock.advance(KEEP / 2)
    assert log.since("one", 0) is None
    assert log.since("two", 0) == [b"b"]
    assert held(log) == (1, 1)


def test_what_goes_on_is_not_forgotten(log: MemoryEventLog, clock: ManualClock) -> None:
    log.append("one", 1, b"a")
    clock.advance(KEEP * 10)
    log.trim()
    assert log.since("one", 0) == [b"a"]
    log.forget("one")
    log.forget("one")
    assert log.since("one", 0) is None
    log.end("two", 1, b"b")
    log.forget("two")
    assert held(log) == (0, 0)


def test_a_stream_loses_its_oldest_events_to_newer_ones(log: MemoryEventLog) -> None:
    fill(log, "one", STREAM_EVENTS + 2)
    assert held(log)[1] == STREAM_EVENTS
    assert log.since("one", 1) is None
    told = log.since("one", 2)
    assert told is not None
    assert len(told) == STREAM_EVENTS


def test_a_stream_holds_so_many_bytes(log: MemoryEventLog) -> None:
    fill(log, "one", 3, STREAM_BYTES // 2)
    assert held(log)[0] == STREAM_BYTES
    assert log.since("one", 0) is None
    assert log.since("one", 1) is not None


def test_an_event_without_room_is_dropped_and_its_stream_is_not_told_wholly(log: MemoryEventLog) -> None:
    log.append("one", 1, b"a")
    log.append("one", 2, b"x" * (STREAM_BYTES + 1))
    assert log.since("one", 1) is None
    assert log.since("one", 2) == []
    assert held(log) == (0, 0)


def test_all_that_goes_on_has_a_bound_and_the_fullest_gives_way(log: MemoryEventLog) -> None:
    streams = SESSION_BYTES // STREAM_BYTES
    for number in range(streams):
        fill(log, f"full-{number}", 4, STREAM_BYTES // 4)
    log.append("small", 1, b"a")
    assert log.since("small", 0) == [b"a"]
    assert held(log)[0] <= SESSION_BYTES
    assert [log.since(f"full-{number}", 0) is None for number in range(streams)].count(True) == 1


def test_all_that_goes_on_has_a_bound_in_events(log: MemoryEventLog) -> None:
    for number in range(SESSION_EVENTS // STREAM_EVENTS + 1):
        fill(log, f"one-{number}", STREAM_EVENTS)
    assert held(log)[1] == SESSION_EVENTS


def test_what_ended_gives_way_as_a_whole_and_the_oldest_first(log: MemoryEventLog) -> None:
    for number in range(SESSION_BYTES // STREAM_BYTES + 1):
        fill(log, f"one-{number}", 1, STREAM_BYTES - 1)
        log.end(f"one-{number}", 2, b"x")
    assert log.since("one-0", 1) is None
    assert log.since("one-1", 0) is not None
    assert held(log)[0] == SESSION_BYTES


def test_an_answer_larger_than_all_room_is_kept_with_its_events_and_alone(log: MemoryEventLog) -> None:
    log.append("open", 1, b"o")
    log.end("before", 1, b"b")
    log.append("large", 1, b"a")
    log.end("large", 2, b"x" * (2 * SESSION_BYTES))
    told = log.since("large", 0)
    assert told is not None
    assert [len(event) for event in told] == [1, 2 * SESSION_BYTES]
    assert log.since("before", 0) is None
    assert log.since("open", 0) == [b"o"]
    log.end("after", 1, b"c")
    assert log.since("large", 0) is None
    assert log.since("after", 0) == [b"c"]


def test_what_never_ends_in_time_is_bounded_in_events_when_it_has_ended(
    log: MemoryEventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "SESSION_EVENTS", 4)
    for number in range(6):
        log.end(f"one-{number}", 1, b"x")
    assert held(log)[1] == 4
    assert log.since("one-1", 0) is None
    assert log.since("one-2", 0) == [b"x"]
