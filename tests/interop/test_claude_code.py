"""Claude Code in headless mode, as npm has it, knows no tasks: by a handoff its model gets the result of a long call.

In a terminal it knows tasks, and gets those.

No account is needed: a stand-in of the model's API on the loopback interface does what a result tells it to do
(`tests/peers/messages_api.py`).
"""

import json
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.cutter import Cutter
from helpers.gateway.process import serve_process
from helpers.waiting import eventually
from interop.claude_code import SERVER, headless, interactive, require_program
from interop.hosts import OFFICIAL, official_host, text_of
from interop.peers import python_server, require_peers
from peers.messages_api import Model

pytestmark = [*OFFICIAL, pytest.mark.timeout(300)]

CEILING, PATIENCE = 2.0, 3.0
"""Seconds: what the gateway takes for the host's timeout, and that timeout."""
LONGER = 5.0
HANDOFF, PLAIN = "handoff", "plain"
WAIT, CANCEL = "taskgate_wait", "taskgate_cancel"
DEFERRED, LISTED = "ENABLE_TOOL_SEARCH=true", "ENABLE_TOOL_SEARCH=false"
"""Whether its model has to search for the tools of servers, or has all of them from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The addresses of the server and of the gateway before it."""

    server: str
    gateway: str

    async def tally(self, about: str) -> dict[str, int]:
        """How often the call about that has started, ended and was cancelled."""
        async with official_host(self.server) as host:
            runs: dict[str, dict[str, int]] = json.loads(text_of(await host.session.call_tool("tally")))
        return runs[about]


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    """A server whose tools block, and a gateway before it that hands its calls off at one of two mounts."""
    require_peers("mcp-1.23.3")
    require_program()
    async with python_server("handoff_server.py", "1.23.3", tmp_path) as server:
        mounts = {name: {"path": f"/{name}/mcp", "url": server, "health": None} for name in (HANDOFF, PLAIN)}
        ceilings = {"claude-code": f"{CEILING:g}s"}
        tasks = {
            "upgrade": [{"upstream": HANDOFF, "tool": "*", "mode": "auto", "handoff": {"after": "1s"}}],
            "handoff": {"ceilings": ceilings, "ceilings_with_progress": ceilings},
        }
        async with serve_process(tmp_path, "", upstreams=mounts, tasks=tasks) as gateway:
            yield Serving(server=server, gateway=f"http://{gateway.listen}")


async def play(model: Model, url: str, folder: Path, *environment: str) -> list[dict[str, Any]]:
    """Has Claude Code ask that model, with the server at the URL; what it prints, which ends with its result."""
    return await headless(model, url, folder, PATIENCE, *environment)


def report(about: str, seconds: float, then: str = "wait") -> Model:
    """A model that asks for a report."""
    return Model(server=SERVER, tool="report", given={"about": about, "seconds": seconds}, then=then)


def shown(result: dict[str, Any]) -> list[dict[str, Any]]:
    """What it shows its model of a result, without the name of the file that it keeps a picture in."""
    return [block for block in result["content"] if not block.get("text", "").startswith("[Image: source")]


@pytest.mark.parametrize("search", [LISTED, DEFERRED])
async def test_its_model_gets_what_the_server_answers_directly(serving: Serving, tmp_path: Path, search: str) -> None:
    directly, handed = report("directly", 0), report("handed", LONGER)
    said = await play(handed, f"{serving.gateway}/{HANDOFF}/mcp", tmp_path, search)
    await play(directly, serving.server, tmp_path, search)
    assert shown(handed.results[-1]) == shown(directly.results[-1])
    assert handed.turns == ["report", *[WAIT] * (len(handed.turns) - 1)]
    assert 1 <= len(handed.turns) - 1 <= math.ceil(LONGER / CEILING)
    assert handed.searches == (2 if search == DEFERRED else 0)
    assert (said[-1]["is_error"], said[-1]["result"]) == (False, "It is done.")
    assert {f"mcp__{SERVER}__{tool}" for tool in (WAIT, CANCEL)} <= handed.shown
    assert await serving.tally("handed") == {"started": 1, "ended": 1}


async def test_it_gives_up_a_call_that_is_not_handed_off(serving: Serving, tmp_path: Path) -> None:
    model = report("plain", LONGER)
    await play(model, f"{serving.gateway}/{PLAIN}/mcp", tmp_path, LISTED)
    (result,) = model.results
    assert result["is_error"]
    assert "timed out" in result["content"]
    assert not {f"mcp__{SERVER}__{tool}" for tool in (WAIT, CANCEL)} & model.shown


async def test_its_model_can_cancel_a_call(serving: Serving, tmp_path: Path) -> None:
    model = report("cancelled", 60, then="cancel")
    await play(model, f"{serving.gateway}/{HANDOFF}/mcp", tmp_path, LISTED)
    assert model.turns == ["report", CANCEL]
    assert shown(model.results[-1])[0]["text"] == "The call of report was cancelled. It has no result."
    assert await serving.tally("cancelled") == {"started": 1, "cancelled": 1}


async def test_the_questions_of_a_tool_reach_it_while_it_waits(serving: Serving, tmp_path: Path) -> None:
    # There is no user to ask, so it answers of its own accord.
    model = Model(server=SERVER, tool="ask", given={"about": "asked", "seconds": 2.5})
    await play(model, f"{serving.gateway}/{HANDOFF}/mcp", tmp_path, LISTED)
    assert set(model.turns[1:]) == {WAIT}
    assert json.loads(model.results[-1]["content"]) == {"result": "cancel cancel"}
    assert await serving.tally("asked 1") == await serving.tally("asked 2") == {"started": 1, "ended": 1}


async def test_in_a_terminal_it_declares_tasks_and_gets_one_instead_of_a_handoff(tmp_path: Path) -> None:
    require_peers("mcp-1.23.3")
    require_program()
    model = report("interactive", LONGER)
    async with python_server("handoff_server.py", "1.23.3", tmp_path) as server, Cutter() as network:
        rule = {"tool": "*", "mode": "auto", "handoff": {"after": "1s", "ceiling": f"{CEILING:g}s"}}
        listen = {"listen": "127.0.0.1:0", "allowed_hosts": [f"127.0.0.1:{network.port}"]}
        sections = {"tasks": json.dumps({"upgrade": [rule]}), "server": json.dumps(listen)}
        async with serve_process(tmp_path, server, **sections) as gateway:
            host, _, port = gateway.listen.partition(":")
            network.address = (host, int(port))
            async with interactive(model, f"http://127.0.0.1:{network.port}/reports/mcp", tmp_path):
                await eventually(lambda: model.results and b'"status":"completed"' in network.passed, within=60)
                passed = network.passed
    assert b'"extensions":{"io.modelcontextprotocol/tasks":{}}' in passed
    assert b'"resultType":"task"' in passed
    assert b'"method":"tasks/get"' in passed
    assert WAIT.encode() not in passed
    assert b"has not failed" not in passed
    assert model.turns == ["report"]
    assert "started server-side task" in json.dumps(model.results)
