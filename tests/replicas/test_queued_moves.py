"""A replica that drains: what others can go on with it lets go of, what it alone can finish it finishes."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import serve_replicas
from helpers.server import Hold, ScriptedServer
from helpers.shared_store import SharedServer
from helpers.waiting import bounded, eventually
from interaction.questions import capable

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


async def test_a_task_that_still_waits_for_its_turn_is_run_by_another_once(two: Two, server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    async with two("500ms") as (drains, other):
        host = await capable(drains)
        await host.start("report")
        async with bounded():
            await hold.begun.wait()
        waits = (await host.start("echo", {"number": 7}))["taskId"]
        await drains.drain()
        await drains.close()
        there = other.again(host)
        told = await there.ask("tasks/result", {"taskId": waits})
        assert told.result["structuredContent"] == {"number": 7}
        await eventually(lambda: server.heard("tools/call"))
        assert [each["params"]["name"] for each in server.heard("tools/call")].count("echo") == 1
