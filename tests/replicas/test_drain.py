"""A replica that drains: what others can go on with it lets go of, what it alone can finish it finishes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import serve_replicas
from helpers.host.host import Host
from helpers.host.wire import asked, got
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.shared_store import SharedServer
from helpers.waiting import bounded
from interaction.questions import DONE, capable
from interaction.resumption import call_stream, heard, last_id

Two = Callable[[str], AbstractAsyncContextManager[list[Gateway]]]


@pytest.fixture
def two(server: ScriptedServer, valkey_server: SharedServer, tmp_path: Path) -> Two:
    """Two gateways whose drain has so much time; their server does one thing at once for each of them."""

    @asynccontextmanager
    async def opened(timeout: str) -> AsyncIterator[list[Gateway]]:
        listener = {"listen": "127.0.0.1:0", "drain": {"delay": "0s", "timeout": timeout}}
        upstreams = {"reports": {"path": "/reports/mcp", "url": server.url, "concurrency": 1}}
        options = valkey_server.options()
        async with serve_replicas(2, {}, options, tmp_path, server=listener, upstreams=upstreams) as gateways:
            yield gateways

    return opened


async def test_a_wait_for_a_task_of_another_replica_goes_on_there_and_the_drain_does_not_wait_for_it(
    two: Two, tool: TalkingTool
) -> None:
    async with two("1h") as (runs, waits):
        host = await capable(runs)
        task = {"taskId": (await host.start("report"))["taskId"]}
        async with asked(waits.again(host), "tasks/result", task) as wire:
            await wire.next()
            async with bounded():
                await waits.drain()
            await wire.to_end()
            assert (wire.seen[-1].retry, wire.broke) == ("1000", False)
        async with got(host, last_id(wire)) as again:
            await tool.finish(DONE)
            await again.to_end()
        assert heard(again)[0]["content"] == DONE["content"]


async def test_its_own_task_is_waited_for_by_all_who_wait_for_it(two: Two, tool: TalkingTool) -> None:
    async with two("1h") as (runs, waits):
        host = await capable(runs)
        task = {"taskId": (await host.start("report"))["taskId"]}
        async with asked(host, "tasks/result", task) as here, asked(waits.again(host), "tasks/result", task) as there:
            await here.next()
            await there.next()
            drain = asyncio.create_task(runs.drain())
            await tool.finish(DONE)
            for wire in (here, there):
                await wire.to_end()
                assert heard(wire)[0]["content"] == DONE["content"]
            async with bounded():
                await drain


async def test_streams_that_only_tell_end_at_once_and_a_call_goes_on_to_its_end(two: Two, tool: TalkingTool) -> None:
    """The hosts of the one come back elsewhere while the other has nowhere else to go."""
    async with two("1h") as (drains, other):
        host = await drains.greeted()
        modern = Host(drains.http, drains.url(), era="modern")
        task = (await host.start("echo"))["taskId"]
        async with call_stream(host) as call, got(host) as get, modern.listen(taskIds=[task]) as listening:
            await get.next()
            await listening.until("notifications/subscriptions/acknowledged")
            drain = asyncio.create_task(drains.drain())
            assert (await get.to_end())[-1].retry == "1000"
            await listening.end()
            async with got(other.again(host), last_id(get)) as again:
                assert await again.next() is not None
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection(*drains.address)
                assert (await other.again(host).ask("ping")).result == {}
                assert not drain.done()
                await tool.finish(DONE)
                await call.to_end()
                assert heard(call)[0]["content"] == DONE["content"]
                async with bounded():
                    await drain


async def test_what_cannot_be_moved_and_outlasts_the_drain_ends_as_decided_and_is_counted(
    two: Two, server: ScriptedServer
) -> None:
    server.script["report"] = server.script["broken"] = hold = Hold()
    async with two("500ms") as (drains, other):
        host = await capable(drains)
        task = (await host.start("report"))["taskId"]
        async with bounded():
            await hold.begun.wait()
            await drains.drain()
        there = other.again(host)
        assert (await there.task(task))["status"] == "failed"
        told = (await there.ask("tasks/result", {"taskId": task})).error
        assert told["data"] == {"origin": "gateway", "reason": "shutdown", "dispatched": True}
        assert await drains.count("taskgate_tasks_finished_total", reason="shutdown") == 1
        assert await other.count("taskgate_tasks_finished_total", reason="shutdown") == 0
