"""Alerts and log lines about attackers: each once for a while, with no more than an address."""

from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from taskgate.admission.security_alerts import ALERT_PAUSE, SecurityAlerts, SecurityLog
from taskgate.errors import AuthReason, KeysUnavailable, Unauthenticated
from taskgate.telemetry.events import SuspicionRaised
from unit.lifecycle.asked import Asked
from unit.lifecycle.recorded_events import RecordedEvents

REFUSED = "a request was refused: its caller could not be authenticated"
SUSPECTED = "a caller is penalized: too many look-ups of unknown tasks"
MISMATCH = SuspicionRaised("header_mismatch", "reports")


@pytest.fixture
def security_log(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> SecurityLog:
    caplog.set_level("INFO", "taskgate.security")
    return SecurityLog(clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, dict[str, Any]]]:
    keys = ("reason", "upstream", "address", "left_out")
    return [
        (record.levelname, record.getMessage(), {key: value for key, value in vars(record).items() if key in keys})
        for record in caplog.records
    ]


def test_a_line_says_why_where_and_from_where(security_log: SecurityLog, caplog: pytest.LogCaptureFixture) -> None:
    security_log.log_unauthenticated(Asked(where="2001:db8::1"), "reports", Unauthenticated(AuthReason.EXPIRED))
    security_log.log_enumeration(Asked(), "orders")
    assert lines(caplog) == [
        ("INFO", REFUSED, {"reason": "expired", "upstream": "reports", "address": "2001:db8::1", "left_out": 0}),
        ("WARNING", SUSPECTED, {"upstream": "orders", "address": "192.0.2.7", "left_out": 0}),
    ]


def test_a_flood_of_one_kind_is_one_line_a_second_that_says_how_many_it_stands_for(
    security_log: SecurityLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked()
    for _ in range(3):
        for _ in range(100):
            security_log.log_unauthenticated(asked, "reports", Unauthenticated(AuthReason.MISSING))
            security_log.log_enumeration(asked, "reports")
        clock.advance(timedelta(seconds=0.5))
    clock.advance(timedelta(seconds=0.5))
    security_log.log_unauthenticated(asked, "reports", Unauthenticated(AuthReason.MISSING))
    told = [(text, fields["left_out"]) for _, text, fields in lines(caplog)]
    assert told == [(REFUSED, 0), (SUSPECTED, 0), (REFUSED, 199), (SUSPECTED, 199), (REFUSED, 99)]
    # And only for a line is it found out where a request comes from.
    assert asked.looked == 5


def test_kinds_do_not_hold_each_other_back(security_log: SecurityLog, caplog: pytest.LogCaptureFixture) -> None:
    for reason in (AuthReason.MISSING, AuthReason.EXPIRED):
        security_log.log_unauthenticated(Asked(), "reports", Unauthenticated(reason))
    security_log.log_unauthenticated(Asked(), "reports", KeysUnavailable("corp"))
    security_log.log_enumeration(Asked(), "reports")
    assert len(lines(caplog)) == 4


# --- alerts -----------------------------------------------------------------------------------------------------------


def test_the_same_of_the_same_one_is_told_once_a_minute(clock: ManualClock) -> None:
    emitted = RecordedEvents()
    alerts = SecurityAlerts(emitted, clock)
    for _ in range(3):
        alerts.raise_once("header_mismatch", "alice", "reports")
    assert emitted.all == [MISMATCH]
    clock.advance(timedelta(seconds=ALERT_PAUSE))
    alerts.raise_once("header_mismatch", "alice", "reports")
    assert emitted.all == [MISMATCH] * 2


def test_another_one_and_another_kind_are_told_apart(clock: ManualClock) -> None:
    emitted = RecordedEvents()
    alerts = SecurityAlerts(emitted, clock)
    alerts.raise_once("header_mismatch", "alice", "reports")
    alerts.raise_once("header_mismatch", "bob", "reports")
    alerts.raise_once("excessive_polling", "alice", "orders")
    assert emitted.all == [MISMATCH, MISMATCH, SuspicionRaised("excessive_polling", "orders")]


def test_who_goes_on_is_told_of_again_whoever_else_does(clock: ManualClock) -> None:
    """What was told does not begin anew with what is not told."""
    emitted = RecordedEvents()
    alerts = SecurityAlerts(emitted, clock)
    for _ in range(4):
        alerts.raise_once("header_mismatch", "alice", "reports")
        clock.advance(timedelta(seconds=ALERT_PAUSE / 2))
    assert emitted.all == [MISMATCH] * 2


def test_the_one_told_of_longest_ago_is_forgotten_first(clock: ManualClock) -> None:
    emitted = RecordedEvents()
    alerts = SecurityAlerts(emitted, clock, size=2)
    for who in ("alice", "bob", "carol"):
        alerts.raise_once("header_mismatch", who, "reports")
    for who in ("bob", "carol"):
        alerts.raise_once("header_mismatch", who, "reports")
    assert len(emitted.all) == 3
    alerts.raise_once("header_mismatch", "alice", "reports")
    assert len(emitted.all) == 4


def test_to_be_told_of_again_is_to_be_remembered_longest(clock: ManualClock) -> None:
    emitted = RecordedEvents()
    alerts = SecurityAlerts(emitted, clock, size=2)
    alerts.raise_once("header_mismatch", "alice", "reports")
    clock.advance(timedelta(seconds=ALERT_PAUSE))
    alerts.raise_once("header_mismatch", "bob", "reports")
    alerts.raise_once("header_mismatch", "alice", "reports")
    alerts.raise_once("header_mismatch", "carol", "reports")
    alerts.raise_once("header_mismatch", "alice", "reports")
    assert len(emitted.all) == 4
