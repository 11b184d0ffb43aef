"""What a replica refused last is kept for operators, in bounded memory."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import EPOCH, ManualClock
from taskgate.auth.context import ANONYMOUS, AuthContext, Identity
from taskgate.operators.access import OperatorAccess
from taskgate.operators.refusals import MOST_OF_SOURCE, MOST_REFUSALS, RefusalLog
from taskgate.telemetry import events
from taskgate.telemetry.request_context import RequestContext, in_request
from taskgate.telemetry.ring import EventRing


class Stage:
    """A log of refusals, and the events that it reads."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ring = EventRing(self.clock)
        self.log = RefusalLog(self.ring, OperatorAccess(self.clock.elapsed))
        self.log.subscribe()

    def emit(self, event: events.Event, address: str = "192.0.2.77", caller: AuthContext | None = None) -> None:
        with in_request(RequestContext("r1", address, "POST", "/mcp/reports", mount="reports", caller=caller)):
            self.ring.emit(event)

    def shown(self, limit: int = MOST_REFUSALS) -> list[dict[str, Any]]:
        return [item.model_dump(mode="json") for item in self.log.newest(limit)]


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.mark.parametrize(
    ("event", "kind", "reason"),
    [
        (events.RateLimitChecked("calls", "context", "rejected"), "rate", "calls"),
        (events.CapRefused("tasks", "context"), "cap", "tasks_context"),
        (events.QueueRefused("reports", "held"), "queue", "held"),
        (events.TokenChecked("corp", "expired"), "auth", "expired"),
        (events.AccessRefused("reports", "tools/call", shadow=False), "authorization", "default"),
        (events.AccessRefused("reports", "tools/call", shadow=False, rule="staff"), "authorization", "staff"),
        (events.SuspicionRaised("header_mismatch", "reports"), "security", "header_mismatch"),
    ],
)
def test_each_kind_of_refusal_is_kept(stage: Stage, event: events.Event, kind: str, reason: str) -> None:
    stage.emit(event)
    [shown] = stage.shown()
    assert (shown["kind"], shown["reason"], shown["upstream"], shown["count"]) == (kind, reason, "reports", 1)


@pytest.mark.parametrize(
    "event",
    [
        events.RateLimitChecked("calls", "context", "shadow"),
        events.RateLimitChecked("calls", "context", "fail_local"),
        events.TokenChecked("corp", "ok", known=False),
        events.AccessRefused("reports", "tools/call", shadow=True),
    ],
)
def test_what_passes_is_no_refusal(stage: Stage, event: events.Event) -> None:
    stage.emit(event)
    assert stage.shown() == []


def test_equal_refusals_are_one_entry_with_the_time_of_the_newest(stage: Stage) -> None:
    stage.emit(events.QueueRefused("reports", "full"))
    stage.emit(events.QueueRefused("reports", "timeout"))
    stage.clock.advance(timedelta(seconds=60))
    stage.emit(events.QueueRefused("reports", "full"))
    first, second = stage.shown()
    assert (first["reason"], first["count"], second["reason"], second["count"]) == ("full", 2, "timeout", 1)
    assert [item.at for item in stage.log.newest(1)] == [EPOCH + timedelta(seconds=60)]


@pytest.mark.parametrize(
    ("address", "block"),
    [("192.0.2.77", "192.0.2.0/24"), ("2001:db8::1:2", "2001:db8::/64"), ("", None)],
)
def test_an_address_is_shown_as_its_network(stage: Stage, address: str, block: str | None) -> None:
    stage.emit(events.CapRefused("tasks", "context"), address)
    assert [each["address"] for each in stage.shown()] == [block]


def test_one_caller_with_several_clients_is_one_entry_with_the_names_of_the_newest(stage: Stage) -> None:
    bob = Identity(
        issuer_name="corp", issuer="https://idp.example", subject="bob", client_id="desk", tenant=None,
        scopes=frozenset(), expires_at=None, claims={},
    )  # fmt: skip
    for client in ("desk", "phone"):
        caller = AuthContext(key="k", identity=replace(bob, client_id=client))
        stage.emit(events.CapRefused("tasks", "context"), caller=caller)
    [item] = stage.shown()
    assert (item["count"], item["issuer"], item["subject"], item["client"]) == (2, "corp", "bob", "phone")


def test_a_refusal_outside_of_a_request_names_no_peer(stage: Stage) -> None:
    stage.ring.emit(events.QueueRefused("reports", "full"))
    [shown] = stage.shown()
    assert (shown["caller"], shown["address"], shown["upstream"]) == (None, None, "reports")


def test_a_flood_of_different_refusals_takes_bounded_memory(stage: Stage) -> None:
    refused: Callable[[int], events.Event] = lambda number: events.AccessRefused(  # noqa: E731
        "reports", "tools/call", shadow=False, tool=f"{number}-" + "x" * 10_000
    )
    for number in range(MOST_REFUSALS + 50):
        stage.emit(refused(number), address=f"192.0.{number}.1")
    shown = stage.shown(MOST_REFUSALS + 50)
    assert len(shown) == MOST_REFUSALS
    assert shown[0]["tool"] == f"{MOST_REFUSALS + 49}-".ljust(256, "x")


@pytest.mark.parametrize(
    "flooding",
    [
        pytest.param({"address": "192.0.2.1"}, id="an address"),
        pytest.param({"address": "192.0.2.1", "caller": ANONYMOUS}, id="an address without authentication"),
        pytest.param({"caller": AuthContext(key="one")}, id="a caller at many addresses"),
    ],
)
def test_a_caller_that_is_refused_for_many_tools_leaves_the_entries_of_others(
    stage: Stage, flooding: dict[str, Any]
) -> None:
    stage.emit(events.AccessRefused("reports", "tools/call", shadow=False, tool="wanted"), address="198.51.100.1")
    for number in range(MOST_REFUSALS):
        event = events.AccessRefused("reports", "tools/call", shadow=False, tool=f"{number}")
        for _ in range(2):
            stage.emit(event, **{"address": f"203.0.{number}.1", **flooding})
    shown = stage.shown()
    newest = [f"{number}" for number in range(MOST_REFUSALS)][: -MOST_OF_SOURCE - 1 : -1]
    assert [each["tool"] for each in shown] == [*newest, "wanted"]
    assert stage.log.left_out == 2 * (MOST_REFUSALS - MOST_OF_SOURCE)


def test_of_a_caller_the_entry_goes_that_was_not_repeated_for_longest(stage: Stage) -> None:
    for tool in (*range(MOST_OF_SOURCE), 0, "last"):
        stage.emit(events.AccessRefused("reports", "tools/call", shadow=False, tool=f"{tool}"))
    tools = [each["tool"] for each in stage.shown()]
    assert (tools[:2], "1" in tools, len(tools)) == (["last", "0"], False, MOST_OF_SOURCE)
