"""A real browser before the console of a whole gateway."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser

from console.visitor import WIDE, Visitor
from helpers.chromium import chromium
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.server import ScriptedServer
from interaction.operators import tokens
from taskgate.explain.running import explain_call


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A Chromium of the machine."""
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def server() -> AsyncIterator[ScriptedServer]:
    """A server with the tools `echo` and `report`."""
    async with ScriptedServer() as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report")]
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def other() -> AsyncIterator[ScriptedServer]:
    """Another one."""
    async with ScriptedServer() as other:
        other.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report")]
        yield other


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(server: ScriptedServer, other: ScriptedServer, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway before two servers, with a token of each role."""
    config = configuration({"reports": server.url, "books": other.url}, admin=tokens(tmp_path))
    async with serve(config, source=lambda: config, explain=explain_call) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(browser: Browser, gateway: Gateway) -> AsyncIterator[Visitor]:
    """An operator's browser, not signed in. What the page has thrown or logged as an error fails the test."""
    async with Visitor.of(browser, gateway, WIDE) as visitor:
        yield visitor
