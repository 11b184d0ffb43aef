"""How calls of the modern era end that became tasks on their way, and those that were given up before."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import Hold, ScriptedServer, TalkingTool, note, progress_note
from helpers.waiting import bounded, eventually
from interaction.questions import DONE
from requirements import covers

AT_ONCE, NEVER = {"inline_grace": "0s"}, {"inline_grace": "1h"}


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway that makes a task of every call that is not over at once."""
    async with serve(configuration({"reports": server.url}, tasks=AT_ONCE)) as gateway:
        yield gateway


@pytest.fixture
async def patient(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway that gives every call an hour until it becomes a task."""
    async with serve(configuration({"reports": server.url}, tasks=NEVER)) as gateway:
        yield gateway


@covers("H-MOD-9")
async def test_a_host_that_leaves_before_there_is_a_task_has_cancelled_its_call(
    server: ScriptedServer, patient: Gateway
) -> None:
    server.script["report"] = hold = Hold()
    async with patient.modern().asking("tools/call", {"name": "report", "arguments": {}}) as asked:
        async with bounded():
            await hold.begun.wait()
        await asked.leave()
    await eventually(lambda: server.cancelled == [hold.turns[0].id])
    assert await patient.count("taskgate_tasks_started_total") == 0


@covers("M-CANCEL-2")
async def test_to_cancel_such_a_task_cancels_its_call(server: ScriptedServer, gateway: Gateway) -> None:
    server.script["report"] = hold = Hold()
    host = gateway.modern()
    task = await host.start("report")
    await host.cancel(task["taskId"])
    await eventually(lambda: server.cancelled == [hold.turns[0].id])
    assert (await host.task(task["taskId"]))["status"] == "cancelled"


async def test_a_call_that_became_a_task_is_cancelled_when_its_task_expires(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    tasks = {**AT_ONCE, "ttl": {"default": "1s", "max": "1s"}}
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        await gateway.modern().start("report")
        await eventually(lambda: server.cancelled == [hold.turns[0].id])


async def test_a_call_that_became_a_task_and_is_cut_off_is_told_as_such(server: ScriptedServer, tmp_path: Path) -> None:
    server.script["report"] = Hold()
    drain = {"drain": {"delay": "0s", "running_tasks": "fail"}}
    config = configuration({"reports": server.url}, folder=tmp_path, tasks=AT_ONCE, server=drain)
    async with serve(config) as gateway:
        task = await gateway.modern().start("report")
        await gateway.drain()
    await eventually(lambda: len(server.cancelled) == 1)
    async with serve(config) as gateway:
        ended = await gateway.modern().task(task["taskId"])
        assert ended["status"] == "failed"
        assert ended["error"]["data"] == {"origin": "gateway", "reason": "shutdown", "dispatched": True}
        assert len(server.heard("tools/call")) == 1


async def test_an_error_of_such_a_call_is_the_error_of_its_task(server: ScriptedServer, gateway: Gateway) -> None:
    server.script["report"] = tool = TalkingTool()
    host = gateway.modern()
    task = await host.start("report")
    await tool.vanish()
    ended = await host.until(task["taskId"], "failed")
    assert ended["error"]["data"]["reason"] == "closed"


async def test_progress_is_in_the_status_even_where_the_host_gave_no_token(
    server: ScriptedServer, gateway: Gateway
) -> None:
    server.script["report"] = tool = TalkingTool()
    host = gateway.modern()
    task = await host.start("report")
    await tool.say(progress_note(tool.called.token, 3))
    await tool.say(note("notifications/tools/list_changed"))
    async with bounded():
        while (await host.task(task["taskId"])).get("statusMessage") != "3":
            await asyncio.sleep(0)
    await tool.finish(DONE)
    await host.until(task["taskId"], "completed")


async def test_what_was_told_before_the_call_became_a_task_is_in_its_status(server: ScriptedServer) -> None:
    server.script["report"] = tool = TalkingTool()
    async with serve(configuration({"reports": server.url}, tasks={"inline_grace": "200ms"})) as gateway:
        host = gateway.modern()
        calling = asyncio.create_task(host.start("report"))
        async with bounded():
            await tool.begun.wait()
        await tool.say(progress_note(tool.called.token, 1))
        task = await calling
        async with bounded():
            while (await host.task(task["taskId"])).get("statusMessage") != "1":
                await asyncio.sleep(0)
        await tool.finish(DONE)
        await host.until(task["taskId"], "completed")
