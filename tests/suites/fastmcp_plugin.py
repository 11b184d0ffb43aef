"""A plugin of pytest for the tests of `fastmcp`: its hosts reach its servers over sockets, not in memory.

It runs in the suite's environment. Each connection has a server of its own, at `/N/mcp` of the socket SUITE_SOCKET, and
a host that connects to `/N/mcp` below the URL SUITE_URL. SUITE_OUTCOMES names the file for the outcome of each row.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastmcp.client.transports import FastMCPTransport, StreamableHttpTransport
from fastmcp.server.server import FastMCP

listener = socket.socket(fileno=int(os.environ["SUITE_SOCKET"]))
numbers = count()
apps: dict[str, Any] = {}
servers: list[uvicorn.Server] = []
outcomes: dict[str, str | None] = {}
in_memory = FastMCPTransport.connect_session


async def dispatch(scope: Any, receive: Any, send: Any) -> None:
    """Give a request to the application at its path."""
    await apps[scope["path"]](scope, receive, send)


@asynccontextmanager
async def serving(path: str, app: Any) -> AsyncIterator[None]:
    """An application on the socket, beside others. The first one of a test starts a server, the last one ends it."""
    apps[path] = app
    if len(apps) == 1:
        config = uvicorn.Config(dispatch, lifespan="off", log_config=None)
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener.dup()])
        servers.append(server)
    try:
        yield
    finally:
        del apps[path]
        if not apps:
            await stop(servers.pop())


async def stop(server: uvicorn.Server) -> None:
    """End a server with its connections, without the wait of its own loop."""
    for each in server.servers:
        each.close()
    running = [*server.server_state.tasks]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    for connection in [*server.server_state.connections]:
        connection.shutdown()


@asynccontextmanager
async def connect(self: FastMCPTransport, **options: Any) -> AsyncIterator[Any]:
    """A session of a host of the suite with a server of it."""
    if not isinstance(self.server, FastMCP):
        async with in_memory(self, **options) as session:
            yield session
        return
    path = f"/{next(numbers)}/mcp"
    app = self.server.http_app(path=path, host_origin_protection=False)
    url = os.environ["SUITE_URL"] + path
    host = StreamableHttpTransport(url)
    async with app.router.lifespan_context(app), serving(path, app), host.connect_session(**options) as session:
        yield session


def pytest_configure() -> None:
    """Put `connect` in the place of the transport in memory."""
    FastMCPTransport.connect_session = connect


def keep_outcome(report: pytest.TestReport) -> None:
    """Keep the first failure of a row."""
    if report.failed or report.when == "call":
        outcomes[report.nodeid] = outcomes.get(report.nodeid) or (report.longreprtext if report.failed else None)


pytest_runtest_logreport = keep_outcome


def pytest_sessionfinish() -> None:
    """Write all outcomes."""
    Path(os.environ["SUITE_OUTCOMES"]).write_text(json.dumps(outcomes))
    listener.close()
