"""A plugin of pytest for the tests of FastMCP's proxy: taskgate has its place, between the same hosts and servers.

It runs in the suite's environment. The server behind a proxy is at `/N/mcp` of the socket SUITE_SOCKET, and a host of
the proxy connects to `/N/mcp` below the URL SUITE_URL. SUITE_OUTCOMES names the file for the outcome of each row that
connects a host so; the other tests look into FastMCP itself.
"""

import asyncio
import inspect
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import FastMCPTransport, StreamableHttpTransport
from fastmcp.server.providers.proxy import FastMCPProxy, ProxyProvider
from fastmcp.server.server import FastMCP
from fastmcp_plugin import in_memory, keep_outcome, listener, numbers, outcomes, serving

LISTS = ("list_tools", "list_resources", "list_resource_templates", "list_prompts")
"""What a proxy lists for a program: it asks its server, as a host of it does."""


class Places:
    """The servers that have a path now, with the number of their hosts: all hosts of one share its path."""

    def __init__(self) -> None:
        self._urls: dict[int, asyncio.Future[str]] = {}
        self._hosts: dict[int, int] = {}

    @asynccontextmanager
    async def of(self, server: FastMCP) -> AsyncIterator[str]:
        """The URL of a server for its hosts, through taskgate if that is in between."""
        key = id(server)
        is_first = key not in self._urls
        self._hosts[key] = self._hosts.get(key, 0) + 1
        async with AsyncExitStack() as place:
            if is_first:
                self._urls[key] = asyncio.get_running_loop().create_future()
                path = f"/{next(numbers)}/mcp"
                app = server.http_app(path=path, host_origin_protection=False)
                await place.enter_async_context(app.router.lifespan_context(app))
                await place.enter_async_context(serving(path, app))
                self._urls[key].set_result(os.environ["SUITE_URL"] + path)
            try:
                yield await self._urls[key]
            finally:
                self._hosts[key] -= 1
                while is_first and self._hosts[key]:
                    await asyncio.sleep(0.01)
                if is_first:
                    del self._urls[key]


places = Places()
rows: set[str] = set()
running: list[str] = []
"""The row that runs now."""


async def server_behind(proxy: Any) -> FastMCP | None:
    """The server that a proxy asks in memory; None for anything else."""
    providers = [getattr(each, "_inner", each) for each in proxy.providers] if isinstance(proxy, FastMCP) else []
    found = [each for each in providers if isinstance(each, ProxyProvider)]
    if len(found) != 1:
        return None
    make = found[0].client_factory
    owner = getattr(make, "__self__", None)
    client = owner if isinstance(owner, Client) else make()
    transport = (await client if inspect.isawaitable(client) else client).transport
    transport = getattr(transport, "transport", transport)
    server = getattr(transport, "server", None)
    return server if isinstance(server, FastMCP) else None


@asynccontextmanager
async def connect(self: FastMCPTransport, **options: Any) -> AsyncIterator[Any]:
    """A session of a host with the server behind its proxy, or with its server."""
    server = await server_behind(self.server)
    if server is None:
        async with in_memory(self, **options) as session:
            yield session
        return
    rows.update(running)
    async with places.of(server) as url, StreamableHttpTransport(url).connect_session(**options) as session:
        yield session


def listed_by_a_host(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """What a host of the proxy gets from that method of its client; without a server in memory, what there was."""
    lists = getattr(FastMCPProxy, name)

    async def method(self: FastMCPProxy, **options: Any) -> Any:
        if await server_behind(self) is None:
            return await lists(self, **options)
        async with Client(self) as client:
            return await getattr(client, name)()

    return method


def pytest_configure() -> None:
    """Put taskgate in the place of the proxy."""
    FastMCPTransport.connect_session = connect
    for name in LISTS:
        setattr(FastMCPProxy, name, listed_by_a_host(name))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note which row its fixtures belong to."""
    running[:] = [item.nodeid]


pytest_runtest_logreport = keep_outcome


def pytest_sessionfinish() -> None:
    """Write the outcomes of all rows that connected a host."""
    found = {name: outcomes.get(name) for name in sorted(rows)}
    Path(os.environ["SUITE_OUTCOMES"]).write_text(json.dumps(found))
    listener.close()
