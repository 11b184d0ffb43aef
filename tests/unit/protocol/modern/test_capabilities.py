"""What the gateway advertises in front of a server."""

import json
from typing import Any

import pytest

from helpers.memory_kept import memory_kept
from requirements import covers
from taskgate.domain.versions import Peer, Revision
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.modern.capabilities import discover_result
from unit.protocol.modern.judge import EXTENSION, check, read

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
