"""A scripted server and the whole gateway in front of it."""

from collections.abc import AsyncIterator

import pytest

from helpers import schema
from helpers.mcp_host import McpHost
from helpers.scripted_upstream import ScriptedServer
from helpers.whole_gateway import WholeGateway, configuration, running


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """A server with three tools; `echo` and `report` answer with their arguments.

    Whatever it was told is held against the schema at the end.
    """
    async with ScriptedServer() as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report", "broken")]
        yield server
    if schema.available():
        for request in server.requests:
            if isinstance(request.message, dict) and "method" in request.message:
                schema.check_client_message(request.message)


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[WholeGateway]:
    """A gateway with default rules, in memory."""
    async with running(configuration({"reports": server.url})) as gateway:
        yield gateway


@pytest.fixture
async def host(gateway: WholeGateway) -> McpHost:
    """A host of 2025-11-25 with an open session."""
    return await gateway.greeted()
