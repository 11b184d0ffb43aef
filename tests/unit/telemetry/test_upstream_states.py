"""What operators see of an upstream: its state, the cause in words, since when, and how many requests failed."""

from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH, ManualClock
from taskgate.telemetry.events import (
    CircuitChanged,
    Event,
    HealthChecked,
    UpstreamAdded,
    UpstreamAnswered,
    UpstreamRequestFailed,
    UpstreamStateChanged,
)
from taskgate.telemetry.ring import EventRing
from taskgate.telemetry.upstream_condition import UpstreamState
from taskgate.telemetry.upstream_states import UpstreamStates, UpstreamView

REFUSED = UpstreamRequestFailed("crm", "tools/call", "refused", "HTTP 401")
SERVED = UpstreamAnswered("crm", "tools/call", 0.1, None)
CAUSE = "HTTP 401: the server refuses the gateway's credentials"


class Desk:
    """The events of a gateway, and what its states say."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ring = EventRing(self.clock)
        self.states = UpstreamStates(self.ring, self.clock)
        self.changes: list[UpstreamStateChanged] = []
        self.ring.subscribe(self, {UpstreamStateChanged: self.changes.append})

    def note_failure(self, event: Event) -> None:
        raise AssertionError(event)

    def emit(self, *events: Event, after: float = 1) -> None:
        for event in events:
            self.clock.advance(timedelta(seconds=after))
            self.ring.emit(event)

    def view(self, *, is_held: bool = False) -> UpstreamView:
        return self.states.view("crm", is_held=is_held)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_of_an_upstream_without_events_nothing_is_known(desk: Desk) -> None:
    assert desk.view() == UpstreamView()


def test_a_change_is_told_once_with_the_cause_in_words_and_since_when(desk: Desk) -> None:
    desk.emit(SERVED, *[REFUSED] * 10, SERVED, SERVED)
    desk.ring.fold()
    since = EPOCH + timedelta(seconds=2)
    assert desk.changes == [
        UpstreamStateChanged("crm", "up"),
        UpstreamStateChanged("crm", "refusing", CAUSE, since),
        UpstreamStateChanged("crm", "up"),
    ]


def test_what_a_replaced_server_serves_says_nothing_of_its_successor(desk: Desk) -> None:
    desk.emit(*[REFUSED] * 3, SERVED._replace(is_replaced=True))
    assert (desk.view().state, desk.view().requests) == (UpstreamState.REFUSING, 3)


def test_requests_that_no_host_made_are_not_counted(desk: Desk) -> None:
    desk.emit(*[UpstreamAnswered("crm", "tools/list", 0.1, None, is_own=True)] * 3, SERVED)
    assert (desk.view().state, desk.view().requests) == (UpstreamState.UP, 1)


def test_a_view_has_what_waits_to_be_read(desk: Desk) -> None:
    desk.emit(SERVED, REFUSED, REFUSED, REFUSED)
    assert desk.view() == UpstreamView(UpstreamState.REFUSING, CAUSE, EPOCH + timedelta(seconds=2), 4, 3)


@pytest.mark.parametrize("method", ["initialize", "ping", "server/discover"])
def test_handshakes_of_a_server_that_refuses_all_else_change_nothing(desk: Desk, method: str) -> None:
    desk.emit(*[UpstreamAnswered("crm", method, 0.1, None), REFUSED] * 3)
    assert (desk.view().state, desk.view().requests) == (UpstreamState.REFUSING, 3)


@pytest.mark.parametrize("error", ["-32602", "refused", "cancelled", "timeout"])
def test_errors_are_no_success(desk: Desk, error: str) -> None:
    desk.emit(*[UpstreamAnswered("crm", "tools/call", 0.1, error), REFUSED] * 3)
    assert desk.view().state is UpstreamState.REFUSING


def test_a_request_that_is_answered_with_an_error_under_a_status_is_one_request(desk: Desk) -> None:
    answered = UpstreamAnswered("crm", "tools/call", 0.1, "-32001")
    desk.emit(*[UpstreamRequestFailed("crm", "tools/call", "refused", "HTTP 401", is_answer=True), answered] * 3)
    assert desk.view()[3:] == (3, 3)


def test_the_requests_of_the_last_five_minutes_are_counted(desk: Desk) -> None:
    desk.emit(*[SERVED, REFUSED] * 300, after=1)
    _, _, _, requests, failures = desk.view()
    assert requests == 300
    assert abs(requests - 2 * failures) <= 1
    desk.clock.advance(timedelta(minutes=5))
    assert desk.view()[3:] == (0, 0)
    desk.emit(REFUSED, after=86_400)
    assert desk.view()[3:] == (1, 1)


def test_a_hold_is_a_state_and_what_is_known_besides_is_shown(desk: Desk) -> None:
    assert desk.view(is_held=True) == UpstreamView(UpstreamState.HELD)
    desk.emit(SERVED, REFUSED, REFUSED, REFUSED)
    assert desk.view(is_held=True)[:2] == (UpstreamState.HELD, CAUSE)


def test_another_server_of_the_name_is_unknown_at_first(desk: Desk) -> None:
    desk.emit(CircuitChanged("crm", "open", "timeout"), UpstreamAdded("crm"))
    assert desk.view().state is None
    desk.emit(HealthChecked("crm", True, True))
    assert desk.view().state is UpstreamState.UP


def test_a_circuit_that_is_open_for_one_caller_changes_nothing(desk: Desk) -> None:
    desk.emit(SERVED, CircuitChanged("crm", "open", "timeout", is_for_all=False))
    assert desk.view().state is UpstreamState.UP


def test_a_refusal_is_forgotten_when_the_state_is_read_long_after_it(desk: Desk) -> None:
    desk.emit(SERVED, *[REFUSED] * 3)
    assert desk.view().state is UpstreamState.REFUSING
    desk.clock.advance(timedelta(minutes=5))
    assert desk.view().state is UpstreamState.UP
    desk.ring.fold()
    assert desk.changes[-1] == UpstreamStateChanged("crm", "up")


def test_polls_of_tasks_are_no_requests_of_hosts(desk: Desk) -> None:
    desk.emit(*[UpstreamAnswered("crm", "tasks/get", 0.1, None)] * 5)
    assert desk.view() == UpstreamView()


def test_an_upstream_that_is_configured_no_more_is_forgotten(desk: Desk) -> None:
    desk.emit(SERVED)
    desk.ring.fold()
    desk.states.adopt(["other"])
    assert desk.view() == UpstreamView()
