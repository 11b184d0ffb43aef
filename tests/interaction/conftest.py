"""A scripted server and the whole gateway in front of it."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from helpers import schema
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.manual_clock import ManualClock
from helpers.server import ScriptedServer, TalkingTool, result
from helpers.token_issuer import TokenIssuer
from helpers.told import Told
from interaction.queues import OneByOne
from interaction.rate_limits import Opens, limited, limited_by_token, present

__all__ = ["Told", "gateway", "host", "issuer", "other", "server"]


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
                wants_task = "tasks" in server.capabilities and "task" in request.message.get("params", {})
                schema.check_client_message(request.message, wants_task=wants_task)


@pytest.fixture
async def other() -> AsyncIterator[ScriptedServer]:
    """A second server, whose `echo` says so."""
    async with ScriptedServer() as other:
        other.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report")]
        other.script["echo"] = result({"content": [], "structuredContent": {"from": "the other"}})
        yield other


@pytest.fixture
def tool(server: ScriptedServer) -> TalkingTool:
    """The tool `report`, which talks."""
    server.script["report"] = tool = TalkingTool()
    return tool


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway with default rules, in memory."""
    async with serve(configuration({"reports": server.url})) as gateway:
        yield gateway


@pytest.fixture
async def host(gateway: Gateway) -> Host:
    """A host of 2025-11-25 with an open session."""
    return await gateway.greeted()


@pytest.fixture
def issuer(tmp_path: Path) -> TokenIssuer:
    """An issuer whose keys are in a file."""
    return TokenIssuer(tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the gateways that `opens` and `opens_guarded` open."""
    return present()


@pytest.fixture
def opens(server: ScriptedServer, clock: ManualClock) -> Opens:
    """Opens a gateway with the rates that it is given."""
    return partial(limited, server, clock)


@pytest.fixture
def opens_guarded(server: ScriptedServer, issuer: TokenIssuer, clock: ManualClock) -> Opens:
    """The same, where callers are known by their tokens."""
    return partial(limited_by_token, server, issuer, clock)


@pytest.fixture
def slow(server: ScriptedServer) -> OneByOne:
    """The tool `report`, which answers when it is let to."""
    server.script["report"] = slow = OneByOne()
    return slow
