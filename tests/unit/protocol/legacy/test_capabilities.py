"""What hosts declare, as servers are told it, and what questions it allows."""

from typing import Any

import pytest

from requirements import covers
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import MalformedMessage
from taskgate.jsontext.spans import members
from taskgate.protocol.legacy.capabilities import (
    allows_notification,
    can_ask,
    declared,
    makes_tasks_of,
    missing,
    refusal,
)

OLD = [Revision.R2024_11_05, Revision.R2025_03_26]
MIDDLE = Revision.R2025_06_18
NEW = Revision.R2025_11_25
SAMPLE, ELICIT, ROOTS = "sampling/createMessage", "elicitation/create", "roots/list"
NO_OBJECTS: list[Any] = [None, True, "yes", 1, [], ["tools"]]


def host(revision: Revision = NEW, **capabilities: Any) -> Peer:
    return Peer(revision=revision, capabilities=capabilities, info={})


def test_nobody_and_a_host_that_declares_nothing_are_declared_nothing() -> None:
    assert declared(None) == {}
    assert declared(host()) == {}


@covers("B-CONV-4", "L-HOST-1")
def test_all_that_crosses_the_gateway_is_declared_for_a_newest_host() -> None:
    everything = {
        "roots": {"listChanged": True},
        "sampling": {"tools": {}, "context": {}},
        "elicitation": {"form": {}, "url": {}},
        "tasks": {
            "list": {},
            "cancel": {},
            "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}},
        },
    }
    assert declared(host(**everything)) == everything


def test_what_is_not_known_is_left_out() -> None:
    odd = {
        "experimental": {"a": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
        "roots": {"a": 1},
        "sampling": {"a": {}, "tools": {"b": 1}},
        "elicitation": {"a": {}, "form": {"c": 1}},
        "tasks": {"a": {}, "list": {"b": 1}, "requests": {"tools": {"call": {}}, "sampling": {"other": {}}}},
    }
    assert declared(host(**odd)) == {
        "roots": {},
        "sampling": {"tools": {}},
        "elicitation": {"form": {}},
        "tasks": {"list": {}, "requests": {}},
    }


@pytest.mark.parametrize("value", NO_OBJECTS)
@pytest.mark.parametrize("name", ["roots", "sampling", "elicitation", "tasks"])
def test_what_is_no_object_is_not_declared(name: str, value: Any) -> None:
    assert declared(host(**{name: value})) == {}


@pytest.mark.parametrize("value", NO_OBJECTS)
def test_what_is_no_object_below_is_not_declared(value: Any) -> None:
    told = declared(
        host(
            sampling={"tools": value, "context": value},
            elicitation={"form": value, "url": value},
            tasks={"list": value, "cancel": value, "requests": value},
        )
    )
    assert told == {"sampling": {}, "elicitation": {}, "tasks": {}}
    requests = {"sampling": value, "elicitation": {"create": value}}
    assert declared(host(tasks={"requests": requests})) == {"tasks": {"requests": {}}}


@pytest.mark.parametrize("value", [False, None, 1, "true", {}])
def test_changes_of_roots_are_declared_only_where_they_are_true(value: Any) -> None:
    assert declared(host(roots={"listChanged": value})) == {"roots": {}}


@pytest.mark.parametrize("revision", [*OLD, MIDDLE])
def test_what_only_the_newest_revision_has_is_cut_for_older_hosts(revision: Revision) -> None:
    told = declared(
        host(
            revision,
            roots={"listChanged": True},
            sampling={"tools": {}, "context": {}},
            elicitation={"url": {}},
            tasks={"list": {}},
        )
    )
    plain = {"roots": {"listChanged": True}, "sampling": {}}
    assert told == (plain | {"elicitation": {}} if revision is MIDDLE else plain)


MODERN_REVISION = Revision.R2026_07_28


@covers("L-HOST-1")
def test_of_a_host_of_the_modern_era_only_what_a_server_may_ask_is_declared() -> None:
    # On that wire no host could tell of changes, or keeps tasks for anybody.
    everything = host(
        MODERN_REVISION,
        roots={"listChanged": True},
        sampling={"tools": {}, "context": {"x": 1}, "y": {}},
        elicitation={"form": {}, "url": {}},
        tasks={"list": {}, "requests": {"elicitation": {"create": {}}}},
        extensions={"io.modelcontextprotocol/tasks": {}},
        experimental={"x": {}},
    )
    parts = {"sampling": {"tools": {}, "context": {}}, "elicitation": {"form": {}, "url": {}}}
    assert declared(everything) == {"roots": {}, **parts}
    assert declared(host(MODERN_REVISION, elicitation={})) == {"elicitation": {}}
    assert declared(host(MODERN_REVISION, roots=True, sampling=[], elicitation=None)) == {}


@covers("M-MRTR-2")
@pytest.mark.parametrize(
    ("capabilities", "method", "params", "asked"),
    [
        ({"roots": {}}, ROOTS, "", True),
        ({"sampling": {}}, SAMPLE, "{}", True),
        ({"sampling": {}}, SAMPLE, '{"tools":[]}', False),
        ({"sampling": {"tools": {}}}, SAMPLE, '{"tools":[]}', True),
        ({"elicitation": {}}, ELICIT, '{"mode":"form"}', True),
        ({"elicitation": {}}, ELICIT, '{"mode":"url"}', False),
        ({"elicitation": {"url": {}}}, ELICIT, '{"mode":"url"}', True),
        ({"elicitation": {"url": {}}}, ELICIT, "{}", False),
        ({"tasks": {"list": {}}}, "tasks/list", "{}", False),
        ({"tasks": {}}, "tasks/get", "{}", False),
        ({}, ROOTS, "", False),
    ],
)
def test_a_host_of_the_modern_era_is_asked_what_it_declared(
    capabilities: dict[str, Any], method: str, params: str, asked: bool
) -> None:
    # An elicitation that names no mode is a form.
    asking = host(MODERN_REVISION, **capabilities)
    assert can_ask(asking, method, params) is asked
    assert not makes_tasks_of(asking, method)
    assert not allows_notification(asking, "notifications/roots/list_changed")
    assert not allows_notification(asking, "notifications/tasks/status")


# --- questions


@covers("L-INPUT-6")
@pytest.mark.parametrize(
    ("method", "needs"),
    [
        (ROOTS, {"roots": {}}),
        (SAMPLE, {"sampling": {}}),
        (ELICIT, {"elicitation": {}}),
        ("tasks/get", {"tasks": {}}),
        ("tasks/result", {"tasks": {}}),
        ("tasks/list", {"tasks": {"list": {}}}),
        ("tasks/cancel", {"tasks": {"cancel": {}}}),
    ],
)
def test_a_question_is_allowed_where_it_was_declared_and_nowhere_else(method: str, needs: dict[str, Any]) -> None:
    assert refusal(host(**needs), method, {}) is None
    assert refusal(host(), method, {}) == -32601
    assert refusal(None, method, {}) == -32601
    others = {"roots": {}, "sampling": {}, "elicitation": {}, "tasks": {"list": {}, "cancel": {}}}
    others = {name: value for name, value in others.items() if name not in needs}
    assert refusal(host(**others), method, {}) == -32601


@pytest.mark.parametrize("method", ["tasks/list", "tasks/cancel"])
def test_tasks_alone_are_neither_listed_nor_cancelled(method: str) -> None:
    assert refusal(host(tasks={}), method, {}) == -32601


@pytest.mark.parametrize("method", ["", "ping", "tools/list", "tasks/update", "elicitation", "sampling/other"])
def test_any_other_question_is_unknown(method: str) -> None:
    everything = host(roots={}, sampling={}, elicitation={}, tasks={"list": {}, "cancel": {}})
    assert refusal(everything, method, {}) == -32601


@pytest.mark.parametrize(
    ("modes", "mode", "code"),
    [
        ({}, "", None),
        ({}, '"form"', None),
        ({}, '"url"', -32602),
        ({"form": {}}, "", None),
        ({"form": {}}, '"url"', -32602),
        ({"url": {}}, "", -32602),
        ({"url": {}}, '"form"', -32602),
        ({"url": {}}, '"url"', None),
        ({"form": {}, "url": {}}, '"form"', None),
        ({"form": {}, "url": {}}, '"other"', -32602),
        ({"form": {}, "url": {}}, "null", -32602),
        ({"form": {}, "url": {}}, "[1]", -32602),
    ],
)
def test_an_elicitation_is_allowed_in_a_declared_mode(modes: dict[str, Any], mode: str, code: int | None) -> None:
    params = f'{{"mode":{mode}}}' if mode else "{}"
    assert refusal(host(elicitation=modes), ELICIT, members(params)) == code
    assert can_ask(host(elicitation=modes), ELICIT, params) is (code is None)


@pytest.mark.parametrize("params", ['{"tools":[]}', '{"toolChoice":{"mode":"auto"}}'])
def test_a_sampling_with_tools_is_allowed_where_they_were_declared(params: str) -> None:
    assert refusal(host(sampling={}), SAMPLE, members(params)) == -32602
    assert refusal(host(MIDDLE, sampling={"tools": {}}), SAMPLE, members(params)) == -32602
    assert refusal(host(), SAMPLE, members(params)) == -32601
    assert can_ask(host(sampling={"tools": {}}), SAMPLE, params)
    assert can_ask(host(sampling={}), SAMPLE, '{"tools":null,"messages":[]}')


@pytest.mark.parametrize(
    ("declares", "method", "params", "lacks"),
    [
        ({}, ROOTS, "{}", {"roots": {}}),
        ({}, SAMPLE, "{}", {"sampling": {}}),
        ({}, SAMPLE, '{"tools":[]}', {"sampling": {"tools": {}}}),
        ({"sampling": {}}, SAMPLE, '{"tools":[]}', {"sampling": {"tools": {}}}),
        ({}, ELICIT, "{}", {"elicitation": {}}),
        ({}, ELICIT, '{"mode":"form"}', {"elicitation": {}}),
        ({"elicitation": {"url": {}}}, ELICIT, "{}", {"elicitation": {"form": {}}}),
        ({}, ELICIT, '{"mode":"url"}', {"elicitation": {"url": {}}}),
        ({"elicitation": {}}, ELICIT, '{"mode":"url"}', {"elicitation": {"url": {}}}),
        ({}, ELICIT, '{"mode":"other"}', None),
        ({}, "tasks/list", "{}", None),
        ({}, "unknown/method", "{}", None),
    ],
)
def test_what_a_host_would_have_had_to_declare_is_named(
    declares: dict[str, Any], method: str, params: str, lacks: dict[str, Any] | None
) -> None:
    new = host(Revision.R2026_07_28, **declares)
    assert refusal(new, method, members(params)) is not None
    assert missing(new, method, members(params)) == lacks
    if lacks is not None:
        assert refusal(host(Revision.R2026_07_28, **lacks), method, members(params)) is None


def test_a_question_without_parameters_is_judged_too() -> None:
    assert can_ask(host(roots={}), ROOTS, "")
    assert can_ask(host(elicitation={}), ELICIT, "")
    with pytest.raises(MalformedMessage):
        can_ask(host(roots={}), ROOTS, '{"a":1,"a":2}')


@pytest.mark.parametrize(
    ("method", "asked", "verb"), [(SAMPLE, "sampling", "createMessage"), (ELICIT, "elicitation", "create")]
)
def test_a_host_makes_tasks_of_the_questions_that_it_named(method: str, asked: str, verb: str) -> None:
    able = host(tasks={"requests": {asked: {verb: {}}}})
    assert makes_tasks_of(able, method)
    assert not makes_tasks_of(able, ELICIT if method == SAMPLE else SAMPLE)
    assert not makes_tasks_of(able, ROOTS)
    assert not makes_tasks_of(host(tasks={"list": {}}), method)
    assert not makes_tasks_of(host(MIDDLE, tasks={"requests": {asked: {verb: {}}}}), method)
    assert not makes_tasks_of(None, method)


def test_a_server_is_told_what_it_was_told_to_expect() -> None:
    changed, status = "notifications/roots/list_changed", "notifications/tasks/status"
    assert allows_notification(host(roots={"listChanged": True}), changed)
    assert not allows_notification(host(roots={}, tasks={}), changed)
    assert not allows_notification(host(), changed)
    assert allows_notification(host(tasks={}), status)
    assert not allows_notification(host(roots={"listChanged": True}), status)
    assert not allows_notification(None, status)
    assert not allows_notification(host(roots={"listChanged": True}, tasks={}), "notifications/message")
