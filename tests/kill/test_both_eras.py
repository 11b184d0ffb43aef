"""kill -9 while tasks of hosts of both eras run at one server of both, and one at a server over HTTP+SSE beside it.

The record of a task names the era of its call: the next process goes on in it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import GatewayProcess, gateway_process
from helpers.host.host import Host
from helpers.server import Hold, LastingTool, Rounds, ScriptedServer
from helpers.server.sse import SseServer
from helpers.stored_tasks import stored_task
from helpers.waiting import bounded, eventually
from interaction.bridges import ALWAYS, FORM
from interaction.falls import LOST
from interaction.questions import ACCEPTED, DONE

CAPABILITIES = {"elicitation": {"form": {}}}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer("both") as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("long", "asks", "report")]
        yield server


@pytest.fixture
async def events() -> AsyncIterator[SseServer]:
    async with SseServer(revision="2025-11-25") as server:
        server.silent.add("tools/call")
        yield server


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


@asynccontextmanager
async def gateway(folder: Path, server: ScriptedServer, events: SseServer) -> AsyncIterator[GatewayProcess]:
    """A process before both servers, over the file in the folder."""
    usual = {"protocol_version": "auto", "health": None}
    upstreams = {
        "reports": {"path": "/reports/mcp", "url": server.url, **usual},
        "events": {"path": "/events/mcp", "url": events.url, "transport": "sse", **usual},
    }
    tasks = {**ALWAYS, "early_poll": {"reject_above": 1000}}
    store = {"backend": "sqlite", "sqlite": {"path": str(folder / "taskgate.db")}}
    file = write_configuration(folder, "", upstreams=upstreams, tasks=tasks, store=store)
    async with gateway_process(["--config", file], log=folder / "gateway.log") as process:
        yield process


async def kill(process: GatewayProcess) -> None:
    """End it by SIGKILL."""
    process.kill()
    assert await process.exit_status() < 0


def versions(server: ScriptedServer, tool: str) -> list[tuple[str, bool]]:
    """The revision of each call of the tool, and whether it was in a session."""
    calls = [each for each in server.verbs("POST") if (each.message or {}).get("method") == "tools/call"]
    heads = [each.headers for each in calls if each.message["params"]["name"] == tool]
    return [(head["mcp-protocol-version"], "mcp-session-id" in head) for head in heads]


async def failure(host: Host, task: str) -> dict[str, Any]:
    """What the task failed with."""
    found = await host.until(task, "failed")
    if host.is_modern:
        return found["error"]["data"]
    return (await host.ask("tasks/result", {"taskId": task})).error["data"]


async def test_each_task_goes_on_in_the_era_of_its_call_after_a_kill(
    server: ScriptedServer, events: SseServer, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    long = server.script["long"] = LastingTool()
    server.script["asks"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"})
    async with gateway(tmp_path, server, events) as process:
        legacy, modern = process.host(http), process.host(http, era="modern", capabilities=CAPABILITIES)
        beside = Host(http, process.url("events"))
        for host in (legacy, beside):
            await host.initialize()
        of_stream, of_rounds = (await legacy.start("long"))["taskId"], (await modern.start("asks"))["taskId"]
        lost = (await beside.start("echo"))["taskId"]
        await long.called()
        found = await stored_task(tmp_path, of_stream, lambda task: task.checkpoint)
        assert found.checkpoint is not None
        assert (found.checkpoint.revision, found.checkpoint.state) == ("2025-11-25", None)
        found = await stored_task(tmp_path, of_rounds, lambda task: task.checkpoint and task.inputs)
        assert found.checkpoint is not None
        assert (found.checkpoint.revision, found.checkpoint.state) == (None, '"one"')
        await stored_task(tmp_path, lost, lambda task: task.was_sent)
        await kill(process)
    async with gateway(tmp_path, server, events) as process:
        (key,) = (await (modern := modern.again(process.url())).until(of_rounds, "input_required"))["inputRequests"]
        await modern.update(of_rounds, {key: ACCEPTED})
        done = await modern.until(of_rounds, "completed")
        assert done["result"]["structuredContent"] == {"answers": [{"a": ACCEPTED}]}
        await long.calls[0].listened_to(2)
        long.calls[0].answer(DONE)
        legacy = process.again(legacy)
        async with bounded():
            ended = await legacy.ask("tasks/result", {"taskId": of_stream})
        assert ended.result["content"] == DONE["content"]
        assert await failure(beside.again(process.url("events")), lost) == LOST
    assert versions(server, "long") == [("2025-11-25", True)]
    assert versions(server, "asks") == [("2026-07-28", False)] * 2
    resumed = [each.headers for each in server.verbs("GET") if "last-event-id" in each.headers]
    assert {(head["mcp-protocol-version"], head["mcp-session-id"]) for head in resumed} == {
        ("2025-11-25", long.calls[0].session)
    }
    assert (len(rounds.turns), len(long.calls)) == (2, 1)


async def test_a_call_that_nothing_resumes_fails_in_either_era_and_runs_once(
    server: ScriptedServer, events: SseServer, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    server.script["report"] = hold = Hold()
    async with gateway(tmp_path, server, events) as process:
        hosts = process.host(http), process.host(http, era="modern")
        await hosts[0].initialize()
        tasks = [(await host.start("report"))["taskId"] for host in hosts]
        for task in tasks:
            await stored_task(tmp_path, task, lambda task: task.was_sent)
        await eventually(lambda: len(hold.turns) == 2)
        await kill(process)
    async with gateway(tmp_path, server, events) as process:
        for host, task in zip(hosts, tasks, strict=True):
            assert await failure(host.again(process.url()), task) == LOST
    assert sorted(versions(server, "report")) == [("2025-11-25", True), ("2026-07-28", False)]
