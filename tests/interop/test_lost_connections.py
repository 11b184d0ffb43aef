"""Official hosts whose connection breaks in the middle of a call take it up by themselves, and the call returns."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from helpers.cutter import Cutter
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.server import ScriptedServer, TalkingTool, note
from helpers.waiting import bounded, eventually
from interop.hosts import OFFICIAL, PATIENCE, official_host, text_of
from interop.peers import require_peers, told_by

pytestmark = OFFICIAL
DONE = {"content": [{"type": "text", "text": "done after all"}]}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        server.tools = [{"name": "report", "inputSchema": {"type": "object"}}]
        yield server


@pytest.fixture
def tool(server: ScriptedServer) -> TalkingTool:
    server.script["report"] = tool = TalkingTool()
    return tool


@pytest.fixture
async def network() -> AsyncIterator[Cutter]:
    async with Cutter() as network:
        yield network


@pytest.fixture
async def url(server: ScriptedServer, network: Cutter) -> AsyncIterator[str]:
    """Where a gateway is found by way of the network."""
    config = configuration({"reports": server.url}, server={"allowed_hosts": [f"127.0.0.1:{network.port}"]})
    async with serve(config) as gateway:
        network.address = gateway.address
        yield f"http://127.0.0.1:{network.port}/reports/mcp"
        # What hosts hold open would be waited for.
        network.cut()


async def progress(tool: TalkingTool, done: int) -> None:
    await tool.note("notifications/progress", progressToken=tool.called.token, progress=done)


async def test_the_python_sdk_takes_a_call_up_that_breaks_twice_and_misses_nothing(
    server: ScriptedServer, tool: TalkingTool, network: Cutter, url: str
) -> None:
    heard: list[float] = []

    async def hear(done: float, _total: float | None, _message: str | None) -> None:
        heard.append(done)

    async with bounded(3 * PATIENCE), official_host(url, leaves=False) as host:
        calling = asyncio.create_task(host.session.call_tool("report", progress_callback=hear))
        await tool.begun.wait()
        await progress(tool, 1)
        await eventually(lambda: heard == [1])
        network.cut()
        await progress(tool, 2)
        await eventually(lambda: heard == [1, 2])
        network.cut()
        await tool.finish(DONE)
        assert text_of(await calling) == "done after all"
    # When a stream breaks that it has taken up, this release goes back to where it took it up, and hears that again.
    assert heard in ([1, 2], [1, 2, 2])
    assert len(server.heard("tools/call")) == 1
    assert server.cancelled == []


async def test_the_python_sdk_hears_what_was_said_on_its_get_stream_meanwhile(
    server: ScriptedServer, network: Cutter, url: str
) -> None:
    async with bounded(2 * PATIENCE), official_host(url, leaves=False) as host:
        await server.streaming()
        await eventually(lambda: b"id: g1-" in network.passed)
        await server.push(note("notifications/message", level="info", data=1))
        await eventually(lambda: host.logs == [1])
        network.cut()
        await server.push(note("notifications/message", level="info", data=2))
        await eventually(lambda: host.logs == [1, 2])


async def test_the_typescript_sdk_takes_a_broken_call_up_and_misses_nothing(
    server: ScriptedServer, tool: TalkingTool, network: Cutter, url: str
) -> None:
    require_peers()
    calling = asyncio.create_task(told_by("sdk", url, [("report", {})], "--plainly"))
    async with bounded(2 * PATIENCE):
        await tool.begun.wait()
        await progress(tool, 1)
        await eventually(lambda: b'"progress":1' in network.passed or b'"progress": 1' in network.passed)
        network.cut()
        await progress(tool, 2)
        await tool.finish(DONE)
        (told,) = await calling
    assert told["progress"] == [1, 2]
    assert "done after all" in str(told["result"])
    assert len(server.heard("tools/call")) == 1
