"""Tools that a server of 2025-11-25 runs as tasks of its own, for hosts that have no task of ours for the call."""

import asyncio
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import Hold, ScriptedServer, result
from helpers.server.legacy_tasks import LegacyTasks
from helpers.waiting import bounded, eventually
from interaction.questions import DONE
from interaction.server_tasks import PROGRESS, tasks, told_last
from requirements import covers

__all__ = ["tasks"]


@covers("L-TOOL-1", "L-CAP-1")
@pytest.mark.parametrize(
    ("mode", "told"), [("sync", "forbidden"), ("auto", "optional"), ("always", "optional"), ("required", "required")]
)
async def test_the_operator_says_what_hosts_are_told_of_a_tool_that_its_server_runs_only_as_a_task(
    server: ScriptedServer, tasks: LegacyTasks, mode: str, told: str
) -> None:
    rules = {"upgrade": [{"tool": "research", "mode": mode}, {"tool": "echo", "mode": "auto"}]}
    async with serve(configuration({"reports": server.url}, tasks=rules)) as gateway:
        host = await gateway.greeted()
        listed = {tool["name"]: tool for tool in (await host.ask("tools/list")).result["tools"]}
    assert listed["research"]["execution"] == {"taskSupport": told}


@covers("L-CAP-1", "V-INIT-4")
@pytest.mark.parametrize("mode", ["sync", "auto"])
async def test_hosts_see_the_gateways_tasks_or_none_and_never_that_the_server_has_some(
    server: ScriptedServer, tasks: LegacyTasks, mode: str
) -> None:
    rules = {"upgrade": [{"tool": "*", "mode": mode}]}
    async with serve(configuration({"reports": server.url}, tasks=rules)) as gateway:
        welcome = await gateway.host().initialize()
        found = await gateway.modern().discover()
    ours = {"cancel": {}, "requests": {"tools": {"call": {}}}}
    assert welcome["capabilities"].get("tasks") == (None if mode == "sync" else ours)
    assert "tasks" not in found["capabilities"]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_tool_that_its_server_runs_only_as_a_task_is_called_plainly_by_any_host(
    gateway: Gateway, tasks: LegacyTasks, revision: str
) -> None:
    host = await gateway.greeted(revision)
    async with host.asking("tools/call", {"name": "research", "arguments": {"a": 1}}) as stream:
        task = await tasks.made()
        assert task.params["arguments"] == {"a": 1}
        task.complete(DONE)
        answer = await stream.result()
    assert answer == DONE
    assert tasks.cancelled == []


@covers("L-PROG-2")
async def test_what_the_servers_task_says_of_itself_reaches_who_wants_progress(
    gateway: Gateway, tasks: LegacyTasks
) -> None:
    host = await gateway.greeted()
    params = {"name": "research", "_meta": {"progressToken": "mine"}}
    async with host.asking("tools/call", params) as stream:
        task = await tasks.made()
        for message in ("Gathering", "Reading"):
            task.move("working", message)
            await eventually(lambda: told_last(stream) == message)  # noqa: B023  it is awaited at once
        task.complete(DONE)
        await stream.result()
    notes = [note["params"] for note in stream.of(PROGRESS)]
    assert [(note["progressToken"], note["message"]) for note in notes] == [("mine", "Gathering"), ("mine", "Reading")]
    assert notes[0]["progress"] < notes[1]["progress"]


async def test_a_modern_host_without_tasks_waits_for_the_result(gateway: Gateway, tasks: LegacyTasks) -> None:
    host = gateway.modern(tasks=False)
    async with host.asking("tools/call", {"name": "research", "arguments": {}}) as asked:
        task = await tasks.made()
        task.complete(DONE)
        answer = await asked.answer()
    assert (answer.result["resultType"], answer.result["content"]) == ("complete", DONE["content"])


async def test_a_tool_that_is_kept_from_being_a_task_here_is_still_run_as_one_there(
    server: ScriptedServer, tasks: LegacyTasks
) -> None:
    rules = {"upgrade": [{"tool": "research", "mode": "sync"}, {"tool": "*", "mode": "auto"}]}
    async with serve(configuration({"reports": server.url}, tasks=rules)) as gateway:
        host = await gateway.greeted()
        assert (await host.call("research", task={})).code == -32601
        async with host.asking("tools/call", {"name": "research"}) as stream:
            (await tasks.made()).complete(DONE)
            assert await stream.result() == DONE


@pytest.mark.parametrize("tool", ["index", "echo"])
async def test_a_task_that_nobody_asked_for_is_ended_and_no_host_hears_of_it(
    server: ScriptedServer, gateway: Gateway, tasks: LegacyTasks, tool: str
) -> None:
    made = result({"task": {"taskId": "theirs-0001", "status": "working"}})
    tasks.instead["tools/call"], server.script["echo"] = [made], made
    answer = await (await gateway.greeted()).call(tool)
    assert answer.error["data"] == {"origin": "upstream", "reason": "malformed", "dispatched": True}
    assert "theirs" not in answer.text
    await eventually(lambda: len(server.heard("tasks/cancel")) == 1)


@covers("L-CANCEL-4")
async def test_a_host_that_gives_its_call_up_has_the_servers_task_cancelled(
    server: ScriptedServer, gateway: Gateway, tasks: LegacyTasks
) -> None:
    host = await gateway.greeted()
    async with host.asking("tools/call", {"name": "research"}, id="call-1"):
        task = await tasks.made()
        await eventually(lambda: task.looked)
        await host.tell("notifications/cancelled", {"requestId": "call-1"})
        await eventually(lambda: tasks.cancelled == [task.id])
    assert server.cancelled == []


async def test_a_host_that_ends_its_session_has_the_task_of_its_plain_call_cancelled(
    gateway: Gateway, tasks: LegacyTasks
) -> None:
    host = await gateway.greeted()
    async with host.asking("tools/call", {"name": "research"}):
        task = await tasks.made()
        await host.leave()
        await eventually(lambda: tasks.cancelled == [task.id])


@pytest.mark.parametrize(
    ("outcome", "code"), [({"error": {"code": -32050, "message": "Off", "data": {"a": 1}}}, -32050), (None, None)]
)
async def test_a_task_that_failed_there_is_the_failure_of_the_call(
    gateway: Gateway, tasks: LegacyTasks, outcome: Any, code: int | None
) -> None:
    host = await gateway.greeted()
    calling = asyncio.create_task(host.call("research"))
    (await tasks.made()).fail("It broke", outcome)
    answer = await calling
    if code is None:
        assert answer.result == {"content": [{"type": "text", "text": "It broke"}], "isError": True}
    else:
        assert answer.error == outcome["error"]


async def test_a_task_that_its_server_forgot_is_a_call_whose_end_nobody_knows(
    gateway: Gateway, tasks: LegacyTasks
) -> None:
    host = await gateway.greeted()
    calling = asyncio.create_task(host.call("research"))
    await tasks.made()
    tasks.all.clear()
    error = (await calling).error
    assert (error["code"], error["data"]) == (
        -32603,
        {"origin": "gateway", "reason": "call_lost", "dispatched": True},
    )


async def test_a_call_that_is_given_up_and_that_its_server_makes_no_task_of_is_cancelled_there(
    server: ScriptedServer, gateway: Gateway, tasks: LegacyTasks
) -> None:
    tasks.instead["tools/call"] = [hold := Hold()]
    host = await gateway.greeted()
    async with host.asking("tools/call", {"name": "research"}, id="call-1"):
        async with bounded():
            await hold.begun.wait()
        await host.tell("notifications/cancelled", {"requestId": "call-1"})
        await eventually(lambda: server.cancelled == [hold.turns[0].id])
    assert tasks.cancelled == []


@covers("H-MOD-9")
async def test_a_modern_host_that_leaves_has_the_servers_task_cancelled(gateway: Gateway, tasks: LegacyTasks) -> None:
    host = gateway.modern(tasks=False)
    async with host.asking("tools/call", {"name": "research", "arguments": {}}):
        task = await tasks.made()
        await eventually(lambda: task.looked)
    await eventually(lambda: tasks.cancelled == [task.id])
