"""Capabilities of servers for hosts, and of hosts for servers."""

import json
from typing import Any

import pytest

from helpers.memory_kept import memory_kept
from requirements import covers
from taskgate.domain.versions import Peer, Revision
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.modern.capabilities import discover_result, missing

# --- of servers -------------------------------------------------------------------------------------------------------


def server(
    capabilities: str, instructions: str | None = None, revision: Revision = Revision.R2025_11_25
) -> ServerDescription:
    peer = Peer(revision=revision, capabilities=json.loads(capabilities), info={"name": "other"})
    return ServerDescription(peer=peer, capabilities=capabilities, instructions=instructions)


def test_what_a_server_declared_is_not_kept() -> None:
    def discover() -> None:
        for number in range(8):
            text = f'{{"tools":{{}},"experimental":{{"x":"{number}{"x" * 2**20}"}}}}'
            discover_result(server(text), "0.1.0", ExtensionPolicy(), offers_tasks=True)

    assert memory_kept(discover) < 2**18


NEWEST_LEGACY, MODERN = Revision.R2025_11_25, Revision.R2026_07_28


def host(revision: Revision, **capabilities: Any) -> Peer:
    return Peer(revision=revision, capabilities=capabilities, info={})


FORM_BY, PAGE_BY = {"form": {}}, {"url": {}}


@pytest.mark.parametrize(
    ("capabilities", "method", "params", "expected"),
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
    capabilities: dict[str, Any], method: object, params: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert missing(host(MODERN, **capabilities), method, params) == expected
