"""The pictures of `docs/console.md`: this test makes them. `make pictures` puts them in their place."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from console.standins import EventStream
from console.visitor import NARROW, Visitor
from helpers.chromium import pictures
from helpers.gateway.gateway import Gateway
from helpers.server import Hold, ScriptedServer, result

pytestmark = pytest.mark.asyncio(loop_scope="session")

LARGEST = 200_000
"""Bytes of a picture."""
DESK = (1200, 640)
TOOLS = ("export_ledger", "quarterly_report", "reconcile", "import_orders")


@pytest_asyncio.fixture(loop_scope="session")
async def day(gateway: Gateway, server: ScriptedServer, other: ScriptedServer) -> Gateway:
    """A gateway with running tasks at one server, ended ones at the other, and a server on hold."""
    for scripted in (server, other):
        scripted.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
    host = await gateway.greeted()
    for name in TOOLS[:3]:
        server.script[name] = Hold()
        await host.start(name)
    other.script["import_orders"] = result({"content": [], "isError": True})
    reader = await gateway.greeted(mount="books")
    for name in ("import_orders", "reconcile"):
        other.script.setdefault(name, result({"content": []}))
        await reader.start(name)
    return gateway


async def of_tasks(visitor: Visitor) -> None:
    """All tasks."""
    await visitor.page.get_by_label("Status").select_option("all")
    await expect(visitor.page.locator("#task-rows tr")).to_have_count(5)


async def of_unfinished_tasks(visitor: Visitor) -> None:
    """Tasks that run."""
    await expect(visitor.page.locator("#task-rows tr")).to_have_count(3)


async def of_one_task(visitor: Visitor) -> None:
    """One task that runs."""
    await visitor.row("export_ledger").locator("th button").click()
    await expect(visitor.page.locator("#task-timeline li")).to_have_count(1)


async def of_servers(visitor: Visitor) -> None:
    """Servers, of which one is on hold."""
    await visitor.go("Servers")
    await visitor.page.get_by_role("button", name="Hold books").click()
    await visitor.page.get_by_role("button", name="Hold the server").click()
    await expect(visitor.row("books")).to_contain_text("held")


@pytest.mark.parametrize(
    ("name", "prepare", "size", "scheme"),
    [
        ("console-tasks", of_tasks, DESK, "light"),
        ("console-servers", of_servers, DESK, "light"),
        ("console-task", of_one_task, DESK, "dark"),
        ("console-narrow", of_unfinished_tasks, NARROW, "dark"),
    ],
)
async def test_a_picture_of_the_documents_is_made(
    browser: Browser,
    day: Gateway,
    tmp_path: Path,
    name: str,
    prepare: Callable[[Visitor], Awaitable[None]],
    size: tuple[int, int],
    scheme: Literal["light", "dark"],
) -> None:
    async with Visitor.of(browser, day, size, scheme) as visitor:
        stream = await EventStream.of(visitor.page)
        await visitor.sign_in()
        await stream.open()
        await expect(visitor.page.locator("#live")).to_have_text("live")
        await prepare(visitor)
        folder = pictures(tmp_path)
        await visitor.page.screenshot(path=folder / f"{name}.png", animations="disabled")
        assert 0 < (folder / f"{name}.png").stat().st_size < LARGEST
