"""Claude Code in headless mode, as npm has it, knows no tasks: by a handoff its model gets the result of a long call.

No account is needed: a stand-in of the model's API on the loopback interface does what a result tells it to do
(`tests/peers/messages_api.py`).
"""

import json
import math
import platform
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway_process import gateway_process, write_configuration
from interop.hosts import OFFICIAL, official_host, text_of
from interop.peers import HOME, output_of, python_server, require_peers
from peers import install
from peers.messages_api import Model, messages_api

pytestmark = [*OFFICIAL, pytest.mark.timeout(120)]

CEILING, PATIENCE = 2.0, 3.0
"""Seconds: what the gateway takes for the host's timeout, and that timeout."""
LONGER = 5.0
HANDOFF, PLAIN = "handoff", "plain"
WAIT, CANCEL = "taskgate_wait", "taskgate_cancel"
SERVER = "books"
QUIET = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
    "DISABLE_AUTOUPDATER=1",
    "DISABLE_ERROR_REPORTING=1",
    "DISABLE_TELEMETRY=1",
)
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
        file = write_configuration(tmp_path, "", upstreams=json.dumps(mounts), tasks=json.dumps(tasks))
        async with gateway_process(["--config", file], log=tmp_path / "gateway.log") as gateway:
            yield Serving(server=server, gateway=f"http://{gateway.listen}")


def program() -> Path:
    """The program of the package for this machine. Its installer, which is not run, would link it."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    libc = "" if platform.libc_ver()[0] == "glibc" or platform.system() != "Linux" else "-musl"
    return HOME / f"node_modules/@anthropic-ai/claude-code-{platform.system().lower()}-{machine}{libc}/claude"


def require_program() -> None:
    """Skips where the package has no program for this machine; a failure where nothing may be missing."""
    if not program().exists():
        reason = f"there is no {program()}"
        if install.nothing_may_be_missing():
            pytest.fail(f"nothing may be missing here, but: {reason}", pytrace=False)
        pytest.skip(reason)


async def play(model: Model, url: str, folder: Path, *environment: str) -> list[dict[str, Any]]:
    """Has Claude Code ask that model, with the server at the URL; what it prints, which ends with its result."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    servers = {"mcpServers": {SERVER: {"type": "http", "url": url}}}
    options = ("--strict-mcp-config", "--allowedTools", f"mcp__{SERVER}", "--output-format", "stream-json", "--verbose")
    async with messages_api(model) as api:
        known = (f"ANTHROPIC_BASE_URL={api}", "ANTHROPIC_API_KEY=none", f"HOME={home}", "PATH=/usr/bin:/bin", *QUIET)
        timeout = f"MCP_TOOL_TIMEOUT={1000 * PATIENCE:.0f}"
        command = [program(), "-p", "Report.", "--mcp-config", json.dumps(servers), *options]
        _, output, errors = await output_of(
            ["env", "-i", f"--chdir={home}", *known, timeout, *environment, *command], within=60
        )
    said: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
    assert said, errors
    assert model.others == []
    return said


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
