"""A task is made at one replica; others are asked for it, wait, take answers and cancel, for hosts of either era."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import serve_replicas
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer, TalkingTool, progress_note
from helpers.shared_store import SharedServer
from helpers.waiting import bounded, eventually
from interaction.questions import ACCEPTED, DONE, ELICIT, capable

AT_ONCE = {"upgrade": [{"tool": "*", "mode": "always"}]}
AS_TASKS: dict[str, Any] = {"elicitation": {"form": {}}}
STATUS = "notifications/tasks/status"
TOLD = "notifications/tasks"


def modern(gateway: Gateway) -> Host:
    """A host of the modern era that knows tasks."""
    return gateway.modern(capabilities=AS_TASKS)


async def test_a_task_is_polled_at_another_replica_and_its_result_is_waited_for_at_a_third(
    three: list[Gateway], tool: TalkingTool
) -> None:
    host = await capable(three[0])
    task = (await host.start("report"))["taskId"]
    poller, waiter = three[1].again(host), three[2].again(host)
    assert (await poller.task(task))["status"] == "working"
    waiting = asyncio.create_task(waiter.ask("tasks/result", {"taskId": task}))
    await tool.finish(DONE)
    async with bounded():
        assert (await waiting).result["content"] == DONE["content"]
    assert (await poller.task(task))["status"] == "completed"


@pytest.mark.parametrize("end", ["the end of the task", "a drain of the replica that is polled"])
async def test_a_poll_of_a_new_task_waits_at_another_replica(
    server: ScriptedServer, tool: TalkingTool, valkey_server: SharedServer, tmp_path: Path, end: str
) -> None:
    tasks = {**AT_ONCE, "poll_grace": "10s"}
    async with serve_replicas(2, {"reports": server.url}, valkey_server.options(), tmp_path, tasks=tasks) as (one, two):
        host = await capable(one)
        task = (await host.start("report"))["taskId"]
        poll = asyncio.create_task(two.again(host).task(task))
        await two.shows("http_server_active_requests", 1, http_route="mcp")
        # Well before it would end by itself.
        async with bounded(5):
            if end == "the end of the task":
                await tool.finish(DONE)
                assert (await poll)["status"] == "completed"
            else:
                draining = asyncio.create_task(two.drain())
                assert (await poll)["status"] == "working"
                await draining
                await tool.finish(DONE)


async def test_its_question_is_asked_at_one_replica_and_answered_at_another(
    three: list[Gateway], tool: TalkingTool
) -> None:
    host = await capable(three[0])
    task = (await host.start("report"))["taskId"]
    async with three[2].again(host).asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask("q")
        asked = await stream.until(ELICIT)
        assert (await three[1].again(host).task(task))["status"] == "input_required"
        assert (await three[1].again(host).respond(asked["id"], ACCEPTED)).status == 202
        assert (await tool.told("q"))["result"] == ACCEPTED
        await tool.finish(DONE)
        assert (await stream.result())["content"] == DONE["content"]
        assert len(stream.of(ELICIT)) == 1


async def test_its_question_goes_to_the_get_stream_at_another_replica(three: list[Gateway], tool: TalkingTool) -> None:
    host = await capable(three[0])
    task = (await host.start("report"))["taskId"]
    async with three[1].again(host).listen() as get, three[2].again(host).listen() as other:
        await tool.ask("q")
        await three[2].again(host).until(task, "input_required")
        await eventually(lambda: get.of(ELICIT) or other.of(ELICIT))
        (asked,) = [*get.of(ELICIT), *other.of(ELICIT)]
        await host.respond(asked["id"], ACCEPTED)
        await tool.told("q")
        await tool.finish(DONE)
        await three[1].again(host).until(task, "completed")
        assert len([*get.of(ELICIT), *other.of(ELICIT)]) == 1


async def test_its_state_is_told_on_the_get_stream_at_another_replica(three: list[Gateway], tool: TalkingTool) -> None:
    host = await capable(three[0])
    task = (await host.start("report"))["taskId"]
    async with three[1].again(host).listen() as get:
        await three[1].again(host).ask("ping")
        await tool.finish(DONE)
        async with bounded():
            while not any(told["params"]["status"] == "completed" for told in get.of(STATUS)):
                await asyncio.sleep(0.005)
        assert get.of(STATUS)[-1]["params"]["taskId"] == task


async def test_its_cancel_at_another_replica_reaches_the_server(three: list[Gateway], server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    host = await three[0].greeted()
    task = (await host.start("report"))["taskId"]
    async with bounded():
        await hold.begun.wait()
    answer = await three[1].again(host).ask("tasks/cancel", {"taskId": task})
    assert answer.result["status"] == "cancelled"
    async with bounded():
        await hold.left.wait()
    await eventually(lambda: server.cancelled)
    assert (await three[2].again(host).task(task))["status"] == "cancelled"


async def test_all_tasks_are_listed_at_any_replica(three: list[Gateway], server: ScriptedServer) -> None:
    """Without authentication there is no list: each is found by its id alone."""
    host = await three[0].greeted()
    tasks = [(await gateway.again(host).start("echo", {"at": n}))["taskId"] for n, gateway in enumerate(three)]
    for gateway in three:
        for number, task in enumerate(tasks):
            result = (await gateway.again(host).ask("tasks/result", {"taskId": task})).result
            assert result["structuredContent"] == {"at": number}


async def test_a_task_of_a_session_that_ended_is_found_in_the_next_at_another_replica(
    three: list[Gateway], tool: TalkingTool
) -> None:
    host = await capable(three[0])
    task = (await host.start("report"))["taskId"]
    await three[1].again(host).leave()
    other = await capable(three[2])
    async with other.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask("q")
        asked = await stream.until(ELICIT)
        await other.respond(asked["id"], ACCEPTED)
        assert (await tool.told("q"))["result"] == ACCEPTED
        await tool.finish(DONE)
        await stream.result()


# --- hosts of the modern era ------------------------------------------------------------------------------------


async def test_a_modern_host_polls_answers_and_listens_at_other_replicas(
    three: list[Gateway], tool: TalkingTool
) -> None:
    task = (await modern(three[0]).start("report"))["taskId"]
    async with modern(three[1]).listen(taskIds=[task]) as listening:
        await tool.ask("q")
        asked = await modern(three[2]).until(task, "input_required")
        ((key, request),) = asked["inputRequests"].items()
        assert request["method"] == ELICIT
        await modern(three[1]).update(task, {key: ACCEPTED})
        assert (await tool.told("q"))["result"] == ACCEPTED
        await tool.finish(DONE)
        async with bounded():
            while not any(told["params"]["status"] == "completed" for told in listening.of(TOLD)):
                await asyncio.sleep(0.005)
    done = await modern(three[2]).task(task)
    assert done["result"]["content"] == DONE["content"]


async def test_a_modern_host_cancels_at_another_replica(three: list[Gateway], server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    task = (await modern(three[0]).start("report"))["taskId"]
    async with bounded():
        await hold.begun.wait()
    assert (await modern(three[1]).cancel(task)).status == 200
    async with bounded():
        await hold.left.wait()
    assert (await modern(three[2]).until(task, "cancelled"))["taskId"] == task


@pytest.mark.parametrize("at_replica", [1, 2])
async def test_how_far_a_task_is_shows_at_every_replica(
    three: list[Gateway], tool: TalkingTool, at_replica: int
) -> None:
    task = (await modern(three[0]).start("report"))["taskId"]
    async with bounded():
        await tool.begun.wait()
    await tool.say(progress_note(tool.called.token, 3))
    async with bounded():
        while "3" not in (await modern(three[at_replica]).task(task)).get("statusMessage", ""):
            await asyncio.sleep(0.01)
    await tool.finish(DONE)
    await modern(three[at_replica]).until(task, "completed")


async def test_a_task_of_one_era_is_read_in_the_other_at_another_replica(
    three: list[Gateway], tool: TalkingTool
) -> None:
    task = (await modern(three[0]).start("report"))["taskId"]
    host = await three[1].greeted()
    await tool.finish(DONE)
    answer = await three[2].again(host).ask("tasks/result", {"taskId": task})
    assert answer.result["content"] == DONE["content"]
