"""What hosts declare, as servers are told it, and what questions it allows."""

from typing import Any

import pytest

from requirements import covers
from taskgate.domain.versions import Peer, Revision
from taskgate.jsontext.spans import members
from taskgate.protocol.legacy.capabilities import (
    allows_notification,
    can_ask,
    declared,
    makes_tasks_of,
    refusal,
)

OLD = [Revision.R2024_11_05, Revision.R2025_03_26]
MIDDLE = Revision.R2025_06_18
NEW = Revision.R2025_11_25
SAMPLE, ELICIT, ROOTS = "sampling/createMessage", "elicitation/create", "roots/list"


def host(revision: Revision = NEW, **capabilities: Any) -> Peer:
    return Peer(revision=revision, capabilities=capabilities, info={})


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
