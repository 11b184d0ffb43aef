"""How long calls of the modern era wait for their hosts, how many do, and who gives them up."""

import asyncio

import aiohttp
import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import ScriptedServer, TalkingTool
from helpers.waiting import bounded, eventually
from interaction.held_calls import CAPABLE, everything, sent_for, through
from interaction.refusals import refused
from requirements import covers

CUT_OFF = {"origin": "gateway", "reason": "shutdown", "dispatched": True}


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


@covers("M-MRTR-7")
async def test_for_a_host_that_never_comes_back_the_server_is_refused_and_the_call_given_up(
    server: ScriptedServer, talking: TalkingTool
) -> None:
    tasks = {"input_required": {"max_wait": "50ms"}}
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        await talking.ask("q-1")
        await sent_for(gateway.modern(capabilities=CAPABLE, tasks=False))
        assert (await talking.told("q-1"))["result"] == {"action": "cancel"}
        await eventually(lambda: server.cancelled == [talking.called.id])


async def test_of_one_caller_only_so_many_calls_wait_at_once(server: ScriptedServer, talking: TalkingTool) -> None:
    server.script["broken"] = other = TalkingTool()
    tasks = {"input_required": {"max_outstanding": 1}}
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = gateway.modern(capabilities=CAPABLE, tasks=False)
        await talking.ask("q-1")
        result = await sent_for(host)
        second = asyncio.create_task(host.call("broken"))
        await other.ask("q-2")
        assert (await other.told("q-2"))["result"] == {"action": "cancel"}
        async with bounded():
            # Nobody answers for the user: the call is not what a tool makes of that, but refused.
            assert refused(await second, 200, 429)["data"] == {
                "origin": "gateway",
                "reason": "concurrency",
                "limit": 1,
                "scope": "context",
                "retryAfterMs": 2000,
            }
        await through(host, result, talking, "q-1")
        # There is room again.
        server.script["report"] = third = TalkingTool()
        third.begun.set()
        await third.ask("q-3")
        await sent_for(host)


@covers("H-MOD-9")
async def test_a_host_that_came_back_and_leaves_has_cancelled_its_call(
    server: ScriptedServer, host: Host, talking: TalkingTool
) -> None:
    await talking.ask("q-1")
    result = await sent_for(host)
    params = {"name": "report", "arguments": {}, "requestState": result["requestState"]}
    async with host.asking("tools/call", {**params, "inputResponses": everything(result)}) as asked:
        await talking.told("q-1")
        await asked.leave()
    await eventually(lambda: server.cancelled == [talking.called.id])


@covers("H-MOD-9")
async def test_the_end_of_the_connection_after_the_question_cancels_nothing(
    server: ScriptedServer, gateway: Gateway, talking: TalkingTool
) -> None:
    await talking.ask("q-1")
    async with aiohttp.ClientSession() as connection:
        result = await sent_for(Host(connection, gateway.url(), capabilities=CAPABLE, tasks=False, era="modern"))
    await through(gateway.modern(capabilities=CAPABLE, tasks=False), result, talking, "q-1")
    assert server.cancelled == []


async def test_a_call_that_waits_when_the_gateway_ends_is_given_up_after_its_server_was_refused(
    server: ScriptedServer, talking: TalkingTool
) -> None:
    drain = {"drain": {"delay": "0s", "timeout": "100ms"}}
    async with serve(configuration({"reports": server.url}, server=drain)) as gateway:
        waiting = asyncio.create_task(gateway.modern(tasks=False).call("broken"))
        server.script["broken"] = silent = TalkingTool()
        await talking.ask("q-1")
        await sent_for(gateway.modern(capabilities=CAPABLE, tasks=False))
        async with bounded():
            await silent.begun.wait()
        await gateway.drain()
        assert (await talking.told("q-1"))["result"] == {"action": "cancel"}
        await eventually(lambda: set(server.cancelled) == {talking.called.id, silent.called.id})
        assert refused(await waiting, 200, -32603)["data"] == CUT_OFF
