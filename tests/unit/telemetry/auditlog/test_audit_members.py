"""What `data` of a line has of its event: all that the catalogue names, and nothing else."""

from datetime import timedelta
from typing import Any

import pytest

from taskgate.domain.record import TaskStatus, evolve
from taskgate.protocol.envelope import Request
from taskgate.telemetry import events
from taskgate.telemetry.auditlog.catalogue import KINDS
from unit.telemetry.auditlog.told_events import (
    ANSWERED,
    CALLER,
    COMPLETED,
    DONE,
    FIRST_USE,
    line_of,
    message_text,
    new_visit,
    of_task,
)

_HALF = timedelta(milliseconds=500)
_ISSUER = {"issuer": "corp"}
_GATEWAY = {"version": "1.0", "fingerprint": "0000000000ff"}
_QUESTION = {"key": "input-1", "kind": "sampling"}

DATA: list[tuple[events.Event, dict[str, Any]]] = [
    (ANSWERED, {"seconds": 0.25}),
    (events.BatchItemAnswered(), {}),
    (FIRST_USE, _ISSUER),
    (events.TokenChecked("corp", "expired"), _ISSUER),
    (events.KeysFetched("corp", "ok", 3), {**_ISSUER, "keys": 3}),
    (events.KeysFetched("corp", "stale", 2), {**_ISSUER, "keys": 2}),
    (events.AccessRefused("reports", "tools/call", False, None), {"rule": None}),
    (events.TaskCreated(of_task(), "defaulted"), {"adjustment": "defaulted"}),
    (events.TaskDispatched(of_task(), _HALF), {"waited_seconds": 0.5}),
    (events.TaskTransitioned(DONE, TaskStatus.WORKING), {"from": "working", "to": "completed"}),
    (COMPLETED, {"age_seconds": 1.0, "result": {"bytes": 14}}),
    (events.TaskFinished(of_task(), TaskStatus.FAILED, "timeout", _HALF, None), {"age_seconds": 0.5}),
    (events.TaskFinished(of_task(), TaskStatus.CANCELLED, "client", _HALF, None), {"age_seconds": 0.5}),
    (events.TaskPurged(of_task()), {"retrieved": False}),
    (events.TaskPurged(evolve(of_task(), retrieved=True)), {"retrieved": True}),
    (events.TaskRetrieved(DONE, _HALF), {"delay_seconds": 0.5, "first": True}),
    (events.TaskRetrieved(DONE, None), {"delay_seconds": None, "first": False}),
    (events.InputRequestOpened(of_task(), "input-1", "sampling"), _QUESTION),
    (events.InputSettled(of_task(), "input-1", "sampling", "answered"), _QUESTION),
    (events.InputSettled(of_task(), "input-1", "sampling", "expired"), _QUESTION),
    (events.GatewayPhaseChanged("started", "1.0", 255), _GATEWAY),
    (events.ConfigReloaded("needs_restart", 255, (), ("store.url",)), {**_GATEWAY, "waits": ["store.url"]}),
    (events.ConfigReloaded("invalid", 255, ("a: b",)), {**_GATEWAY, "problems": ["a: b"]}),
    (events.CredentialsFetched("reports", 0.5, True), {"seconds": 0.5}),
    (events.CredentialsFetched("reports", 0.5, False), {"seconds": 0.5}),
    (events.SuspicionRaised("header_mismatch", "reports"), {}),
    (events.RateFallbackUsed("open"), {"rule": "open"}),
]


@pytest.mark.parametrize(("event", "told"), DATA, ids=lambda each: type(each).__name__)
def test_a_line_has_what_its_event_says(event: events.Event, told: dict[str, Any]) -> None:
    if isinstance(event, events.ConfigReloaded):
        told = {name: value for name, value in told.items() if name != "version"}
    assert line_of(event, new_visit())["data"] == told


def test_all_that_the_catalogue_names_is_told() -> None:
    seen: dict[str, set[str]] = {}
    for event, _ in DATA:
        line = line_of(event, new_visit())
        seen.setdefault(line["event"], set()).update(line["data"])
    of_requests = {"rpc.call", "rpc.request", "rpc.rejected"}
    for kind in KINDS:
        if kind.name in seen and kind.name not in of_requests:
            assert seen[kind.name] == set(kind.members)
    assert [kind.name for kind in KINDS if kind.members and kind.topic != "audit" and kind.name not in seen] == [
        "gateway.stopping",
        "gateway.stopped",
        "rpc.request",
        "rpc.rejected",
        "access.shadow_refused",
    ]


@pytest.mark.parametrize("method", ["notifications/cancelled", "notifications/progress"])
@pytest.mark.parametrize("is_request", [True, False])
def test_why_a_host_cancels_is_told_of_that_note_alone(method: str, is_request: bool) -> None:
    text = message_text(method, reason="r")
    request_context = new_visit(text if is_request else text.replace(b'"id": 7, ', b""))
    assert isinstance(request_context.message, Request) is is_request
    is_told = method == "notifications/cancelled" and not is_request
    assert ("stated_reason" in line_of(ANSWERED, request_context)["data"]) is is_told


def test_who_was_accepted_is_told_before_the_visit_knows() -> None:
    assert line_of(FIRST_USE, new_visit(caller=None))["actor"]["ctx"] == f"c_{CALLER.key}"
