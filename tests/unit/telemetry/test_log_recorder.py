"""What goes wrong has a line that names it, its reason and since when; and few lines, whatever happens."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import EPOCH, ManualClock
from helpers.records import new_call, new_record
from taskgate.admission.rates import address_block
from taskgate.auth.context import AuthContext
from taskgate.domain.record import OwnerKey, TaskId
from taskgate.stores.references import plain_reference
from taskgate.telemetry.events import (
    CapRefused,
    CircuitChanged,
    Event,
    HealthChecked,
    LeaseLost,
    ProgramAvailabilityChanged,
    QueueRefused,
    RateLimitChecked,
    TaskExpired,
    TaskFaulted,
    TaskRecovered,
    UpstreamAdded,
    UpstreamAnswered,
    UpstreamRequestFailed,
)
from taskgate.telemetry.log_recorder import PAUSE, LogRecorder
from taskgate.telemetry.request_context import RequestContext, in_request
from taskgate.telemetry.ring import EventRing
from taskgate.telemetry.upstream_states import UpstreamStates

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
REJECTED = RateLimitChecked("calls", "context", "rejected")
DOWN, UP = "an upstream is down", "an upstream is up again"
REFUSING = "an upstream refuses requests"
OPEN = "the circuit of an upstream is open for a caller: its calls are refused"
CLOSED = "the circuit of an upstream is closed again"
STILL_DOWN = "an upstream is still down, for another reason"
STILL_OPEN = "the circuit of an upstream is still open for a caller, for another reason"
UNSERVED = "HTTP 503: the server cannot serve now"


class Desk:
    """A gateway's events, and the lines about them."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.clock = ManualClock()
        self.ring = EventRing(self.clock)
        self.states = UpstreamStates(self.ring, self.clock)
        self.recorder = LogRecorder(self.ring, clock=self.clock, reference_of=plain_reference, block_of=address_block)
        self._caplog = caplog

    def emit(self, *events: Event, after: timedelta = timedelta(0)) -> None:
        """Emit these events, one after the other."""
        for event in events:
            self.clock.advance(after)
            self.ring.emit(event)
            self.ring.fold()

    def emit_of(self, caller: str | None, *events: Event, address: str = "192.0.2.7") -> None:
        """Emit these events in a request of that caller."""
        here = RequestContext("id", address, "POST", "/reports", mount="reports")
        here.caller = None if caller is None else AuthContext(key=caller, identity=None)
        with in_request(here):
            self.emit(*events)

    def lines(self, *fields: str) -> list[tuple[Any, ...]]:
        """The message of each line, and these of its fields."""
        records = [record for record in self._caplog.records if record.levelno == logging.WARNING]
        return [(record.getMessage(), *(vars(record).get(field) for field in fields)) for record in records]


@pytest.fixture
async def desk(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Desk]:
    desk = Desk(caplog)
    yield desk
    desk.recorder.close()


# --- upstreams -------------------------------------------------------------------------------------------------------


def circuit(state: str, cause: str | None = None) -> CircuitChanged:
    """The circuit, for one caller."""
    return CircuitChanged("reports", state, cause, is_for_all=False)


def checked(ok: bool, up: bool | None, cause: str | None = None) -> HealthChecked:
    return HealthChecked("reports", ok, up, cause)


async def test_a_server_that_is_down_has_a_line_with_the_reason_and_the_time_of_its_first_failure(desk: Desk) -> None:
    desk.emit(checked(True, True))
    for up in (True, True, False, False, False):
        desk.emit(checked(False, up, "ECONNREFUSED"), after=15 * SECOND)
    desk.emit(checked(True, True), after=15 * SECOND)
    assert desk.lines("upstream", "reason", "since", "seconds") == [
        (DOWN, "reports", "connection refused", "2026-01-02T03:04:20Z", None),
        (UP, "reports", None, "2026-01-02T03:04:20Z", 75.0),
    ]


async def test_a_server_that_is_well_from_the_start_has_no_line(desk: Desk) -> None:
    desk.emit(checked(False, None, "timeout"), checked(True, True), checked(True, True), after=SECOND)
    desk.emit(CircuitChanged("reports", "closed"))
    assert desk.lines() == []


async def test_a_server_that_comes_and_goes_has_few_lines_and_its_last_state_is_in_the_last_one(desk: Desk) -> None:
    states = [number % 2 == 1 for number in range(31)]
    desk.emit(*(checked(up, up, None if up else "HTTP 502") for up in states), after=SECOND)
    desk.emit(checked(True, True), after=10 * SECOND)
    lines = desk.lines("left_out")
    assert len(lines) <= 5
    assert lines[-1][0] == UP
    assert len(lines) + sum(count or 0 for _, count in lines) == len(states) + 1


async def test_a_state_that_came_too_soon_for_a_line_gets_it_later(desk: Desk) -> None:
    desk.emit(circuit("open", "timeout"), CircuitChanged("reports", "closed"))
    desk.clock.advance(PAUSE * SECOND)
    await asyncio.sleep(PAUSE / 2)
    assert desk.lines() == [(OPEN,)]
    await asyncio.sleep(PAUSE / 2)
    assert desk.lines() == [(OPEN,), (CLOSED,)]


async def test_a_server_that_takes_the_place_of_one_that_was_down_is_up_again(desk: Desk) -> None:
    desk.emit(
        checked(False, False, "HTTP 503"),
        circuit("open", "HTTP 503"),
        UpstreamAdded("reports"),
        checked(True, True),
        after=MINUTE,
    )
    assert desk.lines() == [(DOWN,), (OPEN,), (CLOSED,), (UP,)]


async def test_a_server_that_is_configured_no_more_is_forgotten(desk: Desk) -> None:
    desk.emit(checked(False, False, "HTTP 503"), circuit("open", "HTTP 503"))
    desk.recorder.adopt({"search"})
    desk.emit(checked(True, True), CircuitChanged("reports", "closed"), after=MINUTE)
    assert desk.lines() == [(DOWN,), (OPEN,)]


async def test_another_reason_of_the_same_outage_has_a_line(desk: Desk) -> None:
    desk.emit(*(checked(False, False, cause) for cause in ("ECONNREFUSED", "ECONNREFUSED", "HTTP 503")), after=MINUTE)
    desk.emit(circuit("open", "ECONNREFUSED"))
    desk.emit(circuit("half_open"), circuit("open", "HTTP 503"), after=MINUTE)
    desk.emit(checked(False, False, "HTTP 503"), checked(True, True), after=MINUTE)
    assert desk.lines("upstream", "reason", "since", "seconds") == [
        (DOWN, "reports", "connection refused", "2026-01-02T03:05:05Z", None),
        (STILL_DOWN, "reports", UNSERVED, "2026-01-02T03:05:05Z", None),
        (OPEN, "reports", "connection refused", "2026-01-02T03:07:05Z", None),
        (STILL_OPEN, "reports", UNSERVED, "2026-01-02T03:07:05Z", None),
        (UP, "reports", None, "2026-01-02T03:05:05Z", 360.0),
    ]


async def test_reasons_that_come_and_go_have_few_lines_and_the_rest_is_counted(desk: Desk) -> None:
    causes = ["ECONNREFUSED" if number % 2 else "timeout" for number in range(720)]
    desk.emit(*(checked(False, False, cause) for cause in causes), after=10 * SECOND)
    lines = desk.lines("left_out")
    assert 10 < len(lines) < 20
    assert len(lines) + sum(count or 0 for _, count in lines) > 600
    desk.emit(checked(True, True), after=10 * SECOND)
    assert desk.lines()[-1] == (UP,)


async def test_a_reason_that_came_back_before_its_line_has_none(desk: Desk) -> None:
    desk.emit(*(checked(False, False, cause) for cause in ("timeout", "closed", "timeout")), after=SECOND)
    desk.emit(checked(False, False, "timeout"), after=MINUTE)
    assert desk.lines() == [(DOWN,)]


async def test_a_state_that_waits_for_its_line_has_it_at_the_end(desk: Desk) -> None:
    desk.emit(checked(False, False, "timeout"), circuit("open", "timeout"))
    desk.emit(checked(True, True), circuit("open", "HTTP 503"), after=SECOND)
    assert desk.lines() == [(DOWN,), (OPEN,)]
    desk.recorder.close()
    assert desk.lines("reason") == [
        (DOWN, "no answer in time"),
        (OPEN, "no answer in time"),
        (UP, None),
        (STILL_OPEN, UNSERVED),
    ]
    desk.recorder.close()
    assert len(desk.lines()) == 4


async def test_a_server_that_refuses_has_one_line_for_each_cause_and_one_when_it_serves_again(desk: Desk) -> None:
    refused = [UpstreamRequestFailed("reports", "tools/call", "refused", cause) for cause in ("HTTP 401", "HTTP 429")]
    desk.emit(*[refused[0]] * 5, *[refused[1]] * 5, after=15 * SECOND)
    desk.emit(UpstreamAnswered("reports", "tools/call", 0.1, None), after=15 * SECOND)
    desk.emit(UpstreamRequestFailed("reports", "tools/call", "unreachable", "ECONNREFUSED"), after=MINUTE)
    assert desk.lines("reason", "since") == [
        (REFUSING, "HTTP 401: the server refuses the gateway's credentials", "2026-01-02T03:04:20Z"),
        (REFUSING, "HTTP 429: the server gets too many requests", "2026-01-02T03:04:20Z"),
        (UP, None, "2026-01-02T03:04:20Z"),
        (DOWN, "connection refused", "2026-01-02T03:07:50Z"),
    ]


async def test_a_circuit_that_is_open_for_all_is_a_server_that_is_down(desk: Desk) -> None:
    desk.emit(CircuitChanged("reports", "open", "timeout"), after=MINUTE)
    desk.emit(CircuitChanged("reports", "half_open"), CircuitChanged("reports", "closed"), after=MINUTE)
    desk.emit(UpstreamAnswered("reports", "tools/call", 0.1, None), after=MINUTE)
    assert desk.lines("reason") == [(DOWN, "no answer in time"), (UP, None)]


async def test_programs_and_servers_have_the_same_lines(desk: Desk) -> None:
    desk.emit(
        ProgramAvailabilityChanged("reports", False, "exit status 3"),
        ProgramAvailabilityChanged("reports", True),
        after=MINUTE,
    )
    assert desk.lines("reason", "seconds") == [(DOWN, "exit status 3", None), (UP, None, 60.0)]


async def test_a_circuit_has_a_line_when_it_opens_and_when_it_closes_and_none_for_trials(desk: Desk) -> None:
    for state in ("open", "half_open", "open", "half_open", "closed"):
        desk.emit(circuit(state, "HTTP 504"), after=30 * SECOND)
    assert desk.lines("upstream", "reason", "since", "seconds") == [
        (OPEN, "reports", "HTTP 504: a proxy before the server gets no answer", "2026-01-02T03:04:35Z", None),
        (CLOSED, "reports", None, "2026-01-02T03:04:35Z", 120.0),
    ]


# --- limits ----------------------------------------------------------------------------------------------------------

LIMIT = "a limit refuses a caller"


async def test_a_caller_has_a_line_for_each_limit_once_a_minute_with_what_was_left_out(desk: Desk) -> None:
    desk.emit_of("alice", *[REJECTED] * 100)
    desk.emit_of("bob", REJECTED)
    desk.emit_of("alice", CapRefused("tasks", "context"), QueueRefused("reports", "full"))
    desk.clock.advance(MINUTE)
    desk.emit_of("alice", REJECTED)
    assert desk.lines("caller", "limit", "policy", "scope", "reason", "upstream", "left_out") == [
        (LIMIT, "c_alice", "rate", "calls", "context", None, "reports", None),
        (LIMIT, "c_bob", "rate", "calls", "context", None, "reports", None),
        (LIMIT, "c_alice", "tasks", None, "context", None, "reports", None),
        (LIMIT, "c_alice", "queue", None, None, "full", "reports", None),
        (LIMIT, "c_alice", "rate", "calls", "context", None, "reports", 99),
    ]


async def test_what_was_left_out_is_written_at_the_end(desk: Desk) -> None:
    desk.emit_of("alice", *[REJECTED] * 100)
    desk.recorder.close()
    assert desk.lines("left_out") == [(LIMIT, None), (LIMIT, 98)]


@pytest.mark.parametrize("decision", ["shadow", "fail_local", "fail_open"])
async def test_what_was_not_refused_has_no_line(desk: Desk, decision: str) -> None:
    desk.emit_of("alice", RateLimitChecked("calls", "context", decision))
    assert desk.lines() == []


async def test_a_caller_without_a_name_has_its_address(desk: Desk) -> None:
    """Of a site of IPv6 all addresses are one."""
    for address in ("2001:db8::1", "2001:db8::2", "192.0.2.7"):
        desk.emit_of(None, RateLimitChecked("ip", "ip", "rejected"), address=address)
    desk.emit(RateLimitChecked("ip", "ip", "rejected"))
    assert desk.lines("caller") == [(LIMIT, "2001:db8::/64"), (LIMIT, "192.0.2.7"), (LIMIT, "unknown")]


# --- tasks -----------------------------------------------------------------------------------------------------------


async def test_each_failed_task_is_named_by_its_reference(desk: Desk) -> None:
    records = [
        new_record(id=str(number) * 32, owner=OwnerKey("alice", mount))
        for number, mount in enumerate(("reports", "reports", "search"))
    ]
    desk.emit(*(TaskFaulted(record, "unreachable") for record in records))
    text = "a task failed without a result of its tool"
    assert desk.lines("upstream", "reason", "task") == [
        (text, record.owner.mount, "unreachable", plain_reference(record.id)) for record in records
    ]


async def test_the_lines_about_failed_tasks_are_bounded_and_the_rest_is_counted(desk: Desk) -> None:
    desk.emit(*(TaskFaulted(new_record(id=f"{number:032}"), "unreachable") for number in range(500)))
    assert len(desk.lines()) == 60
    desk.recorder.close()
    assert desk.lines("left_out_elsewhere")[-1] == ("a task failed without a result of its tool", 440)


async def test_each_task_that_goes_on_after_its_process_is_named_and_lost_ones_are_failed_tasks(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    again, lost = (new_record(id=letter * 32, call=new_call(tool="build")) for letter in "ab")
    desk.emit(TaskRecovered(again, "retried"), TaskRecovered(lost, "failed"))
    found = [(record.getMessage(), vars(record)["tool"], vars(record)["task"]) for record in caplog.records]
    assert found == [("a task of a process that is gone goes on here", "build", plain_reference(again.id))]


async def test_a_task_that_got_too_old_is_named_with_its_tool_its_age_and_the_setting(desk: Desk) -> None:
    old = new_record(call=new_call(tool="build"), expires_at=EPOCH + timedelta(hours=24))
    desk.emit(TaskExpired(old, "working"), TaskFaulted(old, "expired"))
    text = "a task ended unfinished: it is as old as tasks.ttl.max allows"
    fields = desk.lines("upstream", "tool", "task", "phase", "seconds")
    assert fields == [(text, old.owner.mount, "build", plain_reference(old.id), "working", 86_400)]


async def test_a_lost_lease_names_the_task_by_its_reference(desk: Desk) -> None:
    task = TaskId("q7Zr0_XbV3mKtY9-hLwPs5Dc8NfGj2Ae"[:3])
    desk.emit(LeaseLost("task", "reports", task))
    [(_, upstream, reference)] = desk.lines("upstream", "task")
    assert (upstream, reference) == ("reports", plain_reference(task))


async def test_an_event_that_cannot_be_logged_is_no_obstacle(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.emit(LeaseLost("task", "reports", None))  # type: ignore[arg-type]
    desk.emit(circuit("open", "timeout"))
    assert [record.getMessage() for record in caplog.records] == ["an event was not logged", OPEN]
