"""What servers of the modern era are told of hosts of either, and what they may ask by it."""

from typing import Any

import pytest

from requirements import covers
from taskgate.domain.versions import Peer, Revision
from taskgate.jsontext.edits import dump
from taskgate.protocol.messages import Params
from taskgate.protocol.modern.declared import declared, lacking, takes
from taskgate.protocol.server_messages import Question
from unit.protocol.modern.judge import check

NEWEST_LEGACY, MODERN = Revision.R2025_11_25, Revision.R2026_07_28
EVERYTHING = {
    "roots": {"listChanged": True},
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
    "tasks": {"requests": {}},
    "experimental": {"a": {}},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}


def host(revision: Revision, **capabilities: Any) -> Peer:
    return Peer(revision=revision, capabilities=capabilities, info={})


@pytest.mark.parametrize("revision", [NEWEST_LEGACY, MODERN])
@covers("V-META-8")
def test_what_crosses_the_gateway_is_declared_and_nothing_else(revision: Revision) -> None:
    found = declared(host(revision, **EVERYTHING))
    assert found == {
        "roots": {}, "sampling": {"tools": {}, "context": {}}, "elicitation": {"form": {}, "url": {}},
    }  # fmt: skip
    check(found, "ClientCapabilities")


def test_without_a_host_nothing_is_declared() -> None:
    assert declared(None) == {}


@pytest.mark.parametrize(
    ("revision", "found"),
    [
        (Revision.R2024_11_05, {"roots": {}, "sampling": {}}),
        (Revision.R2025_03_26, {"roots": {}, "sampling": {}}),
        (Revision.R2025_06_18, {"roots": {}, "sampling": {}, "elicitation": {"form": {}}}),
    ],
)
def test_an_older_host_can_do_what_its_revision_has(revision: Revision, found: dict[str, Any]) -> None:
    assert declared(host(revision, **EVERYTHING)) == found


@pytest.mark.parametrize("revision", [Revision.R2025_06_18, NEWEST_LEGACY, MODERN])
def test_an_elicitation_without_modes_is_one_of_forms(revision: Revision) -> None:
    assert declared(host(revision, elicitation={})) == {"elicitation": {"form": {}}}


def test_a_host_that_takes_pages_alone_is_asked_no_forms() -> None:
    assert declared(host(MODERN, elicitation={"url": {}, "form": True})) == {"elicitation": {"url": {}}}


@pytest.mark.parametrize("odd", [None, True, [], "yes"])
def test_what_is_no_object_is_not_declared(odd: Any) -> None:
    assert declared(host(MODERN, roots=odd, sampling={"tools": odd}, elicitation=odd)) == {"sampling": {}}


@pytest.mark.parametrize(
    ("capabilities", "method", "params", "can"),
    [
        ({"roots": {}}, "roots/list", None, True),
        ({}, "roots/list", None, False),
        ({"sampling": {}}, "sampling/createMessage", {"messages": []}, True),
        ({"sampling": {}}, "sampling/createMessage", {"tools": None, "toolChoice": None}, True),
        ({"sampling": {}}, "sampling/createMessage", {"tools": []}, False),
        ({"sampling": {"tools": {}}}, "sampling/createMessage", {"toolChoice": {}}, True),
        ({}, "sampling/createMessage", {}, False),
        ({"elicitation": {}}, "elicitation/create", {"message": ""}, True),
        ({"elicitation": {"form": {}}}, "elicitation/create", {"mode": "url"}, False),
        ({"elicitation": {"url": {}}}, "elicitation/create", {"mode": "url"}, True),
        ({"elicitation": {"url": {}}}, "elicitation/create", {}, False),
        ({"elicitation": {}}, "elicitation/create", {"mode": []}, False),
        ({}, "elicitation/create", {}, False),
    ],
)
@covers("M-MRTR-2")
def test_a_host_takes_what_it_declared(
    capabilities: dict[str, Any], method: str, params: dict[str, Any] | None, can: bool
) -> None:
    question = Question(method, None if params is None else Params(dump(params)))
    assert takes(host(MODERN, **capabilities), question) is can


FORM_BY, PAGE_BY = {"form": {}}, {"url": {}}


@pytest.mark.parametrize(
    ("capabilities", "method", "params", "missing"),
    [
        ({}, "roots/list", {}, {"roots": {}}),
        ({"roots": {}}, "roots/list", {}, {}),
        ({}, "sampling/createMessage", {}, {"sampling": {}}),
        ({}, "sampling/createMessage", {"tools": []}, {"sampling": {"tools": {}}}),
        ({"sampling": {}}, "sampling/createMessage", {"toolChoice": {}}, {"sampling": {"tools": {}}}),
        ({"sampling": {}}, "sampling/createMessage", {}, {}),
        ({}, "elicitation/create", {}, {"elicitation": FORM_BY}),
        ({"elicitation": FORM_BY}, "elicitation/create", {"mode": "url"}, {"elicitation": PAGE_BY}),
        ({"elicitation": FORM_BY}, "elicitation/create", {"mode": ["form"]}, {"elicitation": {}}),
        ({}, "tasks/list", {}, {}),
        ({}, ["roots/list"], {}, {}),
    ],
)
@covers("M-MRTR-2")
def test_what_a_host_did_not_declare_is_named_as_it_would_be_declared(
    capabilities: dict[str, Any], method: object, params: dict[str, Any], missing: dict[str, Any]
) -> None:
    assert lacking(host(MODERN, **capabilities), method, params) == missing
