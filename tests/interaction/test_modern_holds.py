"""Calls of the modern era that wait for their host: it is sent for answers, comes back, and the call goes on."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import FORM, ScriptedServer, TalkingTool
from helpers.waiting import bounded
from interaction.held_calls import CAPABLE, back, everything, sent_for, through
from interaction.questions import ACCEPTED, ASKED, DONE, ELICIT, ROOTS, SAID, SAMPLE
from interaction.refusals import refused
from requirements import covers


@pytest.fixture
def talking(server: ScriptedServer) -> TalkingTool:
    """The tool `report`, which begins to talk before it is called."""
    server.script["report"] = talking = TalkingTool()
    talking.begun.set()
    return talking


@pytest.fixture
def host(gateway: Gateway) -> Host:
    """A host that can be asked everything, and has no tasks."""
    return gateway.modern(capabilities=CAPABLE, tasks=False)


def keys(result: dict[str, Any]) -> dict[str, str]:
    """From what is asked, by its method, to its key."""
    return {asked["method"]: key for key, asked in result["inputRequests"].items()}


@covers("M-MRTR-3", "M-MRTR-6")
async def test_a_host_is_sent_for_the_answer_and_its_call_goes_on(
    server: ScriptedServer, gateway: Gateway, host: Host, talking: TalkingTool
) -> None:
    await talking.ask("q-1")
    result = await sent_for(host)
    ((_, asked),) = result["inputRequests"].items()
    assert (asked["method"], asked["params"]["message"]) == (ELICIT, FORM["message"])
    assert talking.unanswered("q-1")
    assert (await through(host, result, talking, "q-1"))["result"] == ACCEPTED
    assert len(server.heard("tools/call")) == 1
    assert server.cancelled == []
    assert await gateway.count("taskgate_tool_calls_total", disposition="direct") == 2


@covers("M-MRTR-5")
async def test_what_was_not_answered_is_asked_again_and_what_was_is_given_to_the_server(
    host: Host, talking: TalkingTool
) -> None:
    await talking.ask("q-1")
    first = await sent_for(host)
    await talking.ask("q-2", SAMPLE, ASKED)
    await talking.ask("q-3", ROOTS, {})
    second = (await back(host, first, everything(first))).result
    if set(keys(second)) != {SAMPLE, ROOTS}:
        # The last one came a moment later: what is still open is asked with it.
        second = (await back(host, second, {})).result
    third = (await back(host, second, {keys(second)[SAMPLE]: SAID})).result
    assert set(keys(third)) == {ROOTS}
    assert (await talking.told("q-2"))["result"] == SAID
    assert talking.unanswered("q-3")
    roots = {"roots": [{"uri": "file:///x"}]}
    coming = asyncio.create_task(back(host, third, {keys(third)[ROOTS]: roots}))
    assert (await talking.told("q-3"))["result"] == roots
    await talking.finish(DONE)
    assert (await coming).result["content"] == DONE["content"]


@covers("M-MRTR-5")
async def test_answers_to_what_was_not_asked_count_for_nothing(host: Host, talking: TalkingTool) -> None:
    await talking.ask("q-1")
    result = await sent_for(host)
    result["inputRequests"]["other"] = {}
    assert (await through(host, result, talking, "q-1"))["result"] == ACCEPTED


@covers("M-MRTR-5")
@pytest.mark.parametrize("wrong", [{}, {"action": 1}, {"roots": []}, {"error": {"code": -1, "message": "no"}}], ids=str)
async def test_a_malformed_answer_is_refused_and_the_round_stays_open(
    host: Host, talking: TalkingTool, wrong: dict[str, Any]
) -> None:
    await talking.ask("q-1")
    result = await sent_for(host)
    (key,) = result["inputRequests"]
    refused(await back(host, result, {key: wrong}), 200, -32602)
    assert talking.unanswered("q-1")
    assert (await through(host, result, talking, "q-1"))["result"] == ACCEPTED


async def test_a_question_that_comes_while_the_host_is_away_is_asked_when_it_is_back(
    host: Host, talking: TalkingTool
) -> None:
    await talking.ask("q-1")
    first = await sent_for(host)
    await talking.ask("q-2", params={**FORM, "message": "And?"})
    second = (await back(host, first, everything(first))).result
    assert [asked["params"]["message"] for asked in second["inputRequests"].values()] == ["And?"]
    assert set(second["inputRequests"]).isdisjoint(first["inputRequests"])
    assert (await through(host, second, talking, "q-2"))["result"] == ACCEPTED


async def test_a_host_whose_question_was_withdrawn_waits_for_the_answer_to_its_call(
    gateway: Gateway, host: Host, talking: TalkingTool
) -> None:
    await talking.ask("q-1")
    result = await sent_for(host)
    await talking.withdraw("q-1")
    await talking.finish(DONE)
    await gateway.upstream_is(in_use=0)
    assert (await back(host, result, everything(result))).result["content"] == DONE["content"]
    assert talking.unanswered("q-1")


async def test_an_answer_that_comes_while_the_host_is_away_is_kept_for_it(
    server: ScriptedServer, host: Host, talking: TalkingTool
) -> None:
    await talking.ask("q-1")
    result = await sent_for(host)
    await talking.finish(DONE)
    await host.call("echo")
    assert (await back(host, result, {})).result["content"] == DONE["content"]
    assert len(server.heard("tools/call")) == 2


async def test_a_failure_that_comes_while_the_host_is_away_is_kept_for_it(host: Host, talking: TalkingTool) -> None:
    await talking.ask("q-1")
    result = await sent_for(host)
    await talking.vanish()
    error = refused(await back(host, result, everything(result)), 200, -32603)
    assert error["data"]["reason"] == "closed"


@covers("M-MRTR-4")
async def test_of_two_that_come_back_for_one_round_one_goes_on(host: Host, talking: TalkingTool) -> None:
    await talking.ask("q-1")
    result = await sent_for(host)
    both = [asyncio.create_task(back(host, result, everything(result))) for _ in range(2)]
    await talking.told("q-1")
    async with bounded():
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    await talking.finish(DONE)
    answers = [await each for each in both]
    assert sorted("result" in (answer.message or {}) for answer in answers) == [False, True]
    assert [answer.code for answer in answers if "error" in (answer.message or {})] == [-32602]


@covers("M-MRTR-2")
async def test_a_host_that_comes_back_with_other_capabilities_is_refused(host: Host, talking: TalkingTool) -> None:
    await talking.ask("q-1")
    result = await sent_for(host)
    refused(await back(host, result, everything(result), capabilities={"elicitation": {}}), 200, -32602)
    await through(host, result, talking, "q-1")


@covers("M-MRTR-1")
@pytest.mark.parametrize(
    ("method", "params"), [("prompts/get", {"name": "daily"}), ("resources/read", {"uri": "file:///x"})]
)
async def test_prompts_and_resources_may_ask_too(
    server: ScriptedServer, host: Host, method: str, params: dict[str, Any]
) -> None:
    server.methods[method] = tool = TalkingTool()
    tool.begun.set()
    await tool.ask("q-1")
    result = (await host.ask(method, params)).result
    assert result["resultType"] == "input_required"
    done: dict[str, Any] = {"messages": []} if method == "prompts/get" else {"contents": []}
    params = {**params, "requestState": result["requestState"], "inputResponses": everything(result)}
    coming = asyncio.create_task(host.ask(method, params))
    assert (await tool.told("q-1"))["result"] == ACCEPTED
    await tool.finish(done)
    async with bounded():
        assert (await coming).result.items() >= done.items()


async def test_answers_without_a_state_are_nothing_to_a_server_that_asked_for_none(
    server: ScriptedServer, host: Host
) -> None:
    answer = await host.call("echo", {"a": 1}, inputResponses={"x": ACCEPTED})
    assert answer.result["structuredContent"] == {"a": 1}
    assert "inputResponses" not in server.heard("tools/call")[0]["params"]


@pytest.fixture
async def eager(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway that makes a task of every call that is not over at once."""
    async with serve(configuration({"reports": server.url}, tasks={"inline_grace": "0s"})) as gateway:
        yield gateway


async def test_a_call_that_waited_becomes_a_task_where_its_host_comes_back_with_the_extension(
    eager: Gateway, talking: TalkingTool
) -> None:
    await talking.ask("q-1")
    result = await sent_for(eager.modern(capabilities=CAPABLE, tasks=False))
    host = eager.modern(capabilities=CAPABLE)
    task = (await back(host, result, everything(result))).result
    assert task["resultType"] == "task"
    assert (await talking.told("q-1"))["result"] == ACCEPTED
    await talking.finish(DONE)
    assert (await host.until(task["taskId"], "completed"))["result"]["content"] == DONE["content"]
