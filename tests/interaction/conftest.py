"""A scripted server and the whole gateway in front of it."""

from collections.abc import AsyncIterator

import pytest

from helpers.mcp_host import McpHost
from helpers.scripted_upstream import ScriptedServer
from helpers.whole_gateway import WholeGateway, configuration, running


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """A server with three tools; `echo` and `report` answer with their arguments, `broken` with an error of its own."""
    async with ScriptedServer() as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report", "broken")]
        yield server


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[WholeGateway]:
    """A gateway with default rules, in memory."""
    async with running(configuration({"reports": server.url})) as gateway:
        yield gateway


@pytest.fixture
async def host(gateway: WholeGateway) -> McpHost:
    """A host of 2025-11-25 with an open session."""
    return await gateway.greeted()
