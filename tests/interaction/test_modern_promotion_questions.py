"""Calls of the modern era whose servers ask something: before there is a task, for it, and while it is made."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from helpers.failing_store import HoldingStore
from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.gateway.gateway import Environment, Gateway, open_store, serve
from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.server import FORM, Hold, Reply, Rounds, ScriptedServer, TalkingTool, Turn
from helpers.waiting import bounded
from interaction.questions import ACCEPTED, DONE, ELICIT
from requirements import covers

ASKABLE = {"elicitation": {}}
AT_ONCE, NEVER = {"inline_grace": "0s"}, {"inline_grace": "1h"}
ROUND = {"inputRequests": {"a": {"method": ELICIT, "params": FORM}}, "requestState": "s"}


def before(server: ScriptedServer, **sections: Any) -> GatewayConfig:
    """A gateway before a server of the same era."""
    pinned = {"path": "/reports/mcp", "url": server.url, "protocol_version": "2026-07-28"}
    return configuration({}, upstreams={"reports": pinned}, **sections)


def later(go_on: asyncio.Event, reply: Reply) -> Reply:
    """A reply that waits for an event first."""

    async def reply_later(turn: Turn) -> web.StreamResponse:
        await go_on.wait()
        return await reply(turn)

    return reply_later


@pytest.fixture
async def modern() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer("modern") as server:
        yield server


@pytest.fixture
async def patient(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway that gives every call an hour until it becomes a task."""
    async with serve(configuration({"reports": server.url}, tasks=NEVER)) as gateway:
        yield gateway


async def answered(host: Host, tool: str, result: dict[str, Any], **answers: Any) -> Answer:
    """The call again with answers to what its result asks."""
    state = {"requestState": result["requestState"]} if "requestState" in result else {}
    return await host.call(tool, inputResponses=answers, **state)


@covers("M-CREATE-4")
async def test_a_call_whose_server_asks_is_a_task_at_once_and_the_question_its_input(
    server: ScriptedServer, patient: Gateway
) -> None:
    server.script["report"] = tool = TalkingTool()
    host = patient.modern(capabilities=ASKABLE)
    starting = asyncio.create_task(host.start("report"))
    await tool.ask("q-1")
    async with bounded():
        task = (await starting)["taskId"]
    waiting = await host.until(task, "input_required")
    ((key, asked),) = waiting["inputRequests"].items()
    assert (asked["method"], asked["params"]["message"]) == (ELICIT, FORM["message"])
    await host.update(task, {key: ACCEPTED})
    assert (await tool.told("q-1"))["result"] == ACCEPTED
    await tool.finish(DONE)
    assert (await host.until(task, "completed"))["result"]["content"] == DONE["content"]


@covers("M-CREATE-4", "R-RES-6")
async def test_a_call_whose_server_asks_and_that_cannot_become_a_task_asks_its_host(server: ScriptedServer) -> None:
    server.script["report"], server.script["echo"] = Hold(), TalkingTool()
    tool = server.script["echo"]
    assert isinstance(tool, TalkingTool)
    limits = {"concurrency": {"tasks_per_context": 1}}
    async with serve(configuration({"reports": server.url}, tasks=AT_ONCE, limits=limits)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        await host.start("report")
        tool.begun.set()
        await tool.ask("q-1")
        result = (await host.call("echo")).result
        assert result["resultType"] == "input_required"
        await tool.finish(DONE)
        (key,) = result["inputRequests"]
        assert (await answered(host, "echo", result, **{key: ACCEPTED})).result["content"] == DONE["content"]


@covers("M-CREATE-4", "M-MRTR-8")
async def test_a_round_of_a_server_comes_before_the_task_of_its_call(modern: ScriptedServer) -> None:
    hold, rounds = Hold(), Rounds(ROUND)

    async def asks_and_dawdles(turn: Any) -> Any:
        return await (hold if "requestState" in turn.message["params"] else rounds)(turn)

    modern.script["echo"] = asks_and_dawdles
    async with serve(before(modern, tasks={"inline_grace": "1s"})) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        result = (await host.call("echo")).result
        assert (result["resultType"], list(result["inputRequests"])) == ("input_required", ["a"])
        task = (await answered(host, "echo", result, a=ACCEPTED)).result
        assert task["resultType"] == "task"
        hold.release(DONE)
        await host.until(task["taskId"], "completed")
        brought = modern.heard("tools/call")[1]["params"]
        assert (brought["requestState"], brought["inputResponses"]) == ("s", {"a": ACCEPTED})


@covers("M-CREATE-4", "M-MRTR-8")
async def test_a_round_of_a_server_after_that_is_an_input_of_the_task(modern: ScriptedServer) -> None:
    asks = asyncio.Event()
    rounds = Rounds(ROUND, answer=DONE)

    modern.script["echo"] = later(asks, rounds)
    async with serve(before(modern, tasks=AT_ONCE)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        task = await host.start("echo")
        asks.set()
        waiting = await host.until(task["taskId"], "input_required")
        await host.update(task["taskId"], dict.fromkeys(waiting["inputRequests"], ACCEPTED))
        ended = await host.until(task["taskId"], "completed")
        assert ended["result"]["content"] == DONE["content"]
        assert (rounds.states, rounds.answers) == (["s"], [{"a": ACCEPTED}])


@covers("M-CREATE-4", "M-MRTR-8")
async def test_a_round_that_comes_while_the_task_is_being_stored_is_an_input_of_it(modern: ScriptedServer) -> None:
    asks = asyncio.Event()
    rounds = Rounds(ROUND, answer=DONE)

    modern.script["echo"] = later(asks, rounds)
    store = HoldingStore(await open_store("memory", None))
    environment = Environment(store=store)  # type: ignore[arg-type]
    async with serve(before(modern, tasks=AT_ONCE), environment) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        with store.holding("insert") as inserting:
            starting = asyncio.create_task(host.start("echo"))
            async with bounded():
                await inserting.wait()
            asks.set()
            async with bounded():
                while not rounds.turns:
                    await asyncio.sleep(0)
            # Another call, there and back: the round is here by then.
            await gateway.modern(tasks=False).ask("tools/list")
        async with bounded():
            task = (await starting)["taskId"]
        waiting = await host.until(task, "input_required")
        await host.update(task, dict.fromkeys(waiting["inputRequests"], ACCEPTED))
        assert (await host.until(task, "completed"))["result"]["content"] == DONE["content"]


@covers("M-CREATE-4", "R-RES-6")
async def test_a_round_of_a_call_that_could_not_become_a_task_goes_to_the_host(modern: ScriptedServer) -> None:
    asks, dawdles = asyncio.Event(), Hold()
    rounds = Rounds(ROUND, answer=DONE)

    modern.script["echo"], modern.script["report"] = later(asks, rounds), dawdles
    modern.tools.append({"name": "report", "inputSchema": {"type": "object"}})
    limits = {"concurrency": {"tasks_per_context": 1}}
    async with serve(before(modern, tasks=AT_ONCE, limits=limits)) as gateway:
        host = gateway.modern(capabilities=ASKABLE)
        await host.start("report")
        calling = asyncio.create_task(host.call("echo"))
        async with bounded():
            while await gateway.count("taskgate_tool_calls_total", tool="echo", disposition="direct") != 1:
                await asyncio.sleep(0)
        asks.set()
        async with bounded():
            result = (await calling).result
        assert list(result["inputRequests"]) == ["a"]
        assert (await answered(host, "echo", result, a=ACCEPTED)).result["content"] == DONE["content"]
        assert rounds.states == ["s"]
