"""How requests of the modern era end with the gateway: nobody is left without a word, and no drain waits long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from helpers.failing_store import FailingStore, HoldingStore
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, open_store, serve
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.waiting import bounded, eventually, until
from interaction.questions import ACCEPTED, DONE
from interaction.refusals import refused
from requirements import covers

AT_ONCE = {"upgrade": [{"tool": "*", "mode": "always"}]}
NEVER = {"upgrade": [{"tool": "*", "mode": "sync"}]}
CUT_OFF = {"origin": "gateway", "reason": "shutdown", "dispatched": True}


@asynccontextmanager
async def draining(gateway: Gateway) -> AsyncIterator[None]:
    """A gateway that drains from before the block to its end, which has to come."""
    drain = asyncio.create_task(gateway.drain())
    async with bounded():
        while await gateway.ready() != 503:
            pass
        yield
        await drain


async def is_closed(gateway: Gateway) -> bool:
    """Whether nobody can connect any more."""
    try:
        _, writer = await asyncio.open_connection(*gateway.address)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


def slow(server: ScriptedServer, timeout: str = "20s", **sections: Any) -> AbstractAsyncContextManager[Gateway]:
    """A gateway that has so long to drain."""
    drain = {"drain": {"delay": "0s", "timeout": timeout}}
    return serve(configuration({"reports": server.url}, server=drain, **sections))


@covers("M-NOTIF-6")
async def test_a_drain_ends_whoever_listens_with_their_result_and_waits_for_nobody(server: ScriptedServer) -> None:
    server.capabilities = {"tools": {"listChanged": True}}
    async with slow(server) as gateway:
        host = gateway.modern()
        async with host.listen(id="mine", toolsListChanged=True) as stream, bounded():
            await gateway.drain()
            answer = await stream.answer()
    assert answer.result["resultType"] == "complete"
    assert answer.result["_meta"]["io.modelcontextprotocol/subscriptionId"] == "mine"


async def test_a_drain_lets_a_call_end_and_refuses_what_begins_something(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    async with slow(server, tasks=NEVER) as gateway:
        host = gateway.modern()
        async with host.asking("tools/call", {"name": "report", "arguments": {}}) as calling:
            async with bounded():
                await hold.begun.wait()
            async with draining(gateway):
                late = await host.call("report")
                async with host.asking("subscriptions/listen", {"notifications": {"toolsListChanged": True}}) as stream:
                    listening = await stream.answer()
                listed = await host.ask("tools/list")
                hold.release(DONE)
                answer = await calling.answer()
    for answer_ in (late, listening):
        assert refused(answer_, 200, 503)["data"]["reason"] == "draining"
    assert "Retry-After" in late.headers
    assert listed.result["tools"]
    assert answer.result["content"] == DONE["content"]


async def test_a_drain_serves_the_round_that_a_call_waits_for(server: ScriptedServer, tool: TalkingTool) -> None:
    async with slow(server, tasks=NEVER) as gateway:
        host = gateway.modern(capabilities={"elicitation": {}})
        asked = {"name": "report", "arguments": {}}
        async with host.asking("tools/call", asked) as calling:
            await tool.ask("q-1")
            told = (await calling.answer()).result
        [key] = told["inputRequests"]
        async with draining(gateway):
            again = {**asked, "inputResponses": {key: ACCEPTED}, "requestState": told["requestState"]}
            async with host.asking("tools/call", again) as retrying:
                assert (await tool.told("q-1"))["result"] == ACCEPTED
                await tool.finish(DONE)
                answer = await retrying.answer()
    assert answer.result["content"] == DONE["content"]


async def test_a_task_that_ends_in_a_drain_is_fetched_by_the_next_poll(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    async with slow(server, tasks={**AT_ONCE, "poll_interval": {"base": "1s", "adaptive": False}}) as gateway:
        host = gateway.modern()
        task = (await host.start("report"))["taskId"]
        async with bounded():
            await hold.begun.wait()
        async with draining(gateway):
            hold.release(DONE)
            done = await host.until(task, "completed")
    assert done["result"]["content"] == DONE["content"]


async def test_a_call_that_outlives_the_drain_is_told_that_it_may_have_run(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    called = {"name": "report", "arguments": {}}
    async with (
        slow(server, "200ms", tasks=NEVER) as gateway,
        gateway.modern().asking("tools/call", called) as calling,
    ):
        async with bounded():
            await hold.begun.wait()
            await gateway.drain()
        answer = await calling.answer()
    assert refused(answer, 200, -32603)["data"] == CUT_OFF


async def test_a_call_that_could_still_become_a_task_is_not_lost_to_a_drain(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    async with slow(server, tasks={"inline_grace": "200ms"}) as gateway:
        host = gateway.modern()
        async with host.asking("tools/call", {"name": "report", "arguments": {}}) as calling:
            async with bounded():
                await hold.begun.wait()
            async with draining(gateway):
                answer = await calling.answer()
                hold.release(DONE)
        assert await gateway.counts("taskgate_tasks_finished_total", "status") == {"completed": 1}
    assert answer.result["resultType"] == "task"


@pytest.mark.parametrize("tasks", [AT_ONCE, {"inline_grace": "0s"}], ids=["created", "promoted"])
async def test_a_call_whose_server_is_still_being_met_becomes_a_task_that_a_drain_waits_for(
    server: ScriptedServer, tasks: dict[str, Any]
) -> None:
    server.methods["tools/list"] = listing = Hold()
    server.script["report"] = hold = Hold()
    async with slow(server, tasks=tasks) as gateway:
        async with gateway.modern().asking("tools/call", {"name": "report", "arguments": {}}) as calling:
            async with bounded():
                await listing.begun.wait()
            async with draining(gateway):
                listing.release({"tools": server.tools})
                async with bounded():
                    await hold.begun.wait()
                answer = await calling.answer()
                hold.release(DONE)
        assert await gateway.counts("taskgate_tasks_finished_total", "status") == {"completed": 1}
    assert answer.result["resultType"] == "task"


@pytest.mark.real_time
async def test_a_call_that_its_store_refuses_after_the_end_of_the_drain_is_told_that_it_may_have_run(
    server: ScriptedServer,
) -> None:
    server.script["report"] = Hold()
    failing = FailingStore(await open_store("memory", None))
    failing.failing = {"insert"}
    store = HoldingStore(failing)
    drain = {"drain": {"delay": "0s", "timeout": "50ms"}}
    config = configuration({"reports": server.url}, server=drain, tasks={"inline_grace": "0s"})
    async with serve(config, Environment(store=store)) as gateway:
        with store.holding("insert") as storing:
            calling = asyncio.create_task(gateway.modern().call("report"))
            async with bounded():
                await storing.wait()
            ending = asyncio.create_task(gateway.drain())
            # The drain waits no longer.
            await until(lambda: is_closed(gateway))
        async with bounded(1):
            answer = await calling
        await ending
    assert refused(answer, 200, -32603)["data"] == CUT_OFF


@pytest.mark.real_time
async def test_a_task_that_was_still_being_made_when_calls_were_ended_is_settled_with_the_drain(
    server: ScriptedServer,
) -> None:
    server.script["report"] = Hold()
    memory = await open_store("memory", None)
    store = HoldingStore(memory)
    drain = {"drain": {"delay": "0s", "timeout": "50ms"}}
    config = configuration({"reports": server.url}, server=drain, tasks=AT_ONCE)
    async with serve(config, Environment(store=store)) as gateway:
        with store.holding("insert") as storing:
            calling = asyncio.create_task(gateway.modern().call("report"))
            async with bounded():
                await storing.wait()
            ending = asyncio.create_task(gateway.drain())
            # The drain waits no longer.
            await until(lambda: is_closed(gateway))
            # Its end is written after all else that the drain waits for.
            settling = store.holding("swap")
            settling.__enter__()
            asyncio.get_running_loop().call_later(0.3, settling.__exit__, None, None, None)
        async with bounded():
            await asyncio.gather(calling, return_exceptions=True)
            await ending
        tasks = (await memory.census()).tasks
    assert (tasks.get("working", 0), sum(tasks.values())) == (0, 1)


@covers("M-UPD-1")
async def test_a_task_that_waits_for_an_answer_gets_it_during_a_drain(
    server: ScriptedServer, tool: TalkingTool
) -> None:
    async with slow(server, tasks=AT_ONCE) as gateway:
        host = gateway.modern(capabilities={"elicitation": {}})
        task = await host.start("report")
        await tool.ask("q-1")
        [key] = (await host.until(task["taskId"], "input_required"))["inputRequests"]
        async with draining(gateway):
            answer = await host.update(task["taskId"], {key: ACCEPTED})
            assert answer.result["resultType"] == "complete"
            assert (await tool.told("q-1"))["result"] == ACCEPTED
            await tool.finish(DONE)


async def test_a_call_that_waits_for_its_host_at_the_end_is_refused_at_its_server(
    server: ScriptedServer, tool: TalkingTool
) -> None:
    async with slow(server, "100ms", tasks=NEVER) as gateway:
        host = gateway.modern(capabilities={"elicitation": {}})
        async with host.asking("tools/call", {"name": "report", "arguments": {}}) as calling:
            await tool.ask("q-1")
            assert (await calling.answer()).result["resultType"] == "input_required"
        async with bounded():
            await gateway.drain()
            reply = await tool.told("q-1")
        assert "error" in reply or reply["result"]["action"] == "cancel"
        await eventually(lambda: server.cancelled == [tool.called.message["id"]])
