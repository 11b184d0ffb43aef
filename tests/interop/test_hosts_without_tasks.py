"""Released hosts that know no tasks, and give up soon: by a handoff they get the results of tools that block longer.

A host is one process with a connection for each call. Its model is a few lines that do what a result tells it to do
(`tests/peers/handoff_words.py`). The ceiling of the gateway is below what each host waits for an answer.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from helpers.left_behind import left_behind
from interop.hosts import OFFICIAL, official_host, text_of
from interop.peers import handoff_command, output_of, python_server, require_peers

# One server and one gateway for all hosts: their output is read by the loop that started them.
pytestmark = [*OFFICIAL, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

AFTER, CEILING, PATIENCE = 1.0, 2.0, 3.0
"""Seconds: when the gateway hands off, what it takes for a host's timeout, and that timeout."""
LONGER, SHORTER = 5.0, 1.5
"""Seconds that a tool blocks: longer than a host waits, and longer than `AFTER`."""
HANDOFF, PLAIN = "handoff", "plain"
WAIT, CANCEL = "taskgate_wait", "taskgate_cancel"

REQUEST_TIMEOUT = -32001
CODES: dict[str, object] = {
    "python-1.12": 408,
    "python-1.30": 408,
    "python-2.3": REQUEST_TIMEOUT,
    "fastmcp-3": 408,
    "fastmcp-4": REQUEST_TIMEOUT,
    "sdk": REQUEST_TIMEOUT,
    "client": "REQUEST_TIMEOUT",
    "client-stateless": "REQUEST_TIMEOUT",
}
"""By host, the code of the error that its SDK makes of its own timeout."""
AT_ONCE = 2
"""Hosts that play at the same time: each has six connections."""

Turn = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Played:
    """What a host has told of a call: the tools that it was listed, and its turns."""

    tools: dict[str, bool]
    turns: list[Turn]

    @property
    def last(self) -> dict[str, Any]:
        """The result of the last turn."""
        assert "result" in self.turns[-1], self.turns[-1]
        result: dict[str, Any] = self.turns[-1]["result"]
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The addresses of the server and of the gateway before it."""

    server: str
    gateway: str


def configured(server: str, folder: Path) -> Path:
    """Two mounts of one server, of which one hands calls off."""
    upstreams = {name: {"path": f"/{name}/mcp", "url": server, "health": None} for name in (HANDOFF, PLAIN)}
    rule = {"upstream": HANDOFF, "tool": "*", "mode": "auto", "handoff": {"after": f"{AFTER:g}s"}}
    tasks = {"upgrade": [rule], "handoff": {"ceiling": f"{CEILING:g}s"}}
    sections = {"upstreams": json.dumps(upstreams), "tasks": json.dumps(tasks), "logging": "{level: debug}"}
    return write_configuration(folder, "", **sections)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def serving(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Serving]:
    """A server whose tools block, and a gateway before it."""
    require_peers("mcp-1.12.4", "mcp-1.23.3", "mcp-2.3.0", "fastmcp-3.4.10", "fastmcp-4.1.4")
    folder = tmp_path_factory.mktemp("handoff")
    async with (
        python_server("handoff_server.py", "1.23.3", folder) as server,
        gateway_process(["--config", configured(server, folder)], log=folder / "gateway.log") as gateway,
    ):
        yield Serving(server=server, gateway=f"http://{gateway.listen}")
    assert left_behind(folder) == []


def plan(serving: Serving, host: str) -> dict[str, dict[str, Any]]:
    """The calls of a host by a name for each. What a call is about has the name of the host, for the server's tally."""

    def call(where: str, tool: str, name: str, seconds: float, then: str = "wait") -> dict[str, Any]:
        url = serving.server if where == "" else f"{serving.gateway}/{where}/mcp"
        given = {"about": f"{host} {name}", "seconds": seconds}
        return {"url": url, "patience": PATIENCE, "tool": tool, "given": given, "then": then}

    return {
        "report directly": call("", "report", "report directly", 0),
        "refuse directly": call("", "refuse", "refuse directly", 0),
        "report": call(HANDOFF, "report", "report", LONGER),
        "refuse": call(HANDOFF, "refuse", "refuse", SHORTER),
        "cancel": call(HANDOFF, "report", "cancel", 60, "cancel"),
        "ask": call(HANDOFF, "ask", "ask", SHORTER),
        "plain": call(PLAIN, "report", "plain", LONGER),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def played(serving: Serving) -> dict[str, dict[str, Played]]:
    """By host, and by the name of the call, what they have told."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def told_by(host: str) -> dict[str, Played]:
        calls = plan(serving, host)
        async with slots:
            status, output, errors = await output_of([*handoff_command(host), json.dumps([*calls.values()])])
        assert status == 0, errors
        told = map(json.loads, output.splitlines())
        return {name: Played(each["tools"], each["turns"]) for name, each in zip(calls, told, strict=True)}

    return dict(zip(CODES, await asyncio.gather(*map(told_by, CODES)), strict=True))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tally(serving: Serving, played: dict[str, dict[str, Played]]) -> dict[str, dict[str, int]]:
    """What the server has counted of each call, once all hosts are done."""
    assert len(played) == len(CODES)
    async with official_host(serving.server) as host:
        runs: dict[str, dict[str, int]] = json.loads(text_of(await host.session.call_tool("tally")))
    return runs


def told_of(result: dict[str, Any]) -> dict[str, Any]:
    """What a result has for a model, and for a host."""
    return {key: result.get(key) for key in ("content", "structuredContent", "isError")}


def assert_handed_off(turn: Turn) -> None:
    """A turn that ended with a handle: an ordinary result of a text alone."""
    (block,) = turn["result"]["content"]
    assert "has not failed" in block["text"]
    assert "structuredContent" not in turn["result"]
    assert not turn["result"]["isError"]


@pytest.mark.parametrize("host", CODES)
async def test_a_host_gives_up_a_call_that_is_not_handed_off(played: dict[str, dict[str, Played]], host: str) -> None:
    (turn,) = played[host]["plain"].turns
    assert turn["error"]["code"] == CODES[host], turn
    assert turn["seconds"] >= PATIENCE


@pytest.mark.parametrize("host", CODES)
async def test_a_host_gets_by_a_handoff_what_the_server_answers_directly(
    played: dict[str, dict[str, Played]], tally: dict[str, dict[str, int]], host: str
) -> None:
    directly, handed = played[host]["report directly"], played[host]["report"]
    assert len(directly.turns) == 1
    assert told_of(handed.last) == told_of(directly.last)
    assert directly.last["structuredContent"]
    for turn in handed.turns[:-1]:
        assert_handed_off(turn)
    assert [turn["tool"] for turn in handed.turns] == ["report", *[WAIT] * (len(handed.turns) - 1)]
    assert 1 <= len(handed.turns) - 1 <= math.ceil(LONGER / CEILING)
    assert tally[f"{host} report"] == {"started": 1, "ended": 1}


@pytest.mark.parametrize("host", CODES)
async def test_a_host_gets_the_error_of_a_tool_by_a_handoff(
    played: dict[str, dict[str, Played]], tally: dict[str, dict[str, int]], host: str
) -> None:
    directly, handed = played[host]["refuse directly"], played[host]["refuse"]
    assert_handed_off(handed.turns[0])
    assert told_of(handed.last) == told_of(directly.last)
    assert handed.last["isError"] is True
    assert tally[f"{host} refuse"] == {"started": 1, "ended": 1}


@pytest.mark.parametrize("host", CODES)
async def test_progress_reaches_a_host_while_it_waits(played: dict[str, dict[str, Played]], host: str) -> None:
    wait = played[host]["report"].turns[1]
    assert wait["progress"]
    assert wait["progress"] == sorted(set(wait["progress"]))


@pytest.mark.parametrize("host", CODES)
async def test_a_host_that_cancels_ends_the_run(
    played: dict[str, dict[str, Played]], tally: dict[str, dict[str, int]], host: str
) -> None:
    cancelled = played[host]["cancel"]
    assert [turn["tool"] for turn in cancelled.turns] == ["report", CANCEL]
    assert_handed_off(cancelled.turns[0])
    (block,) = cancelled.last["content"]
    assert block["text"] == "The call of report was cancelled. It has no result."
    assert tally[f"{host} cancel"] == {"started": 1, "cancelled": 1}


@pytest.mark.parametrize("host", CODES)
async def test_the_questions_of_a_tool_reach_a_host_while_it_waits(
    played: dict[str, dict[str, Played]], tally: dict[str, dict[str, int]], host: str
) -> None:
    call, *waits = played[host]["ask"].turns
    assert_handed_off(call)
    assert call["questions"] == []
    assert [question for wait in waits for question in wait["questions"]] == ["Word 1?", "Word 2?"]
    assert told_of(played[host]["ask"].last) == {
        "content": [{"type": "text", "text": "WORD-1 WORD-2"}],
        "structuredContent": {"result": "WORD-1 WORD-2"},
        "isError": False,
    }
    assert [tally[f"{host} ask {number}"] for number in (1, 2)] == [{"started": 1, "ended": 1}] * 2


@pytest.mark.parametrize("host", CODES)
async def test_tools_that_may_be_handed_off_are_listed_without_output_schema_beside_two_more(
    played: dict[str, dict[str, Played]], host: str
) -> None:
    directly, handed = played[host]["report directly"].tools, played[host]["report"].tools
    assert directly["report"] is True
    assert played[host]["plain"].tools == directly
    assert handed == dict.fromkeys([*directly, WAIT, CANCEL], False)
