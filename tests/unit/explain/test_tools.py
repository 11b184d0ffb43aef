"""`taskgate tools`: the tools of a server, and what the rules say of each."""

import asyncio
import json
from pathlib import Path

import pytest

from helpers.command_line import run
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded

RULES = """
tasks:
  upgrade:
    - {tool: "slow*", mode: always, hints: {readOnlyHint: true}}
    - {tool: echo, mode: auto, announce: never}
authorization: {default: allow, rules: [{name: no-drop, tool: drop, effect: deny}]}
"""
TOOLS = [
    {"name": "slow", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "slow_write", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
    {"name": "echo", "inputSchema": {"type": "object"}},
    {"name": "drop", "inputSchema": {"type": "object"}},
]


def written(folder: Path, url: str, rules: str = RULES) -> Path:
    file = folder / "taskgate.yaml"
    file.write_text(f"version: 1\nauth: {{mode: none}}\nupstreams: {{reports: {{path: /mcp, url: '{url}'}}}}{rules}")
    return file


async def tools(file: Path, *arguments: str) -> tuple[int, str, str]:
    async with bounded():
        return await asyncio.to_thread(run, "tools", *arguments, "--config", file)


async def test_each_tool_of_a_server_has_its_own_task_support_and_the_rule_for_it(tmp_path: Path) -> None:
    async with ScriptedServer() as server:
        server.tools = TOOLS
        file = written(tmp_path, server.url)
        status, out, err = await tools(file, "reports")
        assert (status, err) == (0, "")
        assert out.splitlines() == [
            "TOOL\tOWN TASKS\tHINTS\tMODE\tANNOUNCE\tRULE\tALLOWED",
            "drop\t-\t-\tsync\t-\t-\tno",
            "echo\t-\t-\tauto\tnever\ttasks.upgrade[1]\tyes",
            "slow\t-\treadOnlyHint=true\talways\talways\ttasks.upgrade[0]\tyes",
            "slow_write\toptional\t-\tsync\t-\t-\tyes",
        ]
        document = json.loads((await tools(file, "reports", "--json"))[1])
        assert server.live == set()
    assert (document["upstream"], [each["tool"] for each in document["tools"]]) == (
        "reports",
        ["drop", "echo", "slow", "slow_write"],
    )
    assert document["tools"][0] == {
        "tool": "drop",
        "task_support": None,
        "hints": {},
        "mode": "sync",
        "announce": None,
        "rule": None,
        "allowed": False,
        "access_rule": "no-drop",
    }


async def test_a_server_that_does_not_list_its_tools_ends_it_with_why(tmp_path: Path) -> None:
    async with ScriptedServer() as server:
        server.tools = TOOLS
        server.methods["tools/list"] = hold = Hold()
        status, out, err = await tools(written(tmp_path, server.url), "reports", "--timeout", "0.5")
        hold.release({})
    assert (status, out) == (1, "")
    assert err == "taskgate: upstreams.reports did not list its tools within 0.5 s\n"
    status, _, err = await tools(written(tmp_path, "http://127.0.0.1:9/mcp"), "reports")
    assert (status, "connection refused (ECONNREFUSED)" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("other",), "UPSTREAM must be one of reports"),
        (("reports", "--claims", "sub"), "--claims"),
        (("reports", "--token", "/nowhere"), "--token"),
    ],
)
async def test_what_cannot_be_asked_is_refused(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    status, out, err = await tools(written(tmp_path, "http://127.0.0.1:9/mcp"), *arguments)
    assert (status, out, told in err) == (2, "", True)
