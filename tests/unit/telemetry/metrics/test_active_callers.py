"""Callers are counted and never named: those who ask, and those who are at a cap of their own."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from helpers.emitting_metrics import EmittingMetrics
from helpers.ended_requests import http_answered, rpc_answered
from helpers.records import new_record
from taskgate.auth.context import AuthContext
from taskgate.domain.record import OwnerKey, TaskStatus
from taskgate.telemetry import events, request_context
from taskgate.telemetry.metrics import admission
from taskgate.telemetry.ring import EventRing
from unit.telemetry.metrics.conftest import SetClock

Page = Callable[[], dict[tuple[str, tuple[tuple[str, str], ...]], float]]


def by(metrics: EmittingMetrics, caller: str | None, *emitted: events.Event) -> None:
    """Those events, of a request of that caller."""
    here = request_context.RequestContext("id", "192.0.2.7", "POST", "/m")
    here.caller = None if caller is None else AuthContext(key=caller)
    with request_context.in_request(here):
        for event in emitted:
            metrics.emit(replace(event, caller=here.caller) if type(event) is type(here) else event)


ANSWERED = http_answered("mcp", "POST", 200, 0.1)


@pytest.fixture
def active(samples: Page) -> Callable[[], float]:
    """How many are shown as active."""
    return lambda: samples()["taskgate_active_contexts", ()]


@pytest.fixture
def saturated(samples: Page) -> Callable[[], float]:
    """How many are shown to be at a cap."""
    return lambda: samples()["taskgate_saturated_contexts", ()]


def test_a_caller_counts_once_however_often_it_asks(metrics: EmittingMetrics, active: Callable[[], float]) -> None:
    assert active() == 0
    for caller in ("a", "b", "a", "a", None):
        by(metrics, caller, ANSWERED)
    metrics.emit(ANSWERED)
    assert active() == 2


def test_a_caller_counts_for_five_minutes_after_it_asked_last(
    metrics: EmittingMetrics, active: Callable[[], float], clock: SetClock
) -> None:
    by(metrics, "a", ANSWERED)
    by(metrics, "b", ANSWERED)
    clock.seconds += 200
    by(metrics, "a", ANSWERED)
    clock.seconds += 100
    assert active() == 2
    clock.seconds += 1
    assert active() == 1
    clock.seconds += 200
    assert active() == 0


def test_a_caller_that_asks_all_the_time_counts_for_five_minutes_after_its_last_second(
    metrics: EmittingMetrics, active: Callable[[], float], clock: SetClock
) -> None:
    for _ in range(10):
        by(metrics, "a", ANSWERED)
        clock.seconds += admission.REFRESH_SECONDS / 2
    clock.seconds += admission.ACTIVE_SECONDS - 2 * admission.REFRESH_SECONDS
    assert active() == 1
    clock.seconds += 2 * admission.REFRESH_SECONDS
    assert active() == 0


def test_no_more_callers_are_remembered_than_there_is_room_for(clock: SetClock) -> None:
    callers = admission.ActiveCallers(clock, EventRing(clock))
    for number in (*range(admission.MAX_CALLERS + 2), 0):
        callers.add(str(number))
    assert callers.active() == admission.MAX_CALLERS


def test_a_caller_that_a_cap_of_its_own_refused_is_saturated(
    metrics: EmittingMetrics, saturated: Callable[[], float]
) -> None:
    assert saturated() == 0
    by(metrics, "a", events.CapRefused("tasks", "context"), events.CapRefused("streams", "context"))
    by(metrics, "b", events.CapRefused("tasks", "context"))
    by(metrics, "c", events.CapRefused("tasks", "tenant"), events.CapRefused("bytes", "global"))
    by(metrics, None, events.CapRefused("tasks", "context"))
    assert saturated() == 2


@pytest.mark.parametrize(
    ("cap", "relief"),
    [
        ("tasks", events.TaskFinished(new_record(owner=OwnerKey("a", "m")), TaskStatus.COMPLETED, "ok",
                                     new_record().ttl, None)),
        ("bytes", events.TaskPurged(new_record(owner=OwnerKey("a", "m")))),
        ("sessions", rpc_answered("m", "initialize", "2025-11-25", 0.1, None)),
        ("streams", events.StreamEnded("downstream", "get")),
    ],
)  # fmt: skip
def test_it_is_so_no_longer_once_there_is_room_again(
    metrics: EmittingMetrics, saturated: Callable[[], float], cap: str, relief: events.Event
) -> None:
    for other in {"tasks", "bytes", "sessions", "streams"} - {cap}:
        by(metrics, "a", events.CapRefused(other, "context"))
        by(metrics, "a", relief)
        assert saturated() == 1, "what there is room for is something else"
        by(metrics, "a", events.TaskFinished(new_record(owner=OwnerKey("a", "m")), TaskStatus.FAILED, "closed",
                                            new_record().ttl, None),
           events.TaskPurged(new_record(owner=OwnerKey("a", "m"))), events.StreamEnded("downstream", "get"),
           rpc_answered("m", "initialize", "2025-11-25", 0.1, None))  # fmt: skip
        assert saturated() == 0
    by(metrics, "a", events.CapRefused(cap, "context"))
    by(metrics, "b", events.CapRefused(cap, "context"))
    by(metrics, "a", relief)
    assert saturated() == 1


@pytest.mark.parametrize(
    ("cap", "event"),
    [
        ("sessions", rpc_answered("m", "initialize", "2025-11-25", 0.1, "429")),
        ("sessions", rpc_answered("m", "ping", "2025-11-25", 0.1, None)),
        ("streams", events.StreamEnded("upstream", "get")),
    ],
)
def test_nothing_else_is_taken_for_room(
    metrics: EmittingMetrics, saturated: Callable[[], float], cap: str, event: events.Event
) -> None:
    by(metrics, "a", events.CapRefused(cap, "context"), event)
    by(metrics, None, rpc_answered("m", "initialize", "2025-11-25", 0.1, None))
    assert saturated() == 1


def test_it_is_forgotten_where_nothing_tells_of_room(
    metrics: EmittingMetrics, saturated: Callable[[], float], clock: SetClock
) -> None:
    by(metrics, "a", events.CapRefused("sessions", "context"))
    clock.seconds += 301
    assert saturated() == 0
