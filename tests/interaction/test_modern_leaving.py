"""Hosts of the modern era that leave while their call becomes a task: who never had the handle has cancelled it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from helpers.failing_store import HoldingStore
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, Store, open_store, serve
from helpers.host.host import Host, called
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded, eventually
from interaction.questions import DONE
from requirements import covers

ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}
AT_ONCE = {"inline_grace": "0s"}
CALL = called("report")


@pytest.fixture
async def memory() -> Store:
    """What is stored."""
    return await open_store("memory", None)


@pytest.fixture
async def store(memory: Store) -> HoldingStore:
    """The same, whose operations can be held up."""
    return HoldingStore(memory)


@asynccontextmanager
async def opened(server: ScriptedServer, store: Any, tasks: dict[str, Any]) -> AsyncIterator[Gateway]:
    """A gateway with that store."""
    async with serve(configuration({"reports": server.url}, tasks=tasks), Environment(store=store)) as gateway:
        yield gateway


async def statuses(store: Store) -> dict[str, int]:
    """How many tasks are stored, by their status."""
    return {str(status): count for status, count in (await store.census()).tasks.items() if count}


async def until(store: Store, wanted: dict[str, int]) -> None:
    """Wait until there are these tasks and no others."""
    async with bounded():
        while await statuses(store) != wanted:
            await asyncio.sleep(0)


async def heard_of(host: Host) -> None:
    """The host is answered something else, so what became of its connections before is known."""
    await host.ask("tasks/get", {"taskId": "A" * 32})


@covers("H-MOD-9")
@pytest.mark.parametrize("tasks", [ALWAYS, AT_ONCE], ids=["created", "promoted"])
async def test_a_host_that_leaves_while_its_task_is_stored_leaves_a_task_that_is_cancelled(
    server: ScriptedServer, store: HoldingStore, memory: Store, tasks: dict[str, Any]
) -> None:
    server.script["report"] = hold = Hold()
    async with opened(server, store, tasks) as gateway:
        host = gateway.modern()
        with store.holding("insert") as storing:
            async with host.asking("tools/call", CALL) as asked:
                async with bounded():
                    await storing.wait()
                await asked.leave()
            await heard_of(host)
        await until(memory, {"cancelled": 1})
        await gateway.shows("taskgate_tasks_running", 0)
        await eventually(lambda: server.cancelled == [turn.id for turn in hold.turns])
        assert await gateway.count("taskgate_tasks_finished_total", status="cancelled", reason="client") == 1


@covers("H-MOD-9")
@pytest.mark.parametrize("tasks", [ALWAYS, AT_ONCE], ids=["created", "promoted"])
async def test_a_host_that_leaves_between_its_task_and_the_handle_leaves_a_task_that_is_cancelled(
    server: ScriptedServer, store: HoldingStore, memory: Store, tasks: dict[str, Any]
) -> None:
    server.script["report"] = hold = Hold()
    async with opened(server, store, tasks) as gateway:
        host = gateway.modern()
        with store.holding("insert", when_done=True) as stored:
            async with host.asking("tools/call", CALL) as asked:
                async with bounded():
                    await stored.wait()
                await asked.leave()
            await heard_of(host)
            assert await statuses(memory) == {"working": 1}
        await until(memory, {"cancelled": 1})
        await eventually(lambda: server.cancelled == [turn.id for turn in hold.turns])
        assert await gateway.count("taskgate_tasks_finished_total", status="cancelled", reason="client") == 1


@covers("H-MOD-9")
@pytest.mark.parametrize("tasks", [ALWAYS, AT_ONCE], ids=["created", "promoted"])
@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "text/event-stream"])
async def test_a_host_that_leaves_with_its_handle_leaves_a_task_that_goes_on(
    server: ScriptedServer, memory: Store, tasks: dict[str, Any], accept: str
) -> None:
    server.script["report"] = hold = Hold()
    async with opened(server, memory, tasks) as gateway:
        host = gateway.modern()
        async with host.asking("tools/call", CALL, headers={"Accept": accept}) as asked:
            task = (await asked.answer()).result
            await asked.leave()
        await heard_of(host)
        async with bounded():
            await hold.begun.wait()
        hold.release(DONE)
        assert (await host.until(task["taskId"], "completed"))["result"]["content"] == DONE["content"]
    assert server.cancelled == []
