"""Hosts on the official SDK that start at once, of one caller and with the limits as shipped: none is refused."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.server import ScriptedServer
from helpers.waiting import bounded

pytestmark = [pytest.mark.interop, pytest.mark.alone]

SERVERS = "abcde"
Refusals = Counter[str]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """A server with one tool, which answers with its arguments."""
    async with ScriptedServer() as server:
        server.tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
        yield server


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway with five servers and the limits as shipped, where all hosts are one caller."""
    config = configuration(dict.fromkeys(SERVERS, server.url))
    config = config.model_copy(update={"limits": type(config.limits)()})
    async with serve(config, Environment()) as gateway:
        yield gateway


async def asked(refusals: Refusals, what: str, ask: Callable[[], Awaitable[Any]]) -> None:
    """Ask for something, and count a refusal of the gateway."""
    try:
        await ask()
    except McpError as error:
        if error.error.code == 429:
            refusals[what] += 1


async def started(url: str, ends: AsyncExitStack, refusals: Refusals) -> ClientSession:
    """A host that has initialized, asked for four lists, and listens on its stream as the SDK does."""
    incoming, outgoing, _ = await ends.enter_async_context(streamable_http_client(url, terminate_on_close=False))
    host = await ends.enter_async_context(ClientSession(incoming, outgoing))
    await host.initialize()
    # The scripted server has tools alone; every list counts the same.
    for _ in range(4):
        await asked(refusals, "list_tools", host.list_tools)
    return host


async def test_four_windows_with_five_servers_and_then_agents_that_call_in_parallel(gateway: Gateway) -> None:
    refusals: Refusals = Counter()

    async def host(mount: str, calls: int) -> None:
        async with AsyncExitStack() as ends:
            session = await started(gateway.url(mount), ends, refusals)
            await arrived.wait()
            asked = (session.call_tool("echo", {"n": number}) for number in range(calls))
            for result in await asyncio.gather(*asked, return_exceptions=True):
                refusals["call_tool"] += isinstance(result, BaseException)

    async with bounded(60):
        arrived = asyncio.Barrier(20)
        # Half of them call: fifty at once are within the burst of sixty, however fast they come.
        await asyncio.gather(*(host(mount, 5 * (window % 2)) for window in range(4) for mount in SERVERS))
    assert +refusals == {}


async def test_forty_hosts_start_at_once_and_none_of_them_ever_ends_its_session(gateway: Gateway) -> None:
    refusals: Refusals = Counter()

    async def host() -> None:
        async with AsyncExitStack() as ends:
            session = await started(gateway.url("a"), ends, refusals)
            assert (await session.call_tool("echo", {"n": 1})).structuredContent == {"n": 1}

    async with bounded(100):
        # Three times forty are more sessions than a caller may have.
        for _ in range(3):
            await asyncio.gather(*(host() for _ in range(40)))
    assert +refusals == {}
    assert await gateway.count("taskgate_sessions_evicted_total") > 0
