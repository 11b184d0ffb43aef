"""Questions of a server while its call runs as a task: who is asked, on which stream, what becomes of the answer."""

from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.server import FORM, ScriptedServer, TalkingTool
from interaction.questions import ACCEPTED, ASKED, DONE, ELICIT, RELATED, ROOTS, SAID, SAMPLE, capable
from requirements import covers


@covers("L-INPUT-1", "L-INPUT-2", "L-INPUT-4", "L-INPUT-5", "L-META-1", "T-7", "T-18")
async def test_a_question_rides_on_the_stream_of_the_result_and_its_answer_reaches_the_server(
    gateway: Gateway, tool: TalkingTool
) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask("a-1")
        asked = await stream.until(ELICIT)
        assert asked["params"] == {**FORM, "_meta": {RELATED: {"taskId": task}}}
        assert asked["id"] != "a-1"
        assert (await host.task(task))["status"] == "input_required"
        answer = {**ACCEPTED, "_meta": {RELATED: {"taskId": task}, "mine": 1}}
        assert (await host.respond(asked["id"], answer)).status == 202
        assert (await tool.told("a-1"))["result"] == {**ACCEPTED, "_meta": {"mine": 1}}
        await host.until(task, "working")
        await tool.ask(7, SAMPLE, ASKED)
        asked = await stream.until(SAMPLE)
        assert asked["params"] == {**ASKED, "_meta": {RELATED: {"taskId": task}}}
        await host.respond(asked["id"], SAID)
        assert (await tool.told(7))["result"] == SAID
        await tool.ask(8, ROOTS, {})
        asked = await stream.until(ROOTS)
        await host.respond(asked["id"], {"roots": [{"uri": "file:///here"}]})
        assert (await tool.told(8))["result"] == {"roots": [{"uri": "file:///here"}]}
        await tool.finish(DONE)
        assert await stream.result() == {**DONE, "_meta": {RELATED: {"taskId": task}}}


@covers("L-INPUT-3", "H-LEG-8", "T-19")
async def test_an_open_get_stream_is_asked_at_once_and_a_waiting_result_is_not(
    gateway: Gateway, tool: TalkingTool
) -> None:
    host = await capable(gateway)
    async with host.listen() as get:
        task = (await host.start("report"))["taskId"]
        async with host.asking("tasks/result", {"taskId": task}) as waiting:
            await tool.ask(1)
            asked = await get.until(ELICIT)
            assert asked["params"]["_meta"] == {RELATED: {"taskId": task}}
            await host.respond(asked["id"], ACCEPTED)
            await tool.told(1)
            await tool.finish(DONE)
            await waiting.result()
            assert waiting.of(ELICIT) == []
        assert len(get.of(ELICIT)) == 1


@covers("L-INPUT-3")
async def test_a_question_waits_until_there_is_a_stream_for_it(gateway: Gateway, tool: TalkingTool) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    await tool.ask(1)
    await host.until(task, "input_required")
    async with host.listen() as get:
        asked = await get.until(ELICIT)
        await host.respond(asked["id"], ACCEPTED)
        assert (await tool.told(1))["result"] == ACCEPTED
    await tool.finish(DONE)
    await host.ask("tasks/result", {"taskId": task})


@covers("L-INPUT-3", "T-19")
@pytest.mark.parametrize("first", ["get", "result"])
@pytest.mark.parametrize("then", ["get", "result"])
async def test_a_question_whose_stream_died_is_asked_again_on_the_next_one(
    gateway: Gateway, tool: TalkingTool, first: str, then: str
) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]

    def stream(kind: str) -> Any:
        return host.listen() if kind == "get" else host.asking("tasks/result", {"taskId": task})

    async with stream(first) as dying:
        await tool.ask(1)
        before = await dying.until(ELICIT)
    async with stream(then) as living:
        again = await living.until(ELICIT)
        assert again == before
        await host.respond(again["id"], ACCEPTED)
        assert (await tool.told(1))["result"] == ACCEPTED
    await tool.finish(DONE)
    await host.ask("tasks/result", {"taskId": task})


@covers("L-INPUT-3", "I-ISO-2")
async def test_another_session_of_the_same_caller_may_be_asked_once_the_first_is_gone(
    gateway: Gateway, tool: TalkingTool
) -> None:
    first = await capable(gateway)
    task = (await first.start("report"))["taskId"]
    await tool.ask(1)
    await first.until(task, "input_required")
    await first.leave()
    unable, able = await capable(gateway, elicitation=None), await capable(gateway)
    async with unable.asking("tasks/result", {"taskId": task}) as deaf:
        async with able.asking("tasks/result", {"taskId": task}) as stream:
            asked = await stream.until(ELICIT)
            await able.respond(asked["id"], ACCEPTED)
            assert (await tool.told(1))["result"] == ACCEPTED
            await tool.finish(DONE)
            await stream.result()
        await deaf.result()
        assert deaf.of(ELICIT) == []


@covers("L-INPUT-4")
async def test_several_questions_may_wait_at_once_and_are_answered_in_any_order(
    gateway: Gateway, tool: TalkingTool
) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        for id_ in range(3):
            await tool.ask(id_, params={**FORM, "message": f"{id_}?"})
        await stream.until(ELICIT, times=3)
        asked = stream.of(ELICIT)
        assert [each["params"]["message"] for each in asked] == ["0?", "1?", "2?"]
        assert len({each["id"] for each in asked}) == 3
        for place in (2, 0):
            await host.respond(asked[place]["id"], {"action": "decline", "content": {"it": str(place)}})
            assert (await tool.told(place))["result"]["content"] == {"it": str(place)}
            assert (await host.task(task))["status"] == "input_required"
        await host.respond(asked[1]["id"], {"action": "cancel"})
        assert (await tool.told(1))["result"] == {"action": "cancel"}
        await host.until(task, "working")
        await tool.finish(DONE)
        await stream.result()


@covers("L-INPUT-5")
async def test_the_first_answer_counts_and_what_answers_nothing_is_taken_without_a_word(
    gateway: Gateway, tool: TalkingTool, server: ScriptedServer
) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask(1)
        asked = await stream.until(ELICIT)
        for id_ in (asked["id"] + "1", asked["id"].replace(task, "x" * 32), "strange", 5):
            assert (await host.respond(id_, ACCEPTED)).status == 202
        assert tool.unanswered(1)
        await host.respond(asked["id"], ACCEPTED)
        assert (await host.respond(asked["id"], {"action": "cancel"})).status == 202
        assert (await tool.told(1))["result"] == ACCEPTED
        await tool.finish(DONE)
        await stream.result()
    assert len(server.replies) == 1


@covers("L-INPUT-5")
async def test_a_refusal_of_the_host_goes_back_to_the_server_as_it_is(gateway: Gateway, tool: TalkingTool) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask("x", SAMPLE, ASKED)
        asked = await stream.until(SAMPLE)
        error = {"code": -1, "message": "User rejected sampling request", "data": {"why": "no"}}
        await host.respond(asked["id"], error=error)
        assert (await tool.told("x"))["error"] == error
        await tool.finish(DONE)
        await stream.result()


async def test_an_answer_that_is_none_is_refused_and_the_question_stays(gateway: Gateway, tool: TalkingTool) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask(1)
        asked = await stream.until(ELICIT)
        assert (await host.respond(asked["id"], [1])).status == 400
        assert (await host.task(task))["status"] == "input_required"
        await host.respond(asked["id"], ACCEPTED)
        await tool.told(1)
        await tool.finish(DONE)
        await stream.result()


@covers("L-NOTIF-1")
async def test_a_host_is_told_of_each_state_once_whoever_carries_the_question(
    gateway: Gateway, tool: TalkingTool
) -> None:
    host = await capable(gateway)
    async with host.listen() as get:
        task = (await host.start("report"))["taskId"]
        await tool.ask(1)
        await host.respond((await get.until(ELICIT))["id"], ACCEPTED)
        await tool.told(1)
        await tool.finish(DONE)
        await host.ask("tasks/result", {"taskId": task})
        await get.until("notifications/tasks/status", times=3)
        told = [note["params"]["status"] for note in get.of("notifications/tasks/status")]
    assert told == ["input_required", "working", "completed"]


async def test_a_question_does_not_overtake_the_handle_of_its_task_on_another_stream(
    gateway: Gateway, tool: TalkingTool
) -> None:
    host = await capable(gateway)
    async with host.listen() as get:
        task = (await host.start("report"))["taskId"]
        await tool.ask(1)
        await get.until("notifications/tasks/status")
        assert get.of(ELICIT) == []
        # It knows of the task now.
        await host.task(task)
        await host.respond((await get.until(ELICIT))["id"], ACCEPTED)
        await tool.told(1)
        # Whoever never asks is asked when the task has some age.
        await tool.ask(2)
        await host.respond((await get.until(ELICIT, times=2))["id"], ACCEPTED)
        await tool.told(2)
        await tool.finish(DONE)
        await host.ask("tasks/result", {"taskId": task})
