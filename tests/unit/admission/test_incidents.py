"""Lines for operators: where those come from who are not let in, and no more than one a second of each kind."""

from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from taskgate.admission.incidents import Incidents
from unit.lifecycle.asked import Asked

REFUSED = "a request was refused: its caller could not be authenticated"
SUSPECTED = "a caller is penalized: too many look-ups of unknown tasks"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def incidents(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> Incidents:
    caplog.set_level("INFO", "taskgate.security")
    return Incidents(clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, dict[str, Any]]]:
    keys = ("reason", "upstream", "address", "left_out")
    return [
        (record.levelname, record.getMessage(), {key: value for key, value in vars(record).items() if key in keys})
        for record in caplog.records
    ]


def test_a_line_says_why_where_and_from_where(incidents: Incidents, caplog: pytest.LogCaptureFixture) -> None:
    incidents.unidentified(Asked(where="2001:db8::1"), "reports", "expired")
    incidents.enumerating(Asked(), "orders")
    assert lines(caplog) == [
        ("INFO", REFUSED, {"reason": "expired", "upstream": "reports", "address": "2001:db8::1", "left_out": 0}),
        ("WARNING", SUSPECTED, {"upstream": "orders", "address": "192.0.2.7", "left_out": 0}),
    ]


def test_a_flood_of_one_kind_is_one_line_a_second_that_says_how_many_it_stands_for(
    incidents: Incidents, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked()
    for _ in range(3):
        for _ in range(100):
            incidents.unidentified(asked, "reports", "missing")
            incidents.enumerating(asked, "reports")
        clock.advance(timedelta(seconds=0.5))
    clock.advance(timedelta(seconds=0.5))
    incidents.unidentified(asked, "reports", "missing")
    told = [(text, fields["left_out"]) for _, text, fields in lines(caplog)]
    assert told == [(REFUSED, 0), (SUSPECTED, 0), (REFUSED, 199), (SUSPECTED, 199), (REFUSED, 99)]
    # And only for a line is it found out where a request comes from.
    assert asked.looked == 5


def test_kinds_do_not_hold_each_other_back(incidents: Incidents, caplog: pytest.LogCaptureFixture) -> None:
    for reason in ("missing", "expired", "jwks_unavailable"):
        incidents.unidentified(Asked(), "reports", reason)
    incidents.enumerating(Asked(), "reports")
    assert len(lines(caplog)) == 4
