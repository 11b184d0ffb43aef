"""`taskgate explain`: what becomes of the extensions of an upstream, and of those that its server declares."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from helpers.server import Hold, ScriptedServer, status
from helpers.waiting import bounded
from requirements import covers
from unit.explain.explain_command import run, said, token, told

OURS = "com.example/widgets"
WIDGETS = (
    "{methods: [widgets/list], notifications: [notifications/widgets/changed], filters: [widgetsChanged], "
    "result_types: [partial], cacheable: [widgets/list], eras: [legacy, modern]}"
)
UI, SKILLS, EVENTS, TASKS = (f"io.modelcontextprotocol/{name}" for name in ("ui", "skills", "events", "tasks"))
DECLARES = {"tools": {}, "extensions": {UI: {"v": 1}, OURS: {}, "com.example/no": {}}, "events": {}}
PROGRAM = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        said = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES}
        answer = {"result": said | {"serverInfo": {"name": "p", "version": "1"}}}
    else:
        answer = {"error": {"code": -32601, "message": "unknown"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


def configured(folder: Path, *extensions: str, keys: str = "url: 'http://127.0.0.1:9/mcp'") -> tuple[Any, ...]:
    """What to ask with, for a file whose server has those keys and those extensions."""
    file = folder / "taskgate.yaml"
    lines = "".join(f"      {each}\n" for each in ("default: deny", *extensions))
    server = f"  reports:\n    path: /reports/mcp\n    {keys}\n    extensions:\n{lines}"
    if extensions[:1] == ("default: allow",):
        server = server.replace("      default: deny\n", "")
    file.write_text(f"version: 1\nauth: {{mode: none}}\nupstreams:\n{server}")
    return "--config", file, "--upstream", "reports", "--tool", "any"


# --- by the file -----------------------------------------------------------------------------------------------------


@covers("X-EXT-53")
def test_each_extension_is_told_with_what_crosses_of_it_and_its_key(tmp_path: Path) -> None:
    asked = configured(
        tmp_path, f"{UI}: deny", f"{EVENTS}: allow", f"{OURS}: {WIDGETS}", "com.example/one: {eras: [modern]}",
        "com.example/plain: allow", "com.example/no: deny",
    )  # fmt: skip
    lines = said(told(*asked), "Extensions")
    where = "upstreams.reports.extensions"
    assert lines[0] == f'{UI}: denied  [{where}."{UI}"]'
    assert f'{SKILLS}: crosses between all eras  [{where}."{SKILLS}", by default]' in lines
    assert f'{EVENTS}: crosses within each era  [{where}."{EVENTS}"]' in lines
    assert f'{TASKS}: the gateway\'s own  [{where}."{TASKS}", by default]' in lines
    assert lines[lines.index(f'{OURS}: crosses between all eras  [{where}."{OURS}"]') + 1 :] == [
        "methods: widgets/list",
        "notifications: notifications/widgets/changed",
        "members of filters: widgetsChanged",
        "types of results: partial",
        "cacheable: widgets/list",
        f'com.example/one: crosses within the modern era  [{where}."com.example/one"]',
        f'com.example/plain: crosses within each era  [{where}."com.example/plain"]',
        f'com.example/no: denied  [{where}."com.example/no"]',
        f"every other: denied  [{where}.default]",
    ]


def test_what_becomes_of_all_others_is_told(tmp_path: Path) -> None:
    lines = said(told(*configured(tmp_path, "default: allow")), "Extensions")
    others = "crosses within each era, without methods  [upstreams.reports.extensions.default]"
    assert lines[-1] == f"every other: {others}"


def test_the_same_of_extensions_is_there_for_machines(tmp_path: Path) -> None:
    found = json.loads(told(*configured(tmp_path, f"{OURS}: {WIDGETS}", f"{EVENTS}: deny"), "--json"))["extensions"]
    where = "upstreams.reports.extensions"
    assert found["default"] == {"value": "deny", "from": f"{where}.default", "default": False}
    assert found["declared"] is None
    assert found["each"][OURS] == {
        "becomes": "crosses",
        "servers_by_host": {"legacy": ["legacy", "modern"], "modern": ["legacy", "modern"]},
        "methods": ["widgets/list"],
        "notifications": ["notifications/widgets/changed"],
        "filters": ["widgetsChanged"],
        "result_types": ["partial"],
        "cacheable": ["widgets/list"],
        "from": f'{where}."{OURS}"',
        "default": False,
    }
    nothing: dict[str, Any] = {key: [] for key in ("methods", "notifications", "filters", "result_types", "cacheable")}
    assert found["each"][EVENTS] == {
        "becomes": "denied",
        "servers_by_host": {"legacy": [], "modern": []},
        **nothing,
        "from": f'{where}."{EVENTS}"',
        "default": False,
    }
    assert found["each"][TASKS]["becomes"] == "own"


# --- by the server ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=["legacy", "modern"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ScriptedServer]:
    """A server of that era, with extensions."""
    server = ScriptedServer(request.param)
    server.capabilities = DECLARES
    async with server:
        yield server


async def asked_online(*arguments: Any) -> tuple[int, str, str]:
    """What `explain --online` came to."""
    async with bounded():
        return await asyncio.to_thread(run, *arguments, "--online")


def revision_of(server: ScriptedServer) -> str:
    return "2026-07-28" if server.era == "modern" else "2025-11-25"


@covers("X-EXT-53")
async def test_a_server_is_asked_what_it_declares_and_each_is_told_with_what_becomes_of_it(
    server: ScriptedServer, tmp_path: Path
) -> None:
    keys = f"url: '{server.url}'"
    ended, out, err = await asked_online(*configured(tmp_path, f"{OURS}: allow", keys=keys))
    assert (ended, err) == (0, "")
    era = "modern" if server.era == "modern" else "legacy"
    assert said(out, f"Extensions that the server declares, in {revision_of(server)}") == [
        f"{UI}: crosses to hosts of both eras",
        f"{OURS}: crosses to {era} hosts alone",
        "com.example/no: denied",
        f"{EVENTS}: denied",
    ]


async def test_it_is_asked_who_it_is_and_nothing_else(server: ScriptedServer, tmp_path: Path) -> None:
    await asked_online(*configured(tmp_path, keys=f"url: '{server.url}'"))
    asked = [request.message["method"] for request in server.requests if request.message]
    assert set(asked) <= {"initialize", "notifications/initialized", "server/discover"}
    assert server.live == set(), "no session is left"


async def test_what_it_declares_is_there_for_machines(server: ScriptedServer, tmp_path: Path) -> None:
    server.capabilities = {"extensions": {TASKS: {}, "com.example/\x1b[31m": {}, "com.example/" + "x" * 999: {}}}
    ended, out, _ = await asked_online(*configured(tmp_path, keys=f"url: '{server.url}'"), "--json")
    assert ended == 0
    denied = {"becomes": "denied", "hosts": []}
    assert json.loads(out)["extensions"]["declared"] == {
        "revision": revision_of(server),
        "era": "modern" if server.era == "modern" else "legacy",
        "each": {
            TASKS: {"becomes": "own", "hosts": []},
            "com.example/\\x1b[31m": denied,
            "com.example/" + "x" * 244: denied,
        },
        "left_out": 0,
    }


async def test_of_very_many_the_first_are_told(server: ScriptedServer, tmp_path: Path) -> None:
    server.capabilities = {"extensions": {f"com.example/{number}": {} for number in range(70)}}
    _, out, _ = await asked_online(*configured(tmp_path, keys=f"url: '{server.url}'"))
    lines = said(out, f"Extensions that the server declares, in {revision_of(server)}")
    assert lines == [*(f"com.example/{number}: denied" for number in range(64)), "and 6 more"]


async def test_a_server_that_declares_none_is_told_of(server: ScriptedServer, tmp_path: Path) -> None:
    server.capabilities = {"tools": {}}
    _, out, _ = await asked_online(*configured(tmp_path, keys=f"url: '{server.url}'"))
    assert said(out, f"Extensions that the server declares, in {revision_of(server)}") == ["none"]


@pytest.mark.program
async def test_a_program_is_started_for_it_and_ended(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("CAPABILITIES", repr(DECLARES)))
    keys = f"transport: stdio\n    command: ['{sys.executable}', '-I', '-S', '{program}']"
    ended, out, err = await asked_online(*configured(tmp_path, keys=keys))
    assert (ended, err) == (0, "")
    assert f"{UI}: crosses to hosts of both eras" in said(out, "Extensions that the server declares, in 2025-11-25")


async def test_it_is_shown_the_caller_and_the_credentials_that_are_configured(
    known: Path, tmp_path: Path, key: ec.EllipticCurvePrivateKey
) -> None:
    async with ScriptedServer() as server:
        more = f"url: '{server.url}', identity_headers: {{subject: X-Subject, context: X-Context}}"
        header = "credentials: {mode: header, header: X-Key, value: open-sesame}"
        known.write_text(known.read_text().replace('url: "http://127.0.0.1:9/mcp", conc', f"{more}, {header}, conc"))
        asked = ("--config", known, "--upstream", "reports", "--tool", "any", "--token", token(tmp_path, key))
        ended, _, err = await asked_online(*asked)
        assert (ended, err) == (0, "")
        heads = [request.headers for request in server.requests]
    assert {(head.get("x-subject"), head.get("x-key")) for head in heads} == {("alice", "open-sesame")}
    assert not any("x-context" in head for head in heads), "it is made with a key that is not touched"


async def test_a_server_that_is_not_there_ends_it_with_why(tmp_path: Path) -> None:
    assert await asked_online(*configured(tmp_path)) == (
        1,
        "",
        "taskgate: upstreams.reports was asked in vain (unreachable): The server could not be reached: "
        "connection refused (ECONNREFUSED)\n",
    )


async def test_a_server_that_refuses_ends_it_with_why(tmp_path: Path) -> None:
    async with ScriptedServer() as server:
        server.methods["initialize"] = server.methods["server/discover"] = status(401)
        ended, out, err = await asked_online(*configured(tmp_path, keys=f"url: '{server.url}'"))
    assert (ended, out) == (1, "")
    assert err.startswith("taskgate: upstreams.reports was asked in vain (refused): ")


async def test_a_server_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    async with ScriptedServer() as server:
        server.methods["initialize"] = hold = Hold()
        keys = f"url: '{server.url}'\n    timeouts: {{connect: 100ms, first_byte: 200ms}}"
        ended, out, err = await asked_online(*configured(tmp_path, keys=keys))
        assert hold.turns
    assert (ended, out) == (1, "")
    assert err.startswith("taskgate: upstreams.reports was asked in vain (timeout): ")


async def test_certificates_that_cannot_be_used_end_it_with_their_key(tmp_path: Path) -> None:
    keys = f"url: 'https://127.0.0.1:9/mcp'\n    tls: {{ca_file: '{tmp_path / 'none.pem'}'}}"
    ended, _, err = await asked_online(*configured(tmp_path, keys=keys))
    assert ended == 1
    assert err.startswith("taskgate: upstreams.reports.tls.ca_file")


def test_a_server_is_not_asked_by_itself(tmp_path: Path) -> None:
    assert "that the server declares" not in told(*configured(tmp_path))
