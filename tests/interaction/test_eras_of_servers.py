"""Hosts of the legacy era in front of servers whose era nobody configured: what each of them hears and is sent."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import ScriptedServer
from requirements import covers

HANDSHAKE = ["initialize", "notifications/initialized"]
ARGUMENTS = {"n": 1}
Before = Callable[[ScriptedServer], Awaitable[Gateway]]


@pytest.fixture
async def before() -> AsyncIterator[Before]:
    """Puts a gateway before a server that it knows nothing of."""
    async with AsyncExitStack() as stack:

        async def start(server: ScriptedServer) -> Gateway:
            await stack.enter_async_context(server)
            upstream = {"path": "/reports/mcp", "url": server.url, "protocol_version": "auto"}
            return await stack.enter_async_context(serve(configuration({}, upstreams={"reports": upstream})))

        yield start


def posted(server: ScriptedServer) -> list[str]:
    """The methods of JSON-RPC that reached the server."""
    return [each.message["method"] for each in server.verbs("POST")]


@covers("V-ERA-5")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_a_server_of_an_old_revision_hears_nothing_that_its_revision_does_not_define(
    before: Before, revision: str
) -> None:
    server = ScriptedServer(revision=revision)
    host = await (await before(server)).greeted()
    assert (await host.call("echo", ARGUMENTS)).result["structuredContent"] == ARGUMENTS
    assert posted(server)[:2] == HANDSHAKE
    assert set(posted(server)[2:]) <= {"tools/call", "tools/list"}


async def test_a_server_of_the_newest_revision_is_asked_once_and_used_as_it_was_opened(before: Before) -> None:
    server = ScriptedServer()
    gateway = await before(server)
    for _ in range(2):
        host = await gateway.greeted()
        assert (await host.call("echo", ARGUMENTS)).result["structuredContent"] == ARGUMENTS
    assert len(server.heard("initialize")) == 2
    assert len(server.heard("server/discover")) == 1


async def test_a_server_of_the_modern_era_alone_is_called_in_it(before: Before) -> None:
    server = ScriptedServer("modern")
    gateway = await before(server)
    for _ in range(2):
        host = await gateway.greeted()
        assert (await host.call("echo", ARGUMENTS)).result["structuredContent"] == ARGUMENTS
    assert len(server.heard("initialize")) == 1
    assert server.live == set()
    called = [each for each in server.verbs("POST") if each.message["method"] == "tools/call"]
    assert {each.headers["mcp-protocol-version"] for each in called} == {"2026-07-28"}
    assert server.faults == []
