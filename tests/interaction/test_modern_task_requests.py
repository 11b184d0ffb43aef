"""Tasks of hosts of the modern era, read, answered and cancelled, with the call and its server behind them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.modern_schema import RELATED
from helpers.server import Hold, ScriptedServer, TalkingTool, error
from helpers.server import result as answers
from helpers.waiting import eventually
from interaction.questions import ACCEPTED, DONE, ELICIT, GIVEN_UP, ROOTS, capable
from interaction.refusals import NEEDED, TASK, refused
from requirements import covers

ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}
ASKABLE = {"elicitation": {}, "roots": {}}
DECLINED = {"action": "decline"}
LEGACY_ONLY = {"tasks": {}}


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway that makes a task of every call of this era."""
    async with serve(configuration({"reports": server.url}, tasks=ALWAYS)) as gateway:
        yield gateway


@covers("M-GET-1", "M-GET-2")
async def test_a_task_shows_what_its_call_came_to(server: ScriptedServer, gateway: Gateway) -> None:
    server.script["report"] = answers({**DONE, "_meta": {RELATED: {"taskId": "theirs"}, "a": 1}})
    host = gateway.modern()
    task = await host.start("report")
    found = (await host.until(task["taskId"], "completed"))["result"]
    assert (found["resultType"], found["content"], found["_meta"]) == ("complete", DONE["content"], {"a": 1})


@covers("M-GET-3")
async def test_the_error_of_a_tool_is_a_result_and_that_of_its_server_an_error(
    server: ScriptedServer, gateway: Gateway
) -> None:
    server.script["report"] = answers({**DONE, "isError": True})
    server.script["broken"] = error(-32000, "no")
    host = gateway.modern()
    wrong, broken = await host.start("report"), await host.start("broken")
    assert (await host.until(wrong["taskId"], "completed"))["result"]["isError"] is True
    assert (await host.until(broken["taskId"], "failed"))["error"]["message"] == "no"


@covers("M-GET-6")
async def test_to_look_at_a_task_changes_nothing(server: ScriptedServer, gateway: Gateway) -> None:
    server.script["report"] = Hold()
    host = gateway.modern()
    task = (await host.start("report"))["taskId"]
    assert len({str(await host.task(task)) for _ in range(5)}) == 1


@covers("M-UPD-1", "M-UPD-3", "M-UPD-6")
async def test_answers_reach_the_server_each_when_it_comes(tool: TalkingTool, gateway: Gateway) -> None:
    host = gateway.modern(capabilities=ASKABLE)
    task = (await host.start("report"))["taskId"]
    await tool.ask("q-1")
    await tool.ask("q-2", ROOTS, {})
    while len(asked := (await host.until(task, "input_required"))["inputRequests"]) < 2:
        await asyncio.sleep(0)
    assert {key: request["method"] for key, request in asked.items()} == {
        "input-1": ELICIT,
        "input-2": ROOTS,
    }
    await host.update(task, {"input-2": {"roots": []}})
    assert (await tool.told("q-2"))["result"] == {"roots": []}
    assert list((await host.task(task))["inputRequests"]) == ["input-1"]
    assert tool.unanswered("q-1")
    await host.update(task, {"input-1": ACCEPTED})
    assert (await host.task(task))["status"] == "working"
    assert (await tool.told("q-1"))["result"] == ACCEPTED
    await tool.finish(DONE)
    await host.until(task, "completed")


@covers("M-UPD-2")
async def test_the_first_of_two_answers_counts(tool: TalkingTool, gateway: Gateway) -> None:
    host = gateway.modern(capabilities=ASKABLE)
    task = (await host.start("report"))["taskId"]
    await tool.ask("q-1")
    await host.until(task, "input_required")
    for answer in (ACCEPTED, DECLINED):
        assert (await host.update(task, {"input-1": answer, "input-7": {}})).result["resultType"] == "complete"
    await tool.finish(DONE)
    await host.until(task, "completed")
    assert [reply["result"] for reply in tool.called.server.replies if reply["id"] == "q-1"] == [ACCEPTED]


@covers("M-UPD-5")
@pytest.mark.parametrize("answer", [{}, {"action": "maybe"}, {"roots": []}])
async def test_an_answer_that_does_not_fit_is_refused_and_none_of_the_request_counts(
    tool: TalkingTool, gateway: Gateway, answer: Any
) -> None:
    host = gateway.modern(capabilities=ASKABLE)
    task = (await host.start("report"))["taskId"]
    await tool.ask("q-1", ROOTS, {})
    await tool.ask("q-2")
    while len((await host.until(task, "input_required"))["inputRequests"]) < 2:
        await asyncio.sleep(0)
    refused(await host.update(task, {"input-1": {"roots": []}, "input-2": answer}), 200, -32602)
    assert list((await host.task(task))["inputRequests"]) == ["input-1", "input-2"]
    assert tool.unanswered("q-1")


@covers("M-CANCEL-1", "M-CANCEL-2")
async def test_a_cancelled_task_is_told_as_such_and_its_server_told_to_stop(
    server: ScriptedServer, tool: TalkingTool, gateway: Gateway
) -> None:
    host = gateway.modern(capabilities=ASKABLE)
    task = (await host.start("report"))["taskId"]
    await tool.ask("q-1")
    await host.until(task, "input_required")
    assert (await host.cancel(task)).result["resultType"] == "complete"
    assert (await host.task(task))["status"] == "cancelled"
    await eventually(lambda: server.cancelled == [tool.called.message["id"]])
    assert (await host.cancel(task)).result["resultType"] == "complete"
    assert (await host.update(task, {"input-1": ACCEPTED})).result["resultType"] == "complete"
    assert tool.unanswered("q-1")


# --- one task, two eras: AMB-7, AMB-19 ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["get", "result"])
async def test_a_question_of_a_task_of_the_other_era_is_answered_here_and_taken_back_there(
    tool: TalkingTool, gateway: Gateway, kind: str
) -> None:
    legacy, host = await capable(gateway), gateway.modern()
    task = (await legacy.start("report"))["taskId"]
    stream = legacy.listen() if kind == "get" else legacy.asking("tasks/result", {"taskId": task})
    async with stream as asking:
        await tool.ask("q-1")
        asked = await asking.until(ELICIT)
        await host.update(task, {"input-1": ACCEPTED})
        assert (await asking.until(GIVEN_UP))["params"]["requestId"] == asked["id"]
        await legacy.respond(asked["id"], DECLINED)
        await tool.finish(DONE)
        await legacy.until(task, "completed")
    assert [reply["result"] for reply in tool.called.server.replies if reply["id"] == "q-1"] == [ACCEPTED]


@covers("M-NEG-7")
async def test_who_has_the_tasks_of_the_legacy_era_alone_reads_and_cancels_those(
    server: ScriptedServer, gateway: Gateway
) -> None:
    server.script["report"] = Hold()
    legacy = await gateway.greeted()
    task = (await legacy.start("report"))["taskId"]
    host = gateway.modern(capabilities=LEGACY_ONLY, tasks=False)
    assert (await host.task(task))["status"] == "working"
    assert (await host.cancel(task)).result["resultType"] == "complete"
    assert (await host.task(task))["status"] == "cancelled"


@covers("M-NEG-4", "M-NEG-7")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
async def test_every_other_task_is_the_same_refusal_to_them(
    server: ScriptedServer, gateway: Gateway, method: str
) -> None:
    server.script["report"] = Hold()
    task = (await gateway.modern().start("report"))["taskId"]
    host = gateway.modern(capabilities=LEGACY_ONLY, tasks=False)
    found = [await host.ask(method, {"taskId": each}, id=1) for each in (task, TASK)]
    for answer in found:
        assert refused(answer, 400, -32021)["data"] == NEEDED
    assert found[0].text == found[1].text
    assert (await gateway.modern().task(task))["status"] == "working"
