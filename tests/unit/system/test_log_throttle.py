"""A line about many keys is bounded for each and for all, and what is left out is counted."""

import logging
from random import Random

import pytest

from taskgate.system.log_throttle import KEYS, LOG_PAUSE, MOST_LINES, KeyedLog

TEXT = "a limit refuses a caller"


@pytest.fixture
def lines() -> KeyedLog:
    return KeyedLog(logging.getLogger("taskgate.limits"), TEXT)


def counts_of(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int, int]]:
    """The field `who`, and both counts, of each line."""
    found = [vars(record) for record in caplog.records]
    return [(each.get("who", ""), each.get("left_out", 0), each.get("left_out_elsewhere", 0)) for each in found]


def test_a_key_has_one_line_in_a_pause_and_the_next_one_counts_what_it_left_out(
    lines: KeyedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for now in (0.0, 1.0, 2.0, LOG_PAUSE):
        lines.emit("a", {"who": "a"}, now)
    lines.emit("b", {"who": "b"}, LOG_PAUSE)
    assert counts_of(caplog) == [("a", 0, 0), ("a", 2, 0), ("b", 0, 0)]
    assert {(record.levelname, record.getMessage()) for record in caplog.records} == {("WARNING", TEXT)}


def test_what_was_counted_gets_its_line_when_the_pause_is_over(
    lines: KeyedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for now in (0.0, 1.0, 2.0):
        lines.emit("a", {"who": "a"}, now)
    assert lines.flush(2.0) == LOG_PAUSE
    assert lines.flush(LOG_PAUSE) == 2 * LOG_PAUSE
    assert counts_of(caplog) == [("a", 0, 0), ("a", 1, 0)]
    assert lines.flush(2 * LOG_PAUSE) is None
    assert len(caplog.records) == 2


def test_the_end_writes_what_is_counted(lines: KeyedLog, caplog: pytest.LogCaptureFixture) -> None:
    for now in (0.0, 1.0, 2.0):
        lines.emit("a", {"who": "a"}, now)
    lines.close()
    lines.close()
    assert counts_of(caplog) == [("a", 0, 0), ("a", 1, 0)]


def test_many_keys_have_few_lines(lines: KeyedLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(10 * MOST_LINES):
        lines.emit(number, {"who": "many"}, 0.0)
    assert len(caplog.records) == MOST_LINES
    lines.emit("late", {"who": "late"}, LOG_PAUSE)
    assert counts_of(caplog)[-1] == ("late", 0, 9 * MOST_LINES)


def test_keys_without_a_line_are_counted_also_if_no_event_follows(
    lines: KeyedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2 * MOST_LINES):
        lines.emit(number, {"who": "many"}, 0.0)
    assert lines.flush(1.0) == LOG_PAUSE
    assert lines.flush(LOG_PAUSE) is None
    assert counts_of(caplog)[MOST_LINES:] == [("", 0, MOST_LINES)]
    for number in range(2 * MOST_LINES):
        lines.emit(number, {"who": "many"}, LOG_PAUSE)
    lines.close()
    assert counts_of(caplog)[-1] == ("", 0, MOST_LINES + 1)


def test_of_many_keys_the_oldest_are_forgotten_and_what_they_left_out_is_counted(
    lines: KeyedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(KEYS + 4):
        now = number // MOST_LINES * LOG_PAUSE
        lines.emit(number, {"who": "many"}, now)
        lines.emit(number, {"who": "many"}, now)
    # The line of the last key was written before the fourth was forgotten.
    assert sum(others for _, _, others in counts_of(caplog)) == 3
    before = len(counts_of(caplog))
    lines.emit(KEYS + 2, {"who": "many"}, now)
    assert len(counts_of(caplog)) == before, "a key that came late is known"
    lines.emit(0, {"who": "many"}, now)
    assert len(counts_of(caplog)) == before + 1, "the first one is not"
    lines.close()
    assert sum(bool(who) + mine + others for who, mine, others in counts_of(caplog)) == 2 * (KEYS + 5)


def test_no_event_is_lost_however_keys_come(lines: KeyedLog, caplog: pytest.LogCaptureFixture) -> None:
    random, now, events = Random(3), 0.0, 2000
    for _ in range(events):
        now += random.choice([0.0, 0.1, 20.0])
        lines.emit(random.randrange(9), {"who": "any"}, now)
        if random.random() < 0.1:
            lines.flush(now)
    lines.close()
    told = counts_of(caplog)
    assert sum(bool(who) + mine + others for who, mine, others in told) == events
    assert len(told) <= (now / LOG_PAUSE + 2) * MOST_LINES
