"""Questions of a server of the legacy era in tasks of the modern one: inputs that are read, and answered."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import ScriptedServer, TalkingTool
from helpers.waiting import bounded, eventually
from interaction.bridges import requiring
from interaction.questions import ACCEPTED, DONE, ELICIT, URL
from interaction.refusals import refused
from requirements import covers

ABLE = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}


@pytest.fixture(autouse=True)
def listening(tool: TalkingTool) -> None:
    """The tool may be told what to say before it is called."""
    tool.begun.set()


@pytest.fixture
def host(gateway: Gateway) -> Host:
    """A host that can be asked everything, without the tasks extension."""
    return gateway.modern(capabilities=ABLE, tasks=False)


@pytest.fixture
async def always(server: ScriptedServer) -> AsyncIterator[Host]:
    """A host all of whose calls become tasks."""
    async with serve(configuration({"reports": server.url}, tasks=ALWAYS)) as gateway:
        yield gateway.modern(capabilities=ABLE)


@covers("M-CREATE-4", "M-CREATE-1", "M-GET-1")
async def test_a_call_that_asks_within_the_grace_is_a_task_where_it_may_be_one(
    gateway: Gateway, tool: TalkingTool
) -> None:
    host = gateway.modern(capabilities=ABLE)
    await tool.ask("q-1")
    task = await host.start("report")
    (key,) = (await host.until(task["taskId"], "input_required"))["inputRequests"]
    await host.update(task["taskId"], {key: ACCEPTED})
    await tool.finish(DONE)
    assert (await host.until(task["taskId"], "completed"))["result"]["content"] == DONE["content"]


@covers("M-GET-1", "M-UPD-1", "M-UPD-2", "M-UPD-3", "M-UPD-4", "M-UPD-6", "M-STAT-1")
async def test_the_questions_of_a_task_are_answered_one_by_one_under_keys_that_never_come_again(
    always: Host, tool: TalkingTool
) -> None:
    task = (await always.start("report"))["taskId"]
    await tool.ask("q-1")
    await tool.ask("q-2")
    async with bounded():
        while len((found := await always.task(task)).get("inputRequests", {})) < 2:
            await asyncio.sleep(0)
    one, two = found["inputRequests"]
    assert not {"q-1", "q-2"} & {one, two}
    await always.update(task, {one: ACCEPTED})
    rest = await always.task(task)
    assert (rest["status"], list(rest["inputRequests"])) == ("input_required", [two])
    await always.update(task, {one: {"action": "decline"}, two: {"action": "cancel"}, "x": ACCEPTED})
    assert (await always.task(task))["status"] == "working"
    assert [(await tool.told(id))["result"]["action"] for id in ("q-1", "q-2")] == ["accept", "cancel"]
    await tool.ask("q-3")
    (three,) = (await always.until(task, "input_required"))["inputRequests"]
    assert three not in (one, two)


@covers("M-UPD-5", "M-MRTR-5")
async def test_an_answer_of_a_task_that_is_none_changes_nothing(always: Host, tool: TalkingTool) -> None:
    task = (await always.start("report"))["taskId"]
    await tool.ask("q-1")
    inputs = (await always.until(task, "input_required"))["inputRequests"]
    (key,) = inputs
    refused(await always.update(task, {key: {"roots": []}}), 200, -32602)
    assert (await always.task(task))["inputRequests"] == inputs
    assert tool.unanswered("q-1")


@covers("M-GET-6", "M-MRTR-8")
async def test_a_task_that_waits_reads_the_same_however_often(always: Host, tool: TalkingTool) -> None:
    task = (await always.start("report"))["taskId"]
    await tool.ask("q-1")
    first = await always.until(task, "input_required")
    assert [await always.task(task) for _ in range(3)] == [first] * 3
    assert "requestState" not in first


@covers("M-NOTIF-7", "L-INPUT-9")
async def test_that_a_question_in_url_mode_is_done_is_told_to_nobody_in_this_era(
    always: Host, tool: TalkingTool
) -> None:
    task = (await always.start("report"))["taskId"]
    await tool.ask("q-1", ELICIT, URL)
    (key,) = (await always.until(task, "input_required"))["inputRequests"]
    async with always.listen(taskIds=[task], toolsListChanged=True) as heard:
        await always.update(task, {key: {"action": "accept"}})
        await tool.note("notifications/elicitation/complete", elicitationId="e-1")
        await tool.finish(DONE)
        await always.until(task, "completed")
        await eventually(lambda: heard.heard[-1]["params"].get("status") == "completed")
    assert {each["method"] for each in heard.heard[1:]} == {"notifications/tasks"}


@covers("B-CONV-8", "T-24", "M-GET-1")
async def test_an_elicitation_that_a_task_requires_is_an_input_of_it(server: ScriptedServer, always: Host) -> None:
    server.script["report"] = requiring("e-1", "e-2")
    task = (await always.start("report"))["taskId"]
    async with bounded():
        while len(inputs := (await always.task(task)).get("inputRequests", {})) < 2:
            await asyncio.sleep(0)
    await always.update(task, {key: {"action": "accept"} for key in inputs})
    assert (await always.until(task, "completed"))["result"]["content"] == DONE["content"]
    assert len(server.heard("tools/call")) == 2
