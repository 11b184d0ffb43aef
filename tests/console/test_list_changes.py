"""Rows of the console change with events, and the list is read again if a task joins or leaves it."""

from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, expect

from console.standins import EventStream, answer, task
from console.visitor import Visitor
from helpers.gateway.gateway import Gateway
from helpers.server import Hold, ScriptedServer

pytestmark = pytest.mark.asyncio(loop_scope="session")


def page_of(*items: dict[str, Any], following: str | None = None) -> dict[str, Any]:
    """A page of a list."""
    return {"now": "2026-11-28T08:00:00Z", "items": items, "next": following, "is_complete": True}


def at(minute: int, part: str = "") -> str:
    """A time within the hour of these tests."""
    return f"2026-11-28T07:{minute:02d}:00{part}Z"


@pytest_asyncio.fixture(loop_scope="session")
async def stream(visitor: Visitor) -> EventStream:
    """The stream of a page that is not signed in yet."""
    return await EventStream.of(visitor.page)


async def shown(visitor: Visitor, stream: EventStream, order: str, *items: dict[str, Any]) -> Locator:
    """The names of the tasks of a list in that order, whose answer is a stand-in."""
    page = visitor.page
    await answer(page, "tasks?*", page_of(*items))
    await visitor.sign_in()
    names = page.locator("#task-rows th a")
    # The list that it begins with, so that the next answer is not this one.
    await expect(names).to_have_count(len(items))
    async with page.expect_response("**/api/v1/tasks?*"):
        await page.get_by_label("Order").select_option(order)
    await stream.connect()
    await expect(names).to_have_text([item["tool"] for item in items])
    return names


async def test_progress_is_shown_at_once_where_the_task_is(visitor: Visitor, stream: EventStream) -> None:
    names = await shown(visitor, stream, "-created", task(3), task(2), task(1))
    asked: list[str] = []
    visitor.page.on("request", lambda request: asked.append(request.url))
    await stream.send("task", task(2, progress="57/100", updated_at=at(5)))
    row = visitor.row("tool-2")
    await expect(row).to_contain_text("57/100")
    await expect(row.get_by_role("img", name="progress")).to_be_visible()
    await expect(names).to_have_text(["tool-3", "tool-2", "tool-1"])
    assert not [url for url in asked if "/tasks?" in url]


async def test_a_task_that_joins_or_ends_has_the_list_read_again_and_the_focus_stays_at_its_row(
    visitor: Visitor, stream: EventStream
) -> None:
    names = await shown(visitor, stream, "-created", task(3), task(2), task(1))
    await names.nth(1).focus()
    await answer(visitor.page, "tasks?*", page_of(task(4), task(2), task(1)))
    await stream.send("task", task(4), task(3, status="completed"))
    await expect(names).to_have_text(["tool-4", "tool-2", "tool-1"])
    await expect(names.nth(1)).to_be_focused()
    await expect(visitor.page.locator("#tasks-caption")).to_have_text("3 tasks")


async def test_the_list_of_those_that_changed_last_follows_each_change(visitor: Visitor, stream: EventStream) -> None:
    names = await shown(visitor, stream, "-updated", task(1), task(2))
    await answer(visitor.page, "tasks?*", page_of(task(2, updated_at=at(5)), task(1)))
    await stream.send("task", task(2, updated_at=at(5)))
    await expect(names).to_have_text(["tool-2", "tool-1"])


async def test_an_older_event_does_not_undo_a_newer_one(visitor: Visitor, stream: EventStream) -> None:
    names = await shown(visitor, stream, "-created", task(1, updated_at=at(5)))
    await stream.send("task", task(1, updated_at=at(4), progress="older"))
    await stream.send("task", task(1, updated_at=at(6), progress="newer"))
    await expect(visitor.row("tool-1")).to_contain_text("newer")
    await stream.send(
        "task", task(1, updated_at=at(4), progress="older"), task(1, updated_at=at(7), status="cancelled")
    )
    await expect(visitor.row("tool-1")).to_contain_text("cancelled")
    await expect(names).to_have_count(1)


async def test_the_page_of_a_list_is_read_again_at_its_cursor(visitor: Visitor, stream: EventStream) -> None:
    names = await shown(visitor, stream, "-created", task(9), task(8))
    page = visitor.page
    await answer(page, "tasks?*", page_of(task(9), task(8), following="a-cursor"))
    async with page.expect_response("**/api/v1/tasks?*"):
        await page.get_by_role("button", name="Apply").first.click()
    await answer(page, "tasks?*cursor=a-cursor*", page_of(task(7), task(6)))
    await page.get_by_role("button", name="Next page").first.click()
    await expect(names).to_have_text(["tool-7", "tool-6"])
    await answer(page, "tasks?*cursor=a-cursor*", page_of(task(7), task(5)))
    await stream.send("task", task(6, status="completed"))
    await expect(names).to_have_text(["tool-7", "tool-5"])


async def test_the_list_of_a_real_gateway_is_in_the_order_of_the_console(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor, stream: EventStream
) -> None:
    server.script["report"], server.script["echo"] = Hold(), Hold()
    host = await gateway.greeted()
    for name in ("report", "echo", "report"):
        await host.start(name)
    await visitor.sign_in()
    await stream.connect()
    references = visitor.page.locator("#task-rows tr[data-key]")
    await expect(references).to_have_count(3)
    for order in ("-updated", "created", "-created"):
        async with visitor.page.expect_response("**/api/v1/tasks?*") as response:
            await visitor.page.get_by_label("Order").select_option(order)
        items = (await (await response.value).json())["items"]
        await expect(visitor.page.locator("#task-rows th .more")).to_have_text(
            [f"{item['upstream']} · {item['reference']}" for item in items]
        )
