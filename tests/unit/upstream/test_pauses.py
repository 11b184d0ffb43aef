"""Streams that broke together do not come back together, and a pause that a server asks for is understood."""

from datetime import UTC, datetime, timedelta

import pytest

from taskgate.upstream.pauses import asked_pause, share

NOW = datetime(2026, 12, 1, 10, tzinfo=UTC)


def test_a_stream_takes_from_half_a_pause_to_all_of_it_and_no_two_take_the_same() -> None:
    shares = [share(stream, turn) for stream in ("a", "b", "\ud800") for turn in range(50)]
    assert all(0.5 <= each <= 1 for each in shares)
    assert len(set(shares)) == len(shares)


def test_the_same_stream_takes_the_same_pauses() -> None:
    assert share("a", 3) == share("a", 3)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("7", 7),
        ("0", 0),
        ("86401", 86_400),
        ("9" * 99, 86_400),
        ("Tue, 01 Dec 2026 10:00:30 GMT", 30),
        ("Tue, 01 Dec 2026 10:00:30 -0000", 30),
        ("Tue, 01 Dec 2026 09:00:00 GMT", 0),
        ("Tue, 01 Dec 2099 09:00:00 GMT", 86_400),
        ("", None),
        ("-7", None),
        ("7.5", None),
        ("soon", None),
        ("9" * 100, None),
    ],
)
def test_a_pause_is_seconds_or_a_time_of_day_and_a_day_at_most(written: str, seconds: int | None) -> None:
    assert asked_pause(written, NOW) == (None if seconds is None else timedelta(seconds=seconds))
