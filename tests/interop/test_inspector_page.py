"""The official Inspector, as a page in a browser, shows a call of an unmodified server as a task.

The picture of the README is made here. `make pictures` puts it in its place.
"""

import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from example.processes import UVICORN_LISTENS, running
from playwright.async_api import Page, expect

from helpers.chromium import PATIENCE_MS, chromium, pictures
from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import GatewayProcess, gateway_process
from helpers.ports import free_port
from helpers.waiting import bounded
from interop.peers import HOME, require_peers
from peers import install

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

INSPECTOR: Final = HOME / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
SERVER: Final = Path(__file__).resolve().parents[2] / "example" / "server.py"
REPORT: Final = "Report for Q3: revenue, costs, staff, forecast, summary."
LARGEST: Final = 200_000
"""Bytes of the picture."""


@asynccontextmanager
async def inspector(url: str, folder: Path) -> AsyncIterator[str]:
    """The URL of the page of an Inspector that knows one server; it keeps what it keeps in `folder`."""
    require_peers()
    ports = {name: str(free_port()) for name in ("CLIENT_PORT", "MCP_SANDBOX_PORT", "MCP_APP_ORIGIN_PORT")}
    own = {"HOME": str(folder), "MCP_INSPECTOR_SECRET_STORE": "memory", "MCP_AUTO_OPEN_ENABLED": "false"}
    command = (install.node(), INSPECTOR, "--web", "--transport", "http", "--server-url", url)
    async with running(command, log=folder / "inspector.log", environment={**own, **ports}) as child:
        async with bounded():
            found = await child.said(rb"up and running at:\s+(http://\S+)")
        yield found[1].decode()


async def run_as_task(page: Page) -> None:
    """Connect, and run the slow tool of the example server as a task."""
    await page.get_by_role("switch", name=re.compile("^Connect or disconnect")).click(force=True)
    await page.get_by_text("Tools", exact=True).click()
    await page.get_by_role("button", name="generate_report").click()
    await page.get_by_label("Quarter").first.fill("Q3")
    await page.get_by_label("Seconds").fill("8")
    await page.get_by_label("Run as task").check(force=True)
    await page.get_by_role("button", name="Execute Tool").click()


@asynccontextmanager
async def gateway_before_the_example(folder: Path) -> AsyncIterator[GatewayProcess]:
    """A gateway at whose /reports/mcp the example server is."""
    async with AsyncExitStack() as stack:
        command = (sys.executable, SERVER, "--port", "0")
        server = await stack.enter_async_context(running(command, log=folder / "server.log"))
        async with bounded():
            upstream = (await server.said(UVICORN_LISTENS))[1].decode()
        file = write_configuration(folder, f"{upstream}/mcp")
        yield await stack.enter_async_context(gateway_process(["--config", file], log=folder / "gateway.log"))


async def test_the_page_of_the_inspector_shows_a_slow_call_as_a_task_and_its_result(tmp_path: Path) -> None:
    async with (
        gateway_before_the_example(tmp_path) as gateway,
        inspector(gateway.url(), tmp_path) as address,
        chromium() as browser,
    ):
        page = await browser.new_page(viewport={"width": 1280, "height": 640})
        page.set_default_timeout(PATIENCE_MS)
        await page.goto(address)
        await run_as_task(page)
        await expect(page.get_by_text("2/5", exact=True)).to_be_visible()
        await expect(page.get_by_text("working", exact=True)).to_be_visible()
        picture = pictures(tmp_path) / "inspector-task.png"
        await page.screenshot(path=picture, animations="disabled")
        await expect(page.get_by_text(REPORT, exact=True)).to_be_visible()
        await expect(page.get_by_text("completed", exact=True)).to_be_visible()
        assert 0 < picture.stat().st_size < LARGEST
