"""Extensions that do not cross: each declaration is counted, and the log names each identifier once for a mount."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from taskgate.admission.mounts import Mount
from taskgate.domain.versions import Peer, Revision
from taskgate.gateway.extensions import LONGEST, MOST_LOGGED, MOST_OF_ONE, DeniedExtensions
from taskgate.protocol.extensions import ALLOWED_BY_DEFAULT, EVENTS, SKILLS, UI, Extension, ExtensionPolicy
from taskgate.protocol.vocabulary import TASKS_EXTENSION
from taskgate.telemetry.events import ExtensionDenied
from unit.admission.test_callers import MOUNT
from unit.lifecycle.recorded_events import RecordedEvents

OURS = "com.example/widgets"
LEGACY, MODERN = Revision.R2025_11_25, Revision.R2026_07_28
DPOP = "io.modelcontextprotocol/dpop"


def declares(revision: Revision, *identifiers: str, **capabilities: Any) -> Peer:
    return Peer(
        revision=revision, capabilities={"extensions": {name: {} for name in identifiers}, **capabilities}, info={}
    )


def carrying_ours() -> Mount:
    """A mount where that crosses within each era, and nothing else."""
    return replace(MOUNT, extensions=ExtensionPolicy(allowed={OURS: Extension()}))


@pytest.fixture
def emitted() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def denied(emitted: RecordedEvents) -> DeniedExtensions:
    return DeniedExtensions(emitted)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Any:
    """What the log has: mount, extension and side of each line."""
    caplog.set_level(logging.INFO, logger="taskgate.extensions")
    return lambda: [
        tuple(record.__dict__[key] for key in ("upstream", "extension", "side"))
        for record in caplog.records
        if record.getMessage() == "a declared extension is not forwarded" and record.levelno == logging.INFO
    ]


def counted(emitted: RecordedEvents) -> list[str]:
    assert all(isinstance(event, ExtensionDenied) and event.mount == "reports" for event in emitted.all)
    return [event.extension for event in emitted.all if isinstance(event, ExtensionDenied)]


def test_each_session_counts_what_either_side_declares_and_the_log_has_it_once(
    denied: DeniedExtensions, emitted: RecordedEvents, logged: Any
) -> None:
    for _ in range(2):
        denied.in_session(MOUNT, declares(LEGACY, OURS, UI), declares(LEGACY, EVENTS, OURS, SKILLS))
    assert counted(emitted) == [EVENTS, OURS, OURS] * 2
    assert logged() == [("reports", EVENTS, "server"), ("reports", OURS, "server")]


def test_another_mount_has_lines_of_its_own(denied: DeniedExtensions, logged: Any) -> None:
    for name in ("reports", "search"):
        denied.of_host(replace(MOUNT, name=name), declares(MODERN, OURS))
    assert logged() == [("reports", OURS, "host"), ("search", OURS, "host")]


def test_events_are_denied_in_their_other_spelling_too_and_once_in_both(
    denied: DeniedExtensions, emitted: RecordedEvents
) -> None:
    denied.in_session(MOUNT, declares(LEGACY), declares(LEGACY, events={}))
    denied.in_session(MOUNT, declares(LEGACY), declares(LEGACY, EVENTS, events={}))
    assert counted(emitted) == [EVENTS] * 2


def test_tasks_are_the_gateways_own_and_never_denied(denied: DeniedExtensions, emitted: RecordedEvents) -> None:
    denied.in_session(MOUNT, declares(MODERN, TASKS_EXTENSION), declares(MODERN, TASKS_EXTENSION))
    denied.of_host(MOUNT, declares(MODERN, TASKS_EXTENSION))
    assert emitted.all == []


def test_what_is_about_authorization_is_denied_whatever_is_allowed(
    denied: DeniedExtensions, emitted: RecordedEvents
) -> None:
    there = replace(MOUNT, extensions=ExtensionPolicy(others=True))
    denied.in_session(there, declares(LEGACY, DPOP, OURS), declares(LEGACY))
    assert counted(emitted) == [DPOP]


def test_a_host_whose_server_is_not_known_yet_is_told_of_by_what_crosses_to_none(
    denied: DeniedExtensions, emitted: RecordedEvents
) -> None:
    denied.of_host(carrying_ours(), declares(MODERN, OURS, UI))
    assert counted(emitted) == [UI]


def test_a_discovery_tells_of_the_server_and_of_what_crosses_to_this_one_alone_not(
    denied: DeniedExtensions, emitted: RecordedEvents
) -> None:
    """What crosses to no server was told of before."""
    there, host = carrying_ours(), declares(MODERN, OURS, UI)
    denied.at_discovery(there, host, declares(MODERN, SKILLS, OURS))
    assert counted(emitted) == [SKILLS]
    denied.at_discovery(there, host, declares(LEGACY, SKILLS, OURS))
    assert counted(emitted)[1:] == [SKILLS, OURS, OURS]


@pytest.mark.parametrize("declared", [None, [], True, "ui", {UI: {}}])
def test_what_is_no_declaration_denies_nothing(
    denied: DeniedExtensions, emitted: RecordedEvents, declared: Any
) -> None:
    assert UI in ALLOWED_BY_DEFAULT
    peer = Peer(revision=LEGACY, capabilities={"extensions": declared}, info={})
    denied.in_session(MOUNT, peer, peer)
    assert emitted.all == []


def test_a_long_identifier_is_cut(denied: DeniedExtensions, emitted: RecordedEvents, logged: Any) -> None:
    long = "com.example/" + "x" * LONGEST
    denied.of_host(MOUNT, declares(MODERN, long))
    assert (counted(emitted), logged()) == ([long[:LONGEST]], [("reports", long[:LONGEST], "host")])


def test_one_declaration_counts_no_more_than_so_many(denied: DeniedExtensions, emitted: RecordedEvents) -> None:
    denied.of_host(MOUNT, declares(MODERN, *(f"com.example/{number}" for number in range(MOST_OF_ONE + 5))))
    assert counted(emitted) == [f"com.example/{number}" for number in range(MOST_OF_ONE)]


def test_hosts_that_make_identifiers_up_fill_neither_the_log_nor_the_lines_of_the_server(
    denied: DeniedExtensions, emitted: RecordedEvents, logged: Any
) -> None:
    for number in range(MOST_LOGGED + 5):
        denied.of_host(MOUNT, declares(MODERN, f"com.example/{number}"))
    denied.in_session(MOUNT, declares(LEGACY), declares(LEGACY, EVENTS))
    assert len(emitted.all) == MOST_LOGGED + 6
    assert [side for _, _, side in logged()] == ["host"] * MOST_LOGGED + ["server"]
