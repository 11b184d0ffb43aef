"""Questions of a server that a task's host does not answer: undeclared, late, withdrawn, one too many, or over."""

from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import FORM, ScriptedServer, TalkingTool
from helpers.waiting import eventually
from interaction.questions import ACCEPTED, ASKED, DONE, ELICIT, GIVEN_UP, ROOTS, SAID, SAMPLE, capable
from requirements import covers


@covers("L-INPUT-6", "L-CAP-3")
@pytest.mark.parametrize(
    ("capabilities", "method", "params", "code"),
    [
        ({"elicitation": None}, ELICIT, FORM, -32601),
        (
            {"elicitation": {"form": {}}},
            ELICIT,
            {"mode": "url", "message": "m", "url": "https://x/", "elicitationId": "1"},
            -32602,
        ),
        ({"sampling": None}, SAMPLE, ASKED, -32601),
        ({"sampling": {}}, SAMPLE, {**ASKED, "tools": []}, -32602),
        ({"roots": None}, ROOTS, {}, -32601),
        ({}, "strange/ask", {}, -32601),
        ({}, "tasks/get", {"taskId": "t"}, -32601),
    ],
)
async def test_what_the_host_did_not_declare_is_refused_in_its_name(
    gateway: Gateway, tool: TalkingTool, capabilities: Any, method: str, params: Any, code: int
) -> None:
    host = await capable(gateway, **capabilities)
    task = (await host.start("report"))["taskId"]
    await tool.ask(1, method, params)
    assert (await tool.told(1))["error"]["code"] == code
    assert (await host.task(task))["status"] == "working"
    await tool.finish(DONE)
    await host.ask("tasks/result", {"taskId": task})


@covers("L-INPUT-6", "L-CAP-3")
async def test_a_server_is_told_just_what_the_host_can_be_asked(gateway: Gateway, server: ScriptedServer) -> None:
    await capable(gateway, elicitation={}, sampling=None, experimental={"x": {}}, extensions={"y": {}})
    declared = server.heard("initialize")[0]["params"]["capabilities"]
    assert declared == {"elicitation": {}, "roots": {"listChanged": True}}


@covers("L-INPUT-8", "R-RES-7", "S-SEC-1")
async def test_a_question_that_nobody_answers_in_time_is_answered_for_the_host(
    server: ScriptedServer, tool: TalkingTool
) -> None:
    rules = {"input_required": {"max_wait": "200ms"}}
    async with serve(configuration({"reports": server.url}, tasks=rules)) as gateway:
        host = await capable(gateway)
        task = (await host.start("report"))["taskId"]
        async with host.asking("tasks/result", {"taskId": task}) as stream:
            await tool.ask(1)
            asked = await stream.until(ELICIT)
            assert (await tool.told(1))["result"] == {"action": "cancel"}
            gone = await stream.until(GIVEN_UP)
            assert gone["params"]["requestId"] == asked["id"]
            await host.until(task, "working")
            assert (await host.respond(asked["id"], ACCEPTED)).status == 202
            await tool.ask(2, SAMPLE, ASKED)
            assert (await tool.told(2))["error"]["code"] == -1
            await tool.ask(3, ROOTS, {})
            assert (await tool.told(3))["error"]["code"] == -32603
            await tool.finish(DONE)
            await stream.result()


@covers("R-RES-7")
async def test_one_question_too_many_is_refused_and_the_others_stay(server: ScriptedServer, tool: TalkingTool) -> None:
    rules = {"input_required": {"max_outstanding": 2}}
    async with serve(configuration({"reports": server.url}, tasks=rules)) as gateway:
        host = await capable(gateway)
        task = (await host.start("report"))["taskId"]
        async with host.asking("tasks/result", {"taskId": task}) as stream:
            for id_ in range(3):
                await tool.ask(id_)
            assert (await tool.told(2))["result"] == {"action": "cancel"}
            await stream.until(ELICIT, times=2)
            await host.respond(stream.of(ELICIT)[0]["id"], ACCEPTED)
            await tool.told(0)
            await tool.ask(3)
            await stream.until(ELICIT, times=3)
            await tool.finish(DONE)
            await stream.result()


async def test_a_question_that_the_server_withdraws_is_withdrawn_from_the_host(
    gateway: Gateway, tool: TalkingTool, server: ScriptedServer
) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask(1)
        asked = await stream.until(ELICIT)
        await tool.withdraw(1)
        gone = await stream.until(GIVEN_UP)
        assert gone["params"]["requestId"] == asked["id"]
        await host.until(task, "working")
        await host.respond(asked["id"], ACCEPTED)
        await tool.finish(DONE)
        await stream.result()
    assert server.replies == []


@pytest.mark.parametrize("kind", ["get", "result"])
async def test_a_task_that_ends_takes_its_questions_with_it(
    gateway: Gateway, tool: TalkingTool, server: ScriptedServer, kind: str
) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    opened = host.listen() if kind == "get" else host.asking("tasks/result", {"taskId": task})
    async with opened as stream:
        await tool.ask(1)
        asked = await stream.until(ELICIT)
        assert (await host.ask("tasks/cancel", {"taskId": task})).result["status"] == "cancelled"
        gone = await stream.until(GIVEN_UP)
        assert gone["params"]["requestId"] == asked["id"]
        assert (await host.respond(asked["id"], ACCEPTED)).status == 202
    await eventually(lambda: server.cancelled)
    assert server.replies == []


@covers("L-INPUT-7")
async def test_a_server_that_answers_while_it_asks_has_answered(gateway: Gateway, tool: TalkingTool) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask(1)
        asked = await stream.until(ELICIT)
        await tool.finish(DONE)
        await stream.result()
        assert [note["params"]["requestId"] for note in stream.of(GIVEN_UP)] in ([asked["id"]], [])
    assert (await host.task(task))["status"] == "completed"


@covers("L-INPUT-3")
async def test_a_host_that_leaves_at_every_step_loses_no_question(gateway: Gateway, tool: TalkingTool) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    for round_ in range(3):
        await tool.ask(round_)
        async with host.asking("tasks/result", {"taskId": task}) as left:
            await left.until(ELICIT)
        async with host.asking("tasks/result", {"taskId": task}) as stream:
            asked = await stream.until(ELICIT)
        await host.respond(asked["id"], ACCEPTED)
        assert (await tool.told(round_))["result"] == ACCEPTED
    await tool.finish(DONE)
    assert (await host.ask("tasks/result", {"taskId": task})).result["content"] == DONE["content"]


@covers("L-PROG-1")
async def test_a_host_may_tell_how_far_it_is_with_a_question(gateway: Gateway, tool: TalkingTool) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask(1, SAMPLE, {**ASKED, "_meta": {"progressToken": "theirs", "kept": 1}})
        asked = await stream.until(SAMPLE)
        token = asked["params"]["_meta"]["progressToken"]
        assert token != "theirs"
        assert asked["params"]["_meta"]["kept"] == 1
        await host.tell("notifications/progress", {"progressToken": token, "progress": 1})
        server = tool.called.server
        await eventually(lambda: server.heard("notifications/progress"))
        assert server.heard("notifications/progress")[0]["params"] == {"progressToken": "theirs", "progress": 1}
        await host.respond(asked["id"], SAID)
        await tool.told(1)
        await tool.finish(DONE)
        await stream.result()
