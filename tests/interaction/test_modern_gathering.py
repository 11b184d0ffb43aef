"""Servers that ask several things at once: their host is sent for all the answers together."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host, called
from helpers.loop_pace import paced
from helpers.server import ScriptedServer, TalkingTool, progress_note
from helpers.waiting import bounded
from interaction.held_calls import CAPABLE, back, everything
from interaction.questions import ASKED, DONE, ELICIT, ROOTS, SAMPLE
from requirements import covers

ASKABLE = {**CAPABLE, "elicitation": {}}


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway that makes no tasks."""
    tasks = {"upgrade": [{"tool": "*", "mode": "sync"}]}
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        yield gateway


@pytest.fixture
def host(gateway: Gateway) -> Host:
    """A host that can be asked everything."""
    return gateway.modern(capabilities=ASKABLE, tasks=False)


async def heard(asked: Any, tool: TalkingTool, count: int) -> None:
    """Whatever the server said before has been heard by the gateway."""
    await tool.say(progress_note(tool.called.token, count))
    async with bounded():
        while len(asked.heard) < count:
            await asyncio.sleep(0)


@pytest.fixture
async def standing(host: Host) -> AsyncIterator[None]:
    """No moment without another question, after which the host is sent for answers, is ever over."""
    with paced(0.0001):
        yield


@covers("M-MRTR-3")
async def test_what_is_asked_one_right_after_the_other_is_asked_in_one_round(host: Host, tool: TalkingTool) -> None:
    async with host.asking("tools/call", called("report"), meta={"progressToken": "p"}) as asked:
        await tool.ask("q-1")
        await heard(asked, tool, 1)
        await tool.ask("q-2", SAMPLE, ASKED)
        await heard(asked, tool, 2)
        await tool.ask("q-3", ROOTS, {})
        result = (await asked.answer()).result
    assert {each["method"] for each in result["inputRequests"].values()} == {ELICIT, SAMPLE, ROOTS}


async def test_a_question_that_is_withdrawn_meanwhile_leaves_nothing_to_ask(host: Host, tool: TalkingTool) -> None:
    async with host.asking("tools/call", called("report"), meta={"progressToken": "p"}) as asked:
        await tool.ask("q-1")
        await heard(asked, tool, 1)
        await tool.withdraw("q-1")
        await tool.ask("q-2", SAMPLE, ASKED)
        await heard(asked, tool, 2)
        await tool.withdraw("q-2")
        await asyncio.wait([asked.answering], timeout=0.1)  # type: ignore[list-item]
        await tool.finish(DONE)
        assert (await asked.answer()).result["content"] == DONE["content"]


@pytest.mark.usefixtures("standing")
async def test_a_call_that_ends_meanwhile_is_answered_at_once(host: Host, tool: TalkingTool) -> None:
    calling = asyncio.create_task(host.call("report"))
    await tool.ask("q-1")
    await tool.finish(DONE)
    async with bounded():
        assert (await calling).result["content"] == DONE["content"]


@pytest.mark.usefixtures("standing")
async def test_a_host_that_leaves_meanwhile_has_cancelled_its_call(
    server: ScriptedServer, host: Host, tool: TalkingTool
) -> None:
    async with host.asking("tools/call", called("report"), meta={"progressToken": "p"}) as asked:
        await tool.ask("q-1")
        await heard(asked, tool, 1)
        await asked.leave()
    async with bounded():
        while server.cancelled != [tool.called.id]:
            await asyncio.sleep(0)


async def test_what_came_while_the_host_was_away_is_asked_together_too(host: Host, tool: TalkingTool) -> None:
    calling = asyncio.create_task(host.call("report"))
    await tool.ask("q-1")
    first = (await calling).result
    await tool.ask("q-2", SAMPLE, ASKED)
    await tool.ask("q-3", ROOTS, {})
    second = (await back(host, first, everything(first))).result
    assert {each["method"] for each in second["inputRequests"].values()} == {SAMPLE, ROOTS}
