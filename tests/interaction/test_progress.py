"""Progress and log lines: of plain calls and of tasks, under the host's own token, growing, and on one stream."""

import asyncio
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.waiting import bounded
from requirements import covers

DONE = {"content": []}
RELATED = "io.modelcontextprotocol/related-task"
PROGRESS, LOG = "notifications/progress", "notifications/message"


async def begun(host: Host, tool: TalkingTool, **params: Any) -> str:
    """A task of the tool, whose call has arrived."""
    task: str = (await host.call("report", task={}, **params)).result["task"]["taskId"]
    async with bounded():
        await tool.begun.wait()
    return task


async def message_of(host: Host, task: str, wanted: str) -> None:
    """Wait until the task's status message is that."""
    async with bounded():
        while (await host.task(task)).get("statusMessage") != wanted:
            await asyncio.sleep(0.005)


@covers("L-PROG-1", "L-META-1", "T-7")
@pytest.mark.parametrize("token", ["mine", 7])
async def test_a_tasks_progress_is_told_under_the_hosts_token_and_only_grows(
    host: Host, tool: TalkingTool, token: object
) -> None:
    task = await begun(host, tool, _meta={"progressToken": token})
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        for done in (1, 3, 2, 3, 5):
            await tool.note(PROGRESS, progressToken=tool.called.token, progress=done, total=10, message="fetching")
        await stream.until(PROGRESS, times=3)
        assert [note["params"] for note in stream.of(PROGRESS)] == [
            {
                "progressToken": token,
                "progress": done,
                "total": 10,
                "message": "fetching",
                "_meta": {RELATED: {"taskId": task}},
            }
            for done in (1, 3, 5)
        ]
        await message_of(host, task, "5/10: fetching")
        await tool.finish(DONE)
        await stream.result()


@covers("L-PROG-1")
async def test_progress_without_a_token_becomes_the_status_message_alone(host: Host, tool: TalkingTool) -> None:
    async with host.listen() as get:
        task = await begun(host, tool)
        await tool.note(PROGRESS, progressToken=tool.called.token, progress=0.5)
        await message_of(host, task, "0.5")
        told = await get.until("notifications/tasks/status")
        assert told["params"]["statusMessage"] == "0.5"
        assert get.of(PROGRESS) == []
        await tool.finish(DONE)
        await host.ask("tasks/result", {"taskId": task})


@covers("L-PROG-1", "H-LEG-8")
async def test_progress_goes_to_the_get_stream_while_nobody_waits_for_the_result(
    host: Host, tool: TalkingTool, gateway: Gateway
) -> None:
    stranger = await gateway.greeted()
    async with host.listen() as get, stranger.listen() as foreign:
        task = await begun(host, tool, _meta={"progressToken": "p"})
        await tool.note(PROGRESS, progressToken=tool.called.token, progress=1)
        await get.until(PROGRESS)
        async with host.asking("tasks/result", {"taskId": task}) as stream:
            await tool.note(PROGRESS, progressToken=tool.called.token, progress=2)
            await stream.until(PROGRESS)
            await tool.finish(DONE)
            await stream.result()
        assert [note["params"]["progress"] for note in get.of(PROGRESS)] == [1]
        assert foreign.heard == []


@covers("L-PROG-1", "L-STAT-2")
async def test_nothing_is_told_of_a_task_that_has_ended(host: Host, tool: TalkingTool, server: ScriptedServer) -> None:
    await server.streaming()
    async with host.listen() as get:
        task = await begun(host, tool, _meta={"progressToken": "p"})
        token = tool.called.token
        await host.ask("tasks/cancel", {"taskId": task})
        await server.push({"jsonrpc": "2.0", "method": PROGRESS, "params": {"progressToken": token, "progress": 1}})
        await server.push({"jsonrpc": "2.0", "method": LOG, "params": {"level": "info", "data": "mark"}})
        await get.until(LOG)
        assert get.of(PROGRESS) == []
        assert (await host.task(task))["statusMessage"] == "Cancelled on request"


@covers("L-META-1")
async def test_log_lines_of_a_tasks_call_name_the_task_and_others_do_not(
    host: Host, tool: TalkingTool, server: ScriptedServer
) -> None:
    await server.streaming()
    async with host.listen() as get:
        task = await begun(host, tool)
        await tool.note(LOG, level="info", data={"x": 1})
        told = await get.until(LOG)
        assert told["params"] == {"level": "info", "data": {"x": 1}, "_meta": {RELATED: {"taskId": task}}}
        await server.push({"jsonrpc": "2.0", "method": LOG, "params": {"level": "info", "data": "any"}})
        assert (await get.until(LOG, times=2))["params"] == {"level": "info", "data": "any"}
        await tool.note("notifications/resources/updated", uri="file:///x")
        assert (await get.until("notifications/resources/updated"))["params"] == {"uri": "file:///x"}
        await tool.finish(DONE)
        await host.ask("tasks/result", {"taskId": task})


@covers("H-LEG-9")
async def test_log_lines_of_a_plain_call_are_on_its_own_stream(host: Host, tool: TalkingTool) -> None:
    async with host.listen() as get, host.asking("tools/call", {"name": "report"}) as stream:
        await tool.note(LOG, level="info", data="mine")
        assert (await stream.until(LOG))["params"]["data"] == "mine"
        await tool.finish(DONE)
        await stream.result()
        assert get.heard == []


async def test_a_silent_call_shows_that_it_lives_to_a_host_that_asked_to_know(server: ScriptedServer) -> None:
    server.script["report"] = tool = TalkingTool()
    config = configuration({"reports": server.url}, server={"sse_keepalive": "100ms"})
    async with serve(config) as gateway:
        host = await gateway.greeted()
        async with host.asking("tools/call", {"name": "report", "_meta": {"progressToken": "t"}}) as stream:
            await stream.until(PROGRESS, times=2)
            for done in (0, 0.5, 4):
                await tool.note(PROGRESS, progressToken=tool.called.token, progress=done)
            async with bounded():
                while not any(note["params"]["progress"] == 4 for note in stream.of(PROGRESS)):
                    await stream.until(PROGRESS, times=len(stream.of(PROGRESS)) + 1)
            await stream.until(PROGRESS, times=len(stream.of(PROGRESS)) + 1)
            told = [note["params"]["progress"] for note in stream.of(PROGRESS)]
            assert told == sorted(set(told))
            assert {0.5, 4} <= set(told)
            assert told[-1] > 4
            await tool.finish(DONE)
            await stream.result()


async def test_a_silent_call_without_a_token_is_kept_alive_by_comments_alone(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    config = configuration({"reports": server.url}, server={"sse_keepalive": "50ms"})
    async with serve(config) as gateway:
        host = await gateway.greeted()
        async with host.asking("tools/call", {"name": "report"}) as stream:
            hold.release(DONE)
            await stream.result()
            assert len(stream.heard) == 1
