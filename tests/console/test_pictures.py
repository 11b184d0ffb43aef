"""The pictures of `docs/console.md`: this test makes them. `make pictures` puts them in their place."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser, expect

from console import story
from console.standins import EventStream
from console.visitor import NARROW, Visitor
from helpers.chromium import pictures
from helpers.gateway.gateway import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")

LARGEST = 200_000
"""Bytes of a picture."""
DESK = (1200, 640)


async def of_overview(visitor: Visitor) -> None:
    """The overview, where a server refuses."""
    await visitor.go("Overview")
    await expect(visitor.page.locator("#problems li")).to_have_count(1)
    await expect(visitor.page.locator("#user-rows tr")).to_have_count(4)


async def of_tasks(visitor: Visitor) -> None:
    """All tasks."""
    await visitor.page.locator("#task-filter").get_by_label("Status").select_option("all")
    await expect(visitor.page.locator("#task-rows tr")).to_have_count(8)


async def of_unfinished_tasks(visitor: Visitor) -> None:
    """Tasks that run."""
    await expect(visitor.page.locator("#task-rows tr")).to_have_count(4)


async def of_one_task(visitor: Visitor) -> None:
    """One task, which waited for a permit most of its time."""
    await of_tasks(visitor)
    await visitor.row("charge_card").locator("th a").click()
    await expect(visitor.page.locator("#task-events tr")).to_have_count(3)


async def of_servers(visitor: Visitor) -> None:
    """Servers, of which one refuses."""
    await visitor.go("Servers")
    await expect(visitor.row("orders")).to_contain_text("refusing")


@pytest.mark.parametrize(
    ("name", "prepare", "size", "scheme"),
    [
        ("console-overview", of_overview, (1200, 800), "light"),
        ("console-tasks", of_tasks, DESK, "light"),
        ("console-servers", of_servers, DESK, "light"),
        ("console-task", of_one_task, DESK, "dark"),
        ("console-narrow", of_unfinished_tasks, NARROW, "dark"),
    ],
)
async def test_a_picture_of_the_documents_is_made(
    browser: Browser,
    gateway: Gateway,
    tmp_path: Path,
    name: str,
    prepare: Callable[[Visitor], Awaitable[None]],
    size: tuple[int, int],
    scheme: Literal["light", "dark"],
) -> None:
    async with Visitor.of(browser, gateway, size, scheme) as visitor:
        stream = await EventStream.of(visitor.page)
        await story.tell(visitor.page)
        await visitor.sign_in()
        await stream.open()
        await expect(visitor.page.locator("#live")).to_have_text("live")
        await prepare(visitor)
        folder = pictures(tmp_path)
        await visitor.page.screenshot(path=folder / f"{name}.png", animations="disabled")
        assert 0 < (folder / f"{name}.png").stat().st_size < LARGEST
