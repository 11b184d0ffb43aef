"""Capabilities of servers for hosts, and of hosts for servers."""

import json
from typing import Any

import pytest

from helpers.memory_kept import memory_kept
from requirements import covers
from taskgate.domain.versions import Peer, Revision
from taskgate.jsontext.edits import dump
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.messages import Params
from taskgate.protocol.modern.capabilities import can_ask, declared, discover_result, missing
from taskgate.protocol.server_messages import Question
from unit.protocol.modern.judge import EXTENSION, check, read

# --- of servers -------------------------------------------------------------------------------------------------------


TASKS = "io.modelcontextprotocol/tasks"
GATEWAY = {"io.taskgate/gateway": {"version": "0.1.0"}}


def server(
    capabilities: str, instructions: str | None = None, revision: Revision = Revision.R2025_11_25
) -> ServerDescription:
    peer = Peer(revision=revision, capabilities=json.loads(capabilities), info={"name": "other"})
    return ServerDescription(peer=peer, capabilities=capabilities, instructions=instructions)


def discovered(server: ServerDescription, *, offers_tasks: bool = True) -> dict[str, Any]:
    text = discover_result(server, "0.1.0", ExtensionPolicy(), offers_tasks=offers_tasks)
    found: dict[str, Any] = read(text)
    check(found, "DiscoverResult")
    return found


@covers("V-DISC-1", "V-META-3", "V-CACHE-1")
def test_a_server_is_discovered_by_what_it_said() -> None:
    # AMB-11.
    assert discovered(server('{"tools":{"listChanged":true},"resources":{"subscribe":true}}', r'"caf\u00e9"')) == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
        "capabilities": {
            "extensions": {TASKS: {}},
            "tools": {"listChanged": True},
            "resources": {"subscribe": True},
        },
        "instructions": "café",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": GATEWAY,
    }


def test_a_server_without_instructions_has_none() -> None:
    assert "instructions" not in discovered(server("{}"))


@covers("V-DISC-5")
@pytest.mark.parametrize(
    "declared", ['{"tools":{},"tasks":{"list":{}}}', f'{{"extensions":{{"{TASKS}":{{"x":1}},"y":{{}}}},"tools":{{}}}}']
)
def test_the_extension_is_the_gateways_and_its_value_is_empty(declared: str) -> None:
    # Hosts take anything but {} for no support.
    found = discovered(server(declared))["capabilities"]
    assert found == {"extensions": {TASKS: {}}, "tools": {}}
    check(found["extensions"][TASKS], "TasksExtensionCapability", schema=EXTENSION)


@pytest.mark.parametrize(
    ("declared", "offers_tasks"),
    [('{"prompts":{},"tasks":{}}', True), ('{"prompts":{},"tools":{},"extensions":{}}', False)],
)
def test_no_tasks_are_advertised_where_there_are_none(declared: str, offers_tasks: bool) -> None:
    found = discovered(server(declared), offers_tasks=offers_tasks)["capabilities"]
    assert found == {name: {} for name in json.loads(declared) if name != "tasks"}


def test_what_a_server_declared_stays_to_the_byte() -> None:
    declared = r'{ "logging" : {"\u0061": 1e999} ,"tasks":{},"completions":{}}'
    text = discover_result(server(declared), "0.1.0", ExtensionPolicy(), offers_tasks=True)
    assert r'"capabilities":{ "logging" : {"\u0061": 1e999},"completions":{}}' in text


@pytest.mark.parametrize("revision", [Revision.R2025_11_25, Revision.R2026_07_28])
def test_extensions_that_cross_stand_beside_the_gateways_own(revision: Revision) -> None:
    # X-EXT-6.
    declared = r'{"tools":{},"extensions":{ "io.modelcontextprotocol/ui" : {"\u0061": 1.0} ,"com.example/x":{}}}'
    text = discover_result(server(declared, None, revision), "0.1.0", ExtensionPolicy(), offers_tasks=True)
    carried = rf'{{"{TASKS}":{{}}, "io.modelcontextprotocol/ui" : {{"\u0061": 1.0}}}}'
    assert f'"capabilities":{{"tools":{{}},"extensions":{carried}}}' in text


def test_what_a_revision_does_not_define_crosses_where_others_do_and_between_servers_and_hosts_of_one_era() -> None:
    # X-EXT-5, X-EXT-55.
    declared = '{"prompts":{},"acme":{},"experimental":{"x":{}}}'
    newest = server(declared, None, Revision.R2026_07_28)
    others = ExtensionPolicy(others=True)
    assert f'"capabilities":{declared}' in discover_result(newest, "0.1.0", others, offers_tasks=True)
    for judged in (newest, ExtensionPolicy()), (server(declared), others):
        assert '"capabilities":{"prompts":{}}' in discover_result(judged[0], "0.1.0", judged[1], offers_tasks=True)


def test_what_a_server_declared_is_not_kept() -> None:
    def discover() -> None:
        for number in range(8):
            text = f'{{"tools":{{}},"experimental":{{"x":"{number}{"x" * 2**20}"}}}}'
            discover_result(server(text), "0.1.0", ExtensionPolicy(), offers_tasks=True)

    assert memory_kept(discover) < 2**18


# --- of hosts ---------------------------------------------------------------------------------------------------------


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
    assert can_ask(host(MODERN, **capabilities), question) is can


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
