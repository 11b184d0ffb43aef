"""A plugin of pytest for the interaction suite of `mcp`: its hosts reach its servers over sockets.

It runs in the suite's environment. Each connection has a server of its own, at `/N/mcp` of the socket SUITE_SOCKET, and
a host that connects to `/N/mcp` below the URL SUITE_URL. SUITE_OUTCOMES names the file for the outcome of each row.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS

ANY_HOST = TransportSecuritySettings(enable_dns_rebinding_protection=False)
TIMEOUT = httpx2.Timeout(30, read=300)
"""What the SDK gives the HTTP client that it makes itself."""
listener = socket.socket(fileno=int(os.environ["SUITE_SOCKET"]))
numbers = count()
outcomes: dict[str, str | None] = {}


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[None]:
    """An application on the socket, on uvicorn: its own loop would end a test a tenth of a second late."""
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener.dup()])
    try:
        yield
    finally:
        for each in server.servers:
            each.close()
        running = [*server.server_state.tasks]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for connection in [*server.server_state.connections]:
            connection.shutdown()


@asynccontextmanager
async def connect(
    server: Any, *, stateless_http: bool = False, spec_version: str = LATEST_HANDSHAKE_VERSION, **options: Any
) -> AsyncIterator[Client]:
    """A host of the suite that is connected to a server of it."""
    path = f"/{next(numbers)}/mcp"
    app = server.streamable_http_app(
        streamable_http_path=path, stateless_http=stateless_http, transport_security=ANY_HOST
    )
    mode = spec_version if spec_version in MODERN_PROTOCOL_VERSIONS else "legacy"
    async with (
        server.session_manager.run(),
        serving(app),
        httpx2.AsyncClient(timeout=TIMEOUT, trust_env=False, verify=False) as http,
        Client(streamable_http_client(os.environ["SUITE_URL"] + path, http_client=http), mode=mode, **options) as host,
    ):
        yield host


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop, as the suite has it."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def sockets() -> Iterator[None]:
    """Put `connect` where the suite takes its transports from."""
    from tests.interaction.conftest import _FACTORIES  # noqa: PLC0415

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_FACTORIES, "streamable-http", connect)
        patch.setitem(_FACTORIES, "streamable-http-stateless", partial(connect, stateless_http=True))
        yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the first failure of a row."""
    if report.failed or report.when == "call":
        outcomes[report.nodeid] = outcomes.get(report.nodeid) or (report.longreprtext if report.failed else None)


def pytest_sessionfinish() -> None:
    """Write all outcomes."""
    Path(os.environ["SUITE_OUTCOMES"]).write_text(json.dumps(outcomes))
    listener.close()
