"""Calls of the modern era that one replica holds, and whose hosts come back to another."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import serve_replicas
from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.loop_pace import paced
from helpers.server import ScriptedServer, TalkingTool, progress_note
from helpers.shared_store import SharedServer
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded, eventually
from interaction.held_calls import CAPABLE, back, everything, sent_for, through
from interaction.questions import ACCEPTED, DONE, SAID, SAMPLE
from interaction.questions import ASKED as TO_SAMPLE
from taskgate.gateway.modern import remote_retries


@pytest.fixture
def host(three: list[Gateway], tool: TalkingTool) -> Host:
    """A host that can be asked everything, and has no tasks, at the first replica."""
    tool.begun.set()
    return three[0].modern(capabilities=CAPABLE, tasks=False)


def is_refused(answer: Answer) -> bool:
    """Whether a state leads nowhere."""
    assert answer.code == -32602, answer.error
    return "requestState" in str(answer.error["message"])


async def test_answers_that_come_to_another_replica_go_on_with_the_call(
    three: list[Gateway], host: Host, tool: TalkingTool, server: ScriptedServer
) -> None:
    await tool.ask("q-1")
    result = await sent_for(host)
    told = await through(three[1].again(host), result, tool, "q-1")
    assert told["result"] == ACCEPTED
    assert len(server.heard("tools/call")) == 1
    assert server.cancelled == []


async def test_every_round_may_come_to_another_replica(three: list[Gateway], host: Host, tool: TalkingTool) -> None:
    await tool.ask("q-1")
    first = await sent_for(host)
    await tool.ask("q-2", SAMPLE, TO_SAMPLE)
    second = (await back(three[1].again(host), first, everything(first))).result
    ((key, asked),) = second["inputRequests"].items()
    assert asked["method"] == SAMPLE
    assert (await tool.told("q-1"))["result"] == ACCEPTED
    coming = asyncio.create_task(back(three[2].again(host), second, {key: SAID}))
    assert (await tool.told("q-2"))["result"] == SAID
    await tool.finish(DONE)
    assert (await coming).result["content"] == DONE["content"]


async def test_a_large_answer_and_a_large_result_cross(three: list[Gateway], host: Host, tool: TalkingTool) -> None:
    await tool.ask("q-1")
    result = await sent_for(host)
    large = {"action": "accept", "content": {"it": "x" * 200_000}}
    (key,) = result["inputRequests"]
    coming = asyncio.create_task(back(three[1].again(host), result, {key: large}))
    assert (await tool.told("q-1"))["result"] == large
    content = [{"type": "text", "text": "y" * 200_000}]
    await tool.finish({"content": content})
    assert (await coming).result["content"] == content


async def test_a_round_counts_once_wherever_it_is_answered(three: list[Gateway], host: Host, tool: TalkingTool) -> None:
    await tool.ask("q-1")
    result = await sent_for(host)
    coming = [asyncio.create_task(back(each.again(host), result, everything(result))) for each in three]
    await tool.told("q-1")
    await tool.finish(DONE)
    async with bounded():
        answers = await asyncio.gather(*coming)
    refused = [answer for answer in answers if "error" in (answer.message or {})]
    assert len(refused) == 2
    assert all(is_refused(answer) for answer in refused)


async def test_progress_of_the_call_is_told_where_its_host_is(
    three: list[Gateway], host: Host, tool: TalkingTool
) -> None:
    """Under the token of the request that is waited for, as everywhere (M-PROG-1)."""
    await tool.ask("q-1")
    result = await sent_for(host, meta={"progressToken": "first"})
    coming = asyncio.create_task(back(three[1].again(host), result, everything(result), meta={"progressToken": "mine"}))
    await tool.told("q-1")
    for done in (1, 2, 3):
        await tool.say(progress_note(tool.called.token, done))
    await tool.finish(DONE)
    answer = await coming
    assert [note["params"]["progress"] for note in answer.notices] == [1, 2, 3]
    assert {note["params"]["progressToken"] for note in answer.notices} == {"mine"}


async def test_an_error_of_the_server_is_told_where_its_host_is(
    three: list[Gateway], host: Host, tool: TalkingTool
) -> None:
    await tool.ask("q-1")
    result = await sent_for(host)
    coming = asyncio.create_task(back(three[1].again(host), result, everything(result)))
    await tool.told("q-1")
    await tool.vanish()
    answer = await coming
    assert answer.error["data"]["origin"] == "upstream"
    assert answer.error["data"]["dispatched"] is True


async def test_an_answer_that_does_not_fit_is_refused_and_the_call_stays_held(
    three: list[Gateway], host: Host, tool: TalkingTool
) -> None:
    await tool.ask("q-1")
    result = await sent_for(host)
    there = three[1].again(host)
    (key,) = result["inputRequests"]
    assert (await back(there, result, {key: {"action": 7}})).code == -32602
    assert tool.unanswered("q-1")
    await through(there, result, tool, "q-1")


async def test_a_host_that_leaves_the_other_replica_has_cancelled_the_call(
    three: list[Gateway],
    host: Host,
    tool: TalkingTool,
    server: ScriptedServer,
) -> None:
    await tool.ask("q-1")
    result = await sent_for(host)
    there = three[1].again(host)
    params = {"inputResponses": everything(result), "requestState": result["requestState"]}
    async with there.asking("tools/call", {"name": "report", "arguments": {}, **params}) as asked:
        await tool.told("q-1")
        await asked.leave()
        # Not only once nothing was heard of it for long enough.
        await eventually(lambda: server.cancelled, within=remote_retries.SILENCE / 2)


async def test_a_call_whose_holder_is_gone_is_not_known_any_more(
    three: list[Gateway], host: Host, tool: TalkingTool
) -> None:
    await tool.ask("q-1")
    result = await sent_for(host)
    async with bounded():
        await three[0].close()
    with paced(10):
        assert is_refused(await back(three[1].again(host), result, everything(result)))


async def test_a_call_whose_holder_goes_meanwhile_is_cut_off(
    three: list[Gateway], host: Host, tool: TalkingTool
) -> None:
    await tool.ask("q-1")
    result = await sent_for(host)
    coming = asyncio.create_task(back(three[1].again(host), result, everything(result)))
    await tool.told("q-1")
    await three[0].drain()
    async with bounded():
        assert (await coming).error["data"]["reason"] == "shutdown"


async def test_one_whose_holder_dies_meanwhile_is_lost(three: list[Gateway], host: Host, tool: TalkingTool) -> None:
    await tool.ask("q-1")
    result = await sent_for(host)
    coming = asyncio.create_task(back(three[1].again(host), result, everything(result)))
    await tool.told("q-1")
    # It says nothing any more, as one that was killed.
    house: Any = three[0].service._runtime
    house.cluster.bus._log = _Mute()
    with paced(10):
        async with bounded():
            assert (await coming).error["data"] == {"origin": "gateway", "reason": "call_lost", "dispatched": True}


async def test_a_call_whose_host_is_at_a_replica_that_dies_is_given_up(
    three: list[Gateway],
    host: Host,
    tool: TalkingTool,
    server: ScriptedServer,
) -> None:
    await tool.ask("q-1")
    result = await sent_for(host)
    coming = asyncio.create_task(back(three[1].again(host), result, everything(result)))
    await tool.told("q-1")
    house: Any = three[1].service._runtime
    house.cluster.bus._log = _Mute()
    with paced(10):
        await eventually(lambda: server.cancelled)
    coming.cancel()
    await asyncio.wait([coming])


class _Mute:
    """Says nothing to anybody, and hears nothing."""

    async def receive(self, **_: Any) -> tuple[bytes, ...]:
        """Nothing comes."""
        await asyncio.Event().wait()
        return ()

    async def send(self, word: bytes) -> None:
        """Nobody hears it."""

    async def leave(self, name: str, parcel: bytes, **_: Any) -> None:
        """Nobody finds it."""


async def test_a_state_is_good_for_its_own_caller_alone_wherever_it_is_shown(
    server: ScriptedServer, tool: TalkingTool, valkey_server: SharedServer, tmp_path: Path
) -> None:
    issuer = TokenIssuer(tmp_path)
    auth = {"mode": "required", "issuers": {"corp": issuer.section}}
    options, public = valkey_server.options(), {"public_url": "https://m.example"}
    tool.begun.set()
    async with serve_replicas(2, {"reports": server.url}, options, tmp_path, auth=auth, server=public) as (one, two):
        audience = "https://m.example/reports/mcp"
        host = one.modern(token=issuer.token(audience), capabilities=CAPABLE, tasks=False)
        await tool.ask("q-1")
        result = await sent_for(host)
        mallory = two.again(host)
        mallory.token = issuer.token(audience, subject="mallory")
        assert is_refused(await back(mallory, result, everything(result)))
        assert tool.unanswered("q-1")
        await through(two.again(host), result, tool, "q-1")
