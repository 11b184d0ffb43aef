"""Tasks of hosts of both eras at a server that makes tasks of calls itself: its own are nobody's business."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import Reply, ScriptedServer, error, result
from helpers.server import status as away
from helpers.server.legacy_tasks import LegacyTasks
from helpers.waiting import bounded, eventually
from interaction.questions import ACCEPTED, DONE, ELICIT, RELATED, capable
from interaction.server_tasks import ASKED, FORM, said, tasks
from requirements import covers

__all__ = ["tasks"]

PING = {"jsonrpc": "2.0", "id": "p-1", "method": "ping"}


@pytest.fixture
async def always(server: ScriptedServer, tasks: LegacyTasks) -> AsyncIterator[Gateway]:
    """A gateway that makes a task of every call of a host that knows tasks."""
    rules = {"upgrade": [{"tool": "*", "mode": "always"}]}
    async with serve(configuration({"reports": server.url}, tasks=rules)) as gateway:
        yield gateway


@covers("L-CREATE-2", "L-RES-2", "L-RES-3", "L-META-1")
@pytest.mark.parametrize("tool", ["research", "index"])
async def test_a_task_of_a_host_is_run_as_one_of_the_server_whose_id_nobody_sees(
    gateway: Gateway, tasks: LegacyTasks, tool: str
) -> None:
    host = await gateway.greeted()
    created = await host.start(tool, {"a": 1}, ttl=60_000)
    task = await tasks.made()
    # As long as the call may take: the server shall not end it sooner.
    assert 86_000_000 < task.params["task"]["ttl"] <= 86_400_000
    task.move("working", "Gathering")
    await said(host, created["taskId"], "Gathering")
    task.complete(DONE | {"_meta": {"x": 1}})
    await host.until(created["taskId"], "completed")
    came = (await host.ask("tasks/result", {"taskId": created["taskId"]})).result
    assert came == DONE | {"_meta": {"x": 1, RELATED: {"taskId": created["taskId"]}}}
    seen = json.dumps([created, await host.task(created["taskId"]), came])
    assert task.id not in seen


@covers("M-CREATE-4", "M-GET-1")
async def test_a_call_of_a_modern_host_becomes_a_task_that_is_one_of_the_server(
    always: Gateway, tasks: LegacyTasks
) -> None:
    host = always.modern()
    created = await host.start("index")
    task = await tasks.made()
    task.move("working", "Gathering")
    await eventually(lambda: len(task.looked) > 1)
    task.complete(DONE)
    found = await host.until(created["taskId"], "completed")
    assert found["result"]["content"] == DONE["content"]
    assert "_meta" not in found["result"] or RELATED not in found["result"]["_meta"]


@covers("M-CREATE-4")
@pytest.mark.parametrize("tool", ["research", "index"])
async def test_a_call_becomes_a_task_of_ours_when_its_grace_is_over_and_stays_the_one_of_the_server(
    server: ScriptedServer, tasks: LegacyTasks, tool: str
) -> None:
    rules = {"inline_grace": "50ms", "early_poll": {"reject_above": 1000}}
    async with serve(configuration({"reports": server.url}, tasks=rules)) as gateway:
        host = gateway.modern()
        created = await host.start(tool)
        task = await tasks.made()
        task.move("working", "Gathering")
        task.ask(ASKED | {"method": "roots/list", "params": {}})
        async with bounded():
            while (await host.task(created["taskId"])).get("statusMessage") != "It has a question":
                await asyncio.sleep(0.01)
        # A host that declared no roots is not asked for them, and the server hears so at once.
        assert (await server.reply_to("q-1"))["error"]["code"] == -32601
        task.complete(DONE)
        assert (await host.until(created["taskId"], "completed"))["result"]["content"] == DONE["content"]
    assert len(server.heard("tools/call")) == 1


@covers("L-INPUT-1", "L-INPUT-2", "L-INPUT-5", "L-META-1")
async def test_what_the_server_asks_for_its_task_is_asked_for_ours(
    server: ScriptedServer, gateway: Gateway, tasks: LegacyTasks
) -> None:
    host = await capable(gateway)
    created = (await host.start("research"))["taskId"]
    task = await tasks.made()
    task.ask(ASKED | {"params": FORM | {"_meta": {RELATED: {"taskId": task.id}}}})
    await host.until(created, "input_required")
    async with host.asking("tasks/result", {"taskId": created}) as stream:
        asked = await stream.until(ELICIT)
        assert asked["params"] == FORM | {"_meta": {RELATED: {"taskId": created}}}
        await host.respond(asked["id"], ACCEPTED | {"_meta": {RELATED: {"taskId": created}}})
        assert (await server.reply_to("q-1"))["result"] == ACCEPTED | {"_meta": {}}
        task.move("working")
        await host.until(created, "working")
        task.complete(DONE)
        assert await stream.result() == DONE | {"_meta": {RELATED: {"taskId": created}}}


@covers("M-GET-1", "M-UPD-1")
async def test_what_the_server_asks_for_its_task_is_an_input_of_a_modern_hosts(
    server: ScriptedServer, always: Gateway, tasks: LegacyTasks
) -> None:
    host = always.modern(capabilities={"elicitation": {"form": {}}})
    created = (await host.start("research"))["taskId"]
    task = await tasks.made()
    task.ask(ASKED)
    (key,) = (await host.until(created, "input_required"))["inputRequests"]
    await host.update(created, {key: ACCEPTED})
    assert (await server.reply_to("q-1"))["result"] == ACCEPTED
    task.move("working")
    task.complete(DONE)
    assert (await host.until(created, "completed"))["result"]["content"] == DONE["content"]


@covers("L-INPUT-1", "L-INPUT-5", "U-HTTP-3")
async def test_what_the_server_asks_for_a_task_before_its_handle_was_read_is_asked_for_that_task(
    server: ScriptedServer, gateway: Gateway, tasks: LegacyTasks
) -> None:
    tasks.handles.clear()
    host = await capable(gateway)
    created = [(await host.start("research", {"number": number}))["taskId"] for number in range(3)]
    task = await tasks.made(3)
    mine = created.pop(task.params["arguments"]["number"])
    await server.streaming()
    await server.push(ASKED | {"params": FORM | {"_meta": {RELATED: {"taskId": task.id}}}}, PING)
    await server.reply_to("p-1")
    tasks.handles.set()
    await host.until(mine, "input_required")
    assert [(await host.task(other))["status"] for other in created] == ["working", "working"]
    async with host.asking("tasks/result", {"taskId": mine}) as stream:
        asked = await stream.until(ELICIT)
        assert asked["params"] == FORM | {"_meta": {RELATED: {"taskId": mine}}}
        await host.respond(asked["id"], ACCEPTED)
        assert (await server.reply_to("q-1"))["result"] == ACCEPTED


async def test_what_the_server_asks_for_the_task_of_a_plain_call_is_asked_on_the_calls_stream(
    server: ScriptedServer, gateway: Gateway, tasks: LegacyTasks
) -> None:
    host = await capable(gateway)
    async with host.asking("tools/call", {"name": "research"}) as stream:
        task = await tasks.made()
        task.ask(ASKED)
        asked = await stream.until(ELICIT)
        assert asked["params"] == FORM
        await host.respond(asked["id"], ACCEPTED)
        assert (await server.reply_to("q-1"))["result"] == ACCEPTED
        task.complete(DONE)
        assert await stream.result() == DONE


@covers("L-CANCEL-2", "L-CANCEL-4")
async def test_a_cancelled_task_is_cancelled_at_the_server_by_its_own_name(
    server: ScriptedServer, gateway: Gateway, tasks: LegacyTasks
) -> None:
    host = await gateway.greeted()
    created = (await host.start("research"))["taskId"]
    task = await tasks.made()
    await eventually(lambda: task.looked)
    assert (await host.ask("tasks/cancel", {"taskId": created})).result["status"] == "cancelled"
    await eventually(lambda: tasks.cancelled == [task.id])
    assert server.cancelled == []


@covers("L-STAT-3")
async def test_a_task_that_failed_there_failed_here_and_says_why(gateway: Gateway, tasks: LegacyTasks) -> None:
    host = await gateway.greeted()
    created = (await host.start("research"))["taskId"]
    (await tasks.made()).fail("No paper left")
    assert (await host.until(created, "failed"))["statusMessage"] == "No paper left"


@covers("L-RES-2")
@pytest.mark.parametrize(
    ("reply", "reason", "origin", "message"),
    [
        (error(-32602, "Task not found"), "call_lost", "gateway", "did not keep its result"),
        (error(-32601, "Method not found"), "call_lost", "gateway", "did not keep its result"),
        (result({}), "malformed", "upstream", "has no result"),
        (result({"task": {"taskId": "theirs-0001"}}), "malformed", "upstream", "has no result"),
        (result({"_meta": {RELATED: {"taskId": "theirs-0001"}}}), "malformed", "upstream", "has no result"),
    ],
)
async def test_a_task_that_was_done_there_and_shows_no_result_failed_here_and_its_session_goes_on(
    server: ScriptedServer,
    gateway: Gateway,
    tasks: LegacyTasks,
    reply: Reply,
    reason: str,
    origin: str,
    message: str,
) -> None:
    tasks.instead["tasks/result"] = [reply]
    host = await gateway.greeted()
    created = (await host.start("research"))["taskId"]
    (await tasks.made()).complete(DONE)
    assert message in (await host.until(created, "failed"))["statusMessage"]
    told = (await host.ask("tasks/result", {"taskId": created})).error
    assert told["data"] == {"origin": origin, "reason": reason, "dispatched": True}
    assert "theirs" not in json.dumps(told)
    assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    assert len(server.heard("initialize")) == 1


async def test_a_task_that_its_server_cancelled_failed_here(gateway: Gateway, tasks: LegacyTasks) -> None:
    host = await gateway.greeted()
    created = (await host.start("research"))["taskId"]
    (await tasks.made()).move("cancelled")
    assert (await host.until(created, "failed"))["statusMessage"] == "The server cancelled the call"
    told = (await host.ask("tasks/result", {"taskId": created})).error
    assert told["data"] == {"origin": "upstream", "reason": "closed", "dispatched": True}


@pytest.mark.parametrize("id_", ["x" * 4096, " a\nb\x00 ", 'é€"../..', "=?base64?YQ==?="])
async def test_a_server_may_name_its_tasks_as_it_likes(gateway: Gateway, tasks: LegacyTasks, id_: str) -> None:
    tasks.names = [id_]
    host = await gateway.greeted()
    created = (await host.start("research"))["taskId"]
    (await tasks.made()).complete(DONE)
    await host.until(created, "completed")


@pytest.mark.parametrize("id_", ["x" * 4097, ""])
async def test_a_task_that_cannot_be_asked_for_failed_here(gateway: Gateway, tasks: LegacyTasks, id_: str) -> None:
    tasks.names = [id_]
    host = await gateway.greeted()
    created = (await host.start("research"))["taskId"]
    assert "no valid taskId" in (await host.until(created, "failed"))["statusMessage"]


async def test_a_task_in_a_state_that_there_is_not_failed_here_and_is_ended_there(
    gateway: Gateway, tasks: LegacyTasks
) -> None:
    tasks.handles.clear()
    host = await gateway.greeted()
    created = (await host.start("research"))["taskId"]
    (await tasks.made()).move("paused")
    tasks.handles.set()
    assert "an unknown status" in (await host.until(created, "failed"))["statusMessage"]
    await eventually(lambda: tasks.cancelled == ["theirs-0001"])


@pytest.mark.parametrize("code", [400, 404, 405])
@pytest.mark.parametrize("sessions", [True, False])
async def test_a_task_outlives_that_something_else_answers_for_its_server_for_a_while(
    server: ScriptedServer, tasks: LegacyTasks, code: int, sessions: bool
) -> None:
    server.sessions, tasks.poll = sessions, 10
    async with serve(configuration({"reports": server.url})) as gateway:
        host = await gateway.greeted()
        created = (await host.start("research"))["taskId"]
        task = await tasks.made()
        await eventually(lambda: task.looked)
        server.forget_sessions()
        answers = dict(server.methods)
        server.methods |= dict.fromkeys(("initialize", "ping", "tasks/get", "tasks/result"), away(code))
        asked = len(server.requests)
        await eventually(lambda: len(server.requests) > asked + 3)
        server.methods = answers
        task.complete(DONE)
        await host.until(created, "completed")
    assert len(server.heard("tools/call")) == 1
