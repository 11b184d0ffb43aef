"""A task that failed without its call having left gives its idempotency key back: the next call with it runs."""

from datetime import timedelta
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.host.host import both_eras
from helpers.manual_clock import ManualClock
from helpers.server import ScriptedServer, Turn, resets, result
from helpers.virtual_time import pass_time
from helpers.waiting import bounded, eventually
from interaction.idempotency import KEY, YEAR, calls, start_with_key, upgrade
from interaction.queues import DONE, OneByOne, narrowly


@pytest.fixture
def slow(server: ScriptedServer) -> OneByOne:
    """The tool `report`, which answers when it is let to."""
    server.script["report"] = slow = OneByOne()
    return slow


async def failed(gateway: Gateway, task: str) -> dict[str, Any]:
    """The error that a task failed with."""
    async with bounded():
        found: dict[str, Any] = (await gateway.modern().until(task, "failed"))["error"]
    return found


async def unsent(gateway: Gateway, era: str, slow: OneByOne) -> str:
    """A task of the key k that waited too long for its turn; the server is free again."""
    host = await gateway.greeted(era=era)
    await start_with_key(host, None)
    await slow.comes(1)
    task = await start_with_key(host)
    assert (await failed(gateway, task))["data"]["dispatched"] is False
    slow.let_all_go()
    await eventually(lambda: slow.left == 0)
    return task


@both_eras
async def test_the_same_key_makes_a_new_task_that_runs(server: ScriptedServer, slow: OneByOne, era: str) -> None:
    async with narrowly(server, wait="50ms", tasks=upgrade()) as gateway:
        first = await unsent(gateway, era, slow)
        host = await gateway.greeted(era=era)
        second = await start_with_key(host)
        assert second != first
        await host.until(second, "completed")
        assert await start_with_key(host) == second
        assert len(calls(server)) == 2


async def test_a_plain_call_with_it_runs(server: ScriptedServer, slow: OneByOne) -> None:
    async with narrowly(server, wait="50ms", tasks=upgrade()) as gateway:
        await unsent(gateway, "legacy", slow)
        legacy = await gateway.greeted()
        answer = await legacy.ask("tools/call", {"name": "report", "arguments": YEAR, "_meta": {KEY: "k"}})
        assert answer.result["content"] == DONE["content"]
        assert "_meta" not in answer.result
        assert len(calls(server)) == 2


async def test_so_does_one_of_the_modern_era_without_tasks(server: ScriptedServer, slow: OneByOne) -> None:
    async with narrowly(server, wait="50ms", tasks=upgrade()) as gateway:
        await unsent(gateway, "modern", slow)
        answer = await gateway.modern(tasks=False).call("report", YEAR, meta={KEY: "k"})
        assert answer.result["content"] == DONE["content"]
        assert len(calls(server)) == 2


@both_eras
async def test_a_call_under_an_open_circuit_waits_and_runs_once_with_its_key(server: ScriptedServer, era: str) -> None:
    async def ends(turn: Turn) -> Any:
        # A kept connection that ends at once says nothing of the server.
        await pass_time(1)
        return await resets()(turn)

    server.script["report"] = ends
    breaker = {"failures": 1, "open_for": "20s"}
    section = {"path": "/reports/mcp", "url": server.url, "retries": {"attempts": 1}, "circuit_breaker": breaker}
    config = configuration({}, upstreams={"reports": section}, tasks=upgrade())
    clock = ManualClock()
    async with serve(config, Environment(clock=clock)) as gateway:
        host = await gateway.greeted(era=era)
        sent = await start_with_key(host, "l")
        assert (await failed(gateway, sent))["data"]["dispatched"] is True
        server.script["report"] = result(DONE)
        first = await start_with_key(host)
        clock.advance(timedelta(seconds=10))
        assert "Circuit open" in (await host.task(first))["statusMessage"]
        clock.advance(timedelta(seconds=10))
        assert await start_with_key(host) == first
        await eventually(lambda: len(calls(server)) == 2)
        # What may have run is not made again.
        assert await start_with_key(host, "l") == sent
        assert len(calls(server)) == 2
