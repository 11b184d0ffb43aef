"""A real browser before the console of a whole gateway."""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from console.visitor import PATIENCE_MS, WIDE, Visitor
from helpers.scripted_upstream import ScriptedServer
from helpers.whole_gateway import WholeGateway, configuration, running
from interaction.operating import tokens
from provider.install import nothing_may_be_missing
from taskgate.explain.running import explain_call

expect.set_options(timeout=PATIENCE_MS)
_MISSING = "there is no chromium here (Debian: apt-get install chromium)"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """A Chromium of the machine; the test is skipped where there is none, unless nothing may be missing."""
    program = shutil.which("chromium")
    if program is None:
        (pytest.fail if nothing_may_be_missing() else pytest.skip)(_MISSING)
    # Its sandbox refuses to work for root.
    arguments = ["--disable-dev-shm-usage", "--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def server() -> AsyncIterator[ScriptedServer]:
    """A server with the tools `echo` and `report`."""
    async with ScriptedServer() as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report")]
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def other() -> AsyncIterator[ScriptedServer]:
    """Another one."""
    async with ScriptedServer() as other:
        other.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report")]
        yield other


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(server: ScriptedServer, other: ScriptedServer, tmp_path: Path) -> AsyncIterator[WholeGateway]:
    """A gateway before two servers, with a token of each role."""
    config = configuration({"reports": server.url, "books": other.url}, admin=tokens(tmp_path))
    async with running(config, source=lambda: config, explain=explain_call) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def visitor(browser: Browser, gateway: WholeGateway) -> AsyncIterator[Visitor]:
    """An operator's browser, not signed in. What the page has thrown or logged as an error fails the test."""
    async with Visitor.of(browser, gateway, WIDE) as visitor:
        yield visitor
