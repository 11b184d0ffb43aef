"""Held calls when things do not come in turn: two retries, questions to nobody, more calls than may wait."""

from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host, called
from helpers.server import FORM, ScriptedServer, TalkingTool, Turn
from helpers.waiting import eventually
from interaction.questions import ACCEPTED, DONE, ELICIT
from interaction.refusals import refused
from requirements import covers

ABLE = {"elicitation": {"form": {}}}


@pytest.fixture(autouse=True)
def listening(tool: TalkingTool) -> None:
    """The tool may be told what to say before it is called."""
    tool.begun.set()


@pytest.fixture
def host(gateway: Gateway) -> Host:
    """A host that can be asked, without the tasks extension."""
    return gateway.modern(capabilities=ABLE, tasks=False)


async def asked(host: Host, tool: TalkingTool, id: str = "q-1") -> dict[str, Any]:
    """The round that a call begins with."""
    await tool.ask(id)
    result = (await host.call("report")).result
    assert result["resultType"] == "input_required"
    return result


def again(asked: dict[str, Any], answer: Any = ACCEPTED) -> dict[str, Any]:
    """The call with its one answer."""
    (key,) = asked["inputRequests"]
    return called("report", inputResponses={key: answer}, requestState=asked["requestState"])


@covers("M-MRTR-4")
async def test_of_two_retries_at_once_one_is_the_round(server: ScriptedServer, host: Host, tool: TalkingTool) -> None:
    params = again(await asked(host, tool))
    async with host.asking("tools/call", params) as one, host.asking("tools/call", params) as other:
        await tool.told("q-1")
        await tool.finish(DONE)
        messages = [(await each.answer()).message or {} for each in (one, other)]
    assert sorted(message.get("error", {}).get("code", 0) for message in messages) == [-32602, 0]
    assert [reply["id"] for reply in server.replies] == ["q-1"]
    assert len(server.heard("tools/call")) == 1


@covers("M-PROG-1")
async def test_progress_comes_to_whoever_waits_and_under_their_token(host: Host, tool: TalkingTool) -> None:
    async with host.asking("tools/call", called("report"), meta={"progressToken": "one"}) as first:
        await eventually(lambda: tool.turn)
        token = tool.called.token
        await tool.note("notifications/progress", progressToken=token, progress=5)
        await first.until("notifications/progress")
        await tool.ask("q-1")
        round_ = (await first.answer()).result
    async with host.asking("tools/call", again(round_), meta={"progressToken": "two"}) as second:
        await tool.told("q-1")
        await tool.note("notifications/progress", progressToken=token, progress=6)
        await tool.finish(DONE)
        notices = (await second.answer()).notices
    assert [note["params"] for note in notices] == [{"progressToken": "two", "progress": 6}]


@covers("M-MRTR-3")
async def test_what_is_asked_while_nobody_is_there_is_the_next_round(host: Host, tool: TalkingTool) -> None:
    first = await asked(host, tool)
    await tool.ask("q-2")
    second = (await host.ask("tools/call", again(first))).result
    assert second["resultType"] == "input_required"
    assert not set(first["inputRequests"]) & set(second["inputRequests"])
    async with host.asking("tools/call", again(second, {"action": "cancel"})) as last:
        assert (await tool.told("q-2"))["result"] == {"action": "cancel"}
        await tool.finish(DONE)
        assert (await last.answer()).result["content"] == DONE["content"]


@covers("M-MRTR-5")
async def test_a_question_that_was_withdrawn_gets_no_answer(gateway: Gateway, host: Host, tool: TalkingTool) -> None:
    round_ = await asked(host, tool)
    await tool.withdraw("q-1")
    await tool.finish(DONE)
    await gateway.upstream_is(in_use=0)
    assert (await host.ask("tools/call", again(round_))).result["content"] == DONE["content"]
    assert tool.unanswered("q-1")


@covers("M-MRTR-7")
async def test_a_call_that_ends_while_nobody_is_there_is_answered_to_who_comes_back(
    server: ScriptedServer, host: Host, tool: TalkingTool
) -> None:
    round_ = await asked(host, tool)
    await tool.finish(DONE)
    assert (await host.ask("tools/call", again(round_))).result["content"] == DONE["content"]
    assert len(server.heard("tools/call")) == 1


@covers("R-RES-7", "M-MRTR-7")
async def test_of_more_calls_than_may_wait_one_is_refused_and_its_server_told(
    server: ScriptedServer,
) -> None:
    calls: list[TalkingTool] = []

    async def report(turn: Turn) -> Any:
        calls.append(each := TalkingTool())
        each.begun.set()
        question = {"jsonrpc": "2.0", "id": f"q-{len(calls)}", "method": ELICIT, "params": FORM}
        await each.say(question)
        return await each(turn)

    server.script["report"] = report
    bounds = {"input_required": {"max_outstanding": 2}}
    async with serve(configuration({"reports": server.url}, tasks=bounds)) as gateway:
        host = gateway.modern(capabilities=ABLE, tasks=False)
        rounds = [(await host.call("report", {"number": number})).result for number in range(2)]
        async with host.asking("tools/call", called("report", {"number": 2})) as third:
            await eventually(lambda: server.replies)
            assert [(reply["id"], reply["result"]["action"]) for reply in server.replies] == [("q-3", "cancel")]
            refusal = refused(await third.answer(), 200, 429)
            assert refusal["data"]["reason"] == "concurrency"
    assert [each["resultType"] for each in rounds] == ["input_required"] * 2
