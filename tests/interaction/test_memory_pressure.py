"""A gateway that is short of memory: what it refuses, in what words, and what it serves to the end."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, MemoryPressure, serve
from helpers.server import Hold, ScriptedServer
from helpers.waiting import eventually


class Memory:
    """What the process uses, of 1,000 bytes."""

    def __init__(self) -> None:
        self.used = 0
        self.pressure = MemoryPressure(limit=1000, resident=lambda: self.used)

    async def at(self, used: int, level: int) -> None:
        """Use so much, and wait until the gateway has seen it."""
        self.used = used
        await eventually(lambda: self.pressure.level == level)


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server


@pytest.fixture
async def gateway(server: ScriptedServer, memory: Memory, tmp_path: Path) -> AsyncIterator[Gateway]:
    config = configuration({"reports": server.url}, folder=tmp_path)
    async with serve(config, Environment(pressure=memory.pressure), data_directory=tmp_path) as gateway:
        yield gateway


async def test_new_calls_are_refused_first_and_what_is_about_tasks_is_served_to_the_end(
    gateway: Gateway, server: ScriptedServer, memory: Memory
) -> None:
    server.script["echo"] = hold = Hold()
    host = await gateway.greeted()
    task = (await host.start("echo"))["taskId"]
    await memory.at(800, 1)
    before = len(server.requests)
    for answer in (await host.call("echo"), await host.call("echo", task={}), await host.ask("resources/read")):
        assert (answer.status, answer.code, answer.headers["Retry-After"]) == (200, 503, "2")
        assert answer.error["data"] == {"origin": "gateway", "reason": "overload", "retryAfterMs": 2000}
    assert len(server.requests) == before
    assert (await host.ask("tools/list")).result
    await memory.at(900, 2)
    assert (await host.ask("tools/list")).code == 503
    assert (await host.task(task))["status"] == "working"
    assert (await host.ask("tasks/cancel", {"taskId": task})).result["status"] == "cancelled"
    await memory.at(700, 0)
    hold.release({"content": []})
    assert (await host.call("echo")).result == {"content": []}


async def test_hosts_of_the_other_era_are_told_the_same(
    gateway: Gateway, server: ScriptedServer, memory: Memory
) -> None:
    await memory.at(800, 1)
    answer = await gateway.modern().ask("tools/call", {"name": "echo", "arguments": {}})
    assert (answer.status, answer.code, answer.error["data"]["reason"]) == (200, 503, "overload")
    assert server.heard("tools/call") == []
