"""When a session ends for being idle: never while it is in use, never right after, and others that are go on."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from helpers.failing_store import HoldingStore
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, open_store, serve
from helpers.host.host import Host
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.virtual_time import pass_time
from helpers.waiting import PATIENCE, bounded, eventually

HALF = timedelta(minutes=31)
LONG = HALF * 2
DONE: dict[str, object] = {"content": []}


@pytest.fixture
async def store() -> HoldingStore:
    """A store in memory whose operations can be held up."""
    return HoldingStore(await open_store("memory", None))


@pytest.fixture
async def gateway(server: ScriptedServer, store: HoldingStore, clock: ManualClock) -> AsyncIterator[Gateway]:
    """A gateway that takes an hour for long."""
    around = Environment(store=store, clock=clock)  # type: ignore[arg-type]
    async with serve(configuration({"reports": server.url}), around) as gateway:
        yield gateway


async def sweep(server: ScriptedServer) -> None:
    """Let what happens every half minute happen: an idle session that is there ends."""
    before = set(server.live)
    await pass_time(35)
    assert before - server.live


async def left_alone_by_turns(gateway: Gateway, clock: ManualClock) -> None:
    """Half of an hour, then one more session, then another half: what was there is idle, and that session not yet."""
    clock.advance(HALF)
    await gateway.greeted()
    clock.advance(HALF)


async def test_a_session_that_was_left_alone_for_long_ends_here_and_at_the_server(
    server: ScriptedServer, gateway: Gateway, host: Host, clock: ManualClock
) -> None:
    assert len(server.live) == 1
    clock.advance(LONG)
    await sweep(server)
    assert (await host.ask("ping")).status == 404


async def test_a_session_that_hosts_of_the_modern_era_shared_ends_when_none_came_for_long(
    server: ScriptedServer, gateway: Gateway, clock: ManualClock
) -> None:
    hold = server.script["report"] = Hold()
    host = gateway.modern(tasks=False)
    await gateway.greeted()
    async with host.asking("tools/call", {"name": "report", "arguments": {}}) as calling, bounded():
        await hold.begun.wait()
        await left_alone_by_turns(gateway, clock)
        await sweep(server)
        hold.release(DONE)
        assert (await calling.answer()).status == 200
    clock.advance(HALF)
    await sweep(server)
    assert len(server.live) == 1
    clock.advance(LONG)
    await sweep(server)
    assert (await host.call("echo")).status == 200


async def test_a_call_whose_host_does_not_come_back_is_given_up(
    server: ScriptedServer, gateway: Gateway, clock: ManualClock, tool: TalkingTool
) -> None:
    # M-MRTR-7.
    await gateway.greeted()
    clock.advance(LONG)
    host = gateway.modern(tasks=False, capabilities={"elicitation": {}})
    async with host.asking("tools/call", {"name": "report", "arguments": {}}) as calling, bounded(2 * PATIENCE):
        await tool.ask("q-1")
        assert (await calling.answer()).result["resultType"] == "input_required"
        await sweep(server)
        assert tool.unanswered("q-1")
        clock.advance(LONG)
        await tool.told("q-1")


async def test_a_session_is_not_idle_right_after_a_long_call(
    server: ScriptedServer, gateway: Gateway, host: Host, clock: ManualClock
) -> None:
    hold = server.script["report"] = Hold()
    calling = asyncio.create_task(host.call("report"))
    await gateway.greeted()
    async with bounded():
        await hold.begun.wait()
        await left_alone_by_turns(gateway, clock)
        await sweep(server)
        hold.release(DONE)
        await calling
    clock.advance(HALF)
    await sweep(server)
    assert (await host.ask("ping")).status == 200


async def test_a_session_is_not_idle_right_after_a_poll(server: ScriptedServer, clock: ManualClock) -> None:
    hold = server.script["report"] = Hold()
    config = configuration({"reports": server.url}, server={"session_idle": "10m"})
    async with serve(config, Environment(clock=clock)) as gateway:
        host, other, idle = [await gateway.greeted() for _ in range(3)]
        task = await host.start("report")
        async with bounded():
            await hold.begun.wait()
        clock.advance(timedelta(minutes=8))
        assert (await other.ask("tasks/get", {"taskId": task["taskId"]})).status == 200
        clock.advance(timedelta(minutes=8))
        await sweep(server)
        assert [(await each.ask("ping")).status for each in (other, idle)] == [200, 404]
        hold.release(DONE)


async def test_a_session_is_not_idle_while_it_listens_nor_right_after(
    server: ScriptedServer, gateway: Gateway, host: Host, clock: ManualClock
) -> None:
    await gateway.greeted()
    async with host.listen():
        await left_alone_by_turns(gateway, clock)
        await sweep(server)
    await gateway.shows("taskgate_streams", 0, side="downstream")
    clock.advance(HALF)
    await sweep(server)
    assert (await host.ask("ping")).status == 200


async def test_a_session_that_waits_for_a_result_is_not_idle(server: ScriptedServer, clock: ManualClock) -> None:
    hold = server.script["report"] = Hold()
    config = configuration({"reports": server.url}, server={"session_idle": "10m"})
    async with serve(config, Environment(clock=clock)) as gateway:
        host, other, idle = [await gateway.greeted() for _ in range(3)]
        task = await host.start("report")
        waiting = asyncio.create_task(other.ask("tasks/result", {"taskId": task["taskId"]}))
        async with bounded():
            await hold.begun.wait()
            await gateway.counted("taskgate_streams", side="downstream", kind="response")
        clock.advance(timedelta(minutes=30))
        await sweep(server)
        hold.release(DONE)
        async with bounded():
            await waiting
        assert [(await each.ask("ping")).status for each in (other, idle)] == [200, 404]


async def test_a_session_that_wakes_while_another_is_ended_goes_on(
    server: ScriptedServer, gateway: Gateway, store: HoldingStore, clock: ManualClock
) -> None:
    asleep, awake = await gateway.greeted(), await gateway.greeted()
    clock.advance(LONG)
    with store.holding("drop") as dropping:
        async with bounded():
            await dropping.wait()
        assert (await awake.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    await eventually(lambda: len(server.live) == 1)
    assert (await awake.ask("ping")).status == 200
    assert (await asleep.ask("ping")).status == 404


async def test_a_task_survives_the_end_of_its_session_while_it_is_created(
    server: ScriptedServer, gateway: Gateway, host: Host, store: HoldingStore
) -> None:
    other = await gateway.greeted()
    with store.holding("insert") as inserting:
        creating = asyncio.create_task(host.call("echo", {"a": 1}, task={}))
        async with bounded():
            await inserting.wait()
            assert await host.leave() == 200
    async with bounded():
        task = (await creating).result["task"]
        answer = await other.ask("tasks/result", {"taskId": task["taskId"]})
    assert answer.result["structuredContent"] == {"a": 1}
    await eventually(lambda: len(server.live) == 1)
