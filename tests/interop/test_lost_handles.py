"""Released hosts that lost the handles of their calls: another one of the same user finds them by a tool."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from example.processes import running

from helpers.gateway.gateway import Gateway, serve
from helpers.server import Hold, ScriptedServer, result
from helpers.token_issuer import TokenIssuer, guarded
from interop.hosts import OFFICIAL
from interop.peers import handoff_command, output_of, require_peers

pytestmark = [*OFFICIAL, pytest.mark.timeout(180)]

COUNT = 20
HANDLE = re.compile(r'call taskgate_wait with \{"handle": "([A-Za-z0-9_-]{32})"\}')
RULES = {"upgrade": [{"tool": "*", "mode": "auto", "handoff": {"after": "1s"}}], "handoff": {"ceiling": "20s"}}
LIMITS = {"concurrency": {"tasks_per_context": 2 * COUNT}}
DONE = {"content": [{"type": "text", "text": "done"}]}


def plan(gateway: Gateway, tool: str, given: dict[str, Any], turns: int = 1) -> dict[str, Any]:
    return {
        "url": gateway.url(), "patience": 30.0, "tool": tool, "given": given, "then": "wait", "turns": turns
    }  # fmt: skip


async def told(host: str, *plans: dict[str, Any]) -> list[dict[str, Any]]:
    """What a process of that host tells of its last turn of each plan."""
    status, output, errors = await output_of([*handoff_command(host), json.dumps(plans)])
    assert status == 0, errors
    return [json.loads(line)["turns"][-1]["result"] for line in output.splitlines()]


def text_in(answer: dict[str, Any]) -> str:
    (block,) = answer["content"]
    text: str = block["text"]
    return text


@pytest.mark.parametrize("host", ["python-2.3", "client", "client-stateless"])
async def test_a_host_that_was_killed_is_followed_by_one_that_finds_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    require_peers("mcp-2.3.0")
    issuer = TokenIssuer(tmp_path)
    async with ScriptedServer() as server:
        server.tools = [{"name": "report", "inputSchema": {"type": "object"}}]
        server.script["report"] = hold = Hold()
        config = guarded({"reports": server.url}, issuer, tasks=RULES, limits=LIMITS, folder=tmp_path)
        async with serve(config, data_directory=tmp_path) as gateway:
            monkeypatch.setenv("HOST_TOKEN", issuer.token(gateway.url()))
            lost = [plan(gateway, "report", {"number": number}, turns=12) for number in range(COUNT)]
            command = [*handoff_command(host), json.dumps(lost)]
            async with running(command, log=tmp_path / "host.log", polite=signal.SIGKILL):
                await gateway.shows("taskgate_tool_calls_total", COUNT, disposition="handoff")
            monkeypatch.setenv("HOST_TOKEN", issuer.token(gateway.url(), subject="bob"))
            [none] = await told(host, plan(gateway, "taskgate_tasks", {}))
            assert text_in(none) == "No call runs, and no result waits to be read."
            monkeypatch.setenv("HOST_TOKEN", issuer.token(gateway.url()))
            [listed] = await told(host, plan(gateway, "taskgate_tasks", {}))
            handles = HANDLE.findall(text_in(listed))
            assert len(set(handles)) == COUNT
            hold.release(DONE)
            server.script["report"] = result({"content": []})
            found = await told(host, *(plan(gateway, "taskgate_wait", {"handle": handle}) for handle in handles))
            assert [text_in(answer) for answer in found] == ["done"] * COUNT
            assert len(server.heard("tools/call")) == COUNT
