"""A server of the modern era that makes tasks of calls itself: hosts that know tasks have the gateway's own.

Those say, ask and come to what the server's do, of which no host hears.
"""

import asyncio
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import both_eras
from helpers.server import ScriptedServer
from helpers.server.modern_tasks import ModernTasks, TaskTool
from helpers.waiting import bounded, eventually
from interaction.bridges import DONE, FORM, SAMPLE, before, modern
from interaction.questions import ACCEPTED, ELICIT, capable
from interaction.server_tasks import ASKABLE, OFTEN, gateway, natives, promoting, report
from requirements import covers

__all__ = ["gateway", "modern", "natives", "promoting", "report"]


@covers("M-GET-1", "M-UPD-4", "M-NEG-8")
async def test_a_task_of_the_gateway_has_what_the_servers_says_asks_and_comes_to(
    promoting: Gateway, report: TaskTool
) -> None:
    host = promoting.modern(capabilities=ASKABLE)
    made = await host.start("report")
    task = await report.made()
    task.say("half of it")
    async with bounded():
        while (await host.task(made["taskId"])).get("statusMessage") != "half of it":
            await asyncio.sleep(0.005)
    task.ask(secret=FORM, other=FORM)
    async with bounded():
        while len((found := await host.until(made["taskId"], "input_required"))["inputRequests"]) < 2:
            await asyncio.sleep(0.005)
    assert "secret" not in str(found)
    first, second = found["inputRequests"]
    await host.update(made["taskId"], {first: ACCEPTED})
    await task.brought()
    assert list((await host.until(made["taskId"], "input_required"))["inputRequests"]) == [second]
    await host.update(made["taskId"], {second: {"action": "decline"}})
    await task.brought(2)
    assert task.updates == [{"secret": ACCEPTED}, {"other": {"action": "decline"}}]
    task.complete(DONE)
    done = await host.until(made["taskId"], "completed")
    assert done["result"] == {"resultType": "complete", **DONE}
    assert "native" not in str((made, found, done))
    assert len(report.tasks) == 1


@covers("L-GET-1", "L-INPUT-1", "L-RES-2")
async def test_a_task_of_a_host_of_2025_11_25_has_them_too(gateway: Gateway, report: TaskTool) -> None:
    host = await capable(gateway)
    made = await host.start("report")
    task = await report.made()
    task.say("half of it")
    async with bounded():
        while (await host.task(made["taskId"])).get("statusMessage") != "half of it":
            await asyncio.sleep(0.005)
    task.ask(secret=FORM)
    await host.until(made["taskId"], "input_required")
    async with host.asking("tasks/result", {"taskId": made["taskId"]}) as result:
        question = await result.until(ELICIT)
        await host.respond(question["id"], ACCEPTED)
        assert await task.brought() == {"secret": ACCEPTED}
        task.complete(DONE)
        assert (await result.result())["content"] == DONE["content"]
    assert "native" not in str((made, question))


@covers("M-CREATE-1", "M-MRTR-8")
async def test_a_call_whose_server_made_a_task_of_it_becomes_one_of_the_gateway_when_its_grace_is_over(
    modern: ScriptedServer, report: TaskTool
) -> None:
    async with before(modern, tasks={"inline_grace": "100ms", **OFTEN}) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        made = await host.start("report")
        (task,) = report.tasks
        task.ask(secret=FORM)
        (key,) = (await host.until(made["taskId"], "input_required"))["inputRequests"]
        await host.update(made["taskId"], {key: ACCEPTED})
        assert await task.brought() == {"secret": ACCEPTED}
        task.complete(DONE)
        assert (await host.until(made["taskId"], "completed"))["result"]["content"] == DONE["content"]
    assert len(modern.heard("tools/call")) == 1


@covers("M-CANCEL-2", "L-CANCEL-4")
@both_eras
async def test_a_cancelled_task_cancels_the_servers(promoting: Gateway, report: TaskTool, era: str) -> None:
    if era == "modern":
        host = promoting.modern()
        made = await host.start("report")
        task = await report.made()
        await host.cancel(made["taskId"])
    else:
        legacy = await promoting.greeted()
        made = await legacy.start("report")
        task = await report.made()
        await legacy.ask("tasks/cancel", {"taskId": made["taskId"]})
    await task.cancelled()
    await eventually(lambda: task.cancels == 1)


@covers("M-CANCEL-2", "L-CANCEL-4")
@both_eras
async def test_a_task_that_is_cancelled_in_the_moment_in_which_its_server_makes_one_has_that_cancelled(
    promoting: Gateway, report: TaskTool, era: str
) -> None:
    report.handles.clear()
    host = await promoting.greeted(era=era)
    made = await host.start("report")
    task = await report.made()
    await host.ask("tasks/cancel", {"taskId": made["taskId"]})
    report.handles.set()
    await task.cancelled()
    assert task.looks == 0


@covers("M-GET-3", "L-STAT-3", "T-1")
async def test_a_tools_own_error_is_what_it_is_in_either_era(promoting: Gateway, report: TaskTool) -> None:
    host, legacy = promoting.modern(), await promoting.greeted()
    made = await host.start("report")
    (await report.made()).complete({"content": [{"type": "text", "text": "no paper"}], "isError": True})
    assert (await host.until(made["taskId"], "completed"))["result"]["isError"] is True
    other = await legacy.start("report")
    (await report.made(2)).complete({"content": [{"type": "text", "text": "no paper"}], "isError": True})
    assert (await legacy.until(other["taskId"], "failed"))["statusMessage"] == "no paper"


@covers("M-GET-3")
async def test_a_task_whose_server_lost_its_own_has_failed(
    promoting: Gateway, report: TaskTool, natives: ModernTasks
) -> None:
    host = promoting.modern()
    made = await host.start("report")
    await report.made()
    natives.forget()
    found = await host.until(made["taskId"], "failed")
    assert found["error"]["data"] == {"origin": "gateway", "reason": "call_lost", "dispatched": True}
    assert "may or may not have completed" in found["statusMessage"]


@covers("M-GET-3")
@pytest.mark.parametrize("payload", [{}, {"result": {}}, {"result": {"resultType": "complete", "_meta": {"x": 1}}}])
async def test_a_task_that_was_done_there_and_shows_no_result_has_failed(
    promoting: Gateway, report: TaskTool, payload: dict[str, Any]
) -> None:
    host = promoting.modern()
    made = await host.start("report")
    task = await report.made()
    task.status, task.payload = "completed", payload
    found = await host.until(made["taskId"], "failed")
    assert found["error"]["data"] == {"origin": "upstream", "reason": "malformed", "dispatched": True}
    assert "ended without a result or an error" in found["statusMessage"]


@pytest.mark.parametrize("id_", ["x" * 4096, " a\nb\x00 ", 'é€"../..', "=?base64?YQ==?="])
async def test_a_server_may_name_its_tasks_as_it_likes(
    promoting: Gateway, report: TaskTool, natives: ModernTasks, id_: str
) -> None:
    natives.names = [id_]
    host = promoting.modern()
    made = await host.start("report")
    (await report.made()).complete(DONE)
    await host.until(made["taskId"], "completed")


async def test_a_task_in_a_state_that_there_is_not_has_failed_and_is_ended_there(
    promoting: Gateway, report: TaskTool
) -> None:
    report.status = "paused"
    host = promoting.modern()
    made = await host.start("report")
    assert "an unknown status" in (await host.until(made["taskId"], "failed"))["statusMessage"]
    await (await report.made()).cancelled()


async def test_a_question_that_the_host_refuses_to_answer_in_any_form_ends_the_servers_task(
    promoting: Gateway, report: TaskTool
) -> None:
    host = await capable(promoting)
    made = await host.start("report")
    task = await report.made()
    task.ask(secret=SAMPLE)
    async with host.asking("tasks/result", {"taskId": made["taskId"]}) as result:
        question = await result.until("sampling/createMessage")
        await host.respond(question["id"], error={"code": -1, "message": "User rejected"})
        await task.cancelled()
    found = await host.until(made["taskId"], "failed")
    assert "got no answer" in found["statusMessage"]
