"""Rows of the console keep the order and the filter of their list while events change them."""

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
    names = page.locator("#task-rows th button")
    # The list that it begins with, so that the next answer is not this one.
    await expect(names).to_have_count(len(items))
    async with page.expect_response("**/api/v1/tasks?*"):
        await page.get_by_label("Order").select_option(order)
    await stream.connect()
    await expect(names).to_have_text([item["tool"] for item in items])
    return names


async def test_a_task_that_changes_goes_to_the_top_of_those_that_changed_last(
    visitor: Visitor, stream: EventStream
) -> None:
    first, second, third = (task(number, updated_at=at(10 - number)) for number in (1, 2, 3))
    names = await shown(visitor, stream, "-updated", first, second, third)
    await names.nth(2).focus()
    await stream.send("task", third | {"updated_at": at(10), "status": "input_required"})
    await expect(names).to_have_text(["tool-3", "tool-1", "tool-2"])
    await expect(visitor.page.locator("#task-rows tr").first).to_contain_text("input_required")
    await expect(names.first).to_be_focused()
    await stream.send("task", first | {"updated_at": at(10, ".000100")}, second | {"updated_at": at(10, ".000010")})
    await expect(names).to_have_text(["tool-1", "tool-2", "tool-3"])


async def test_a_task_of_an_event_joins_the_list_where_its_creation_belongs(
    visitor: Visitor, stream: EventStream
) -> None:
    names = await shown(visitor, stream, "created", task(1, created_at=at(1)), task(5, created_at=at(5)))
    # An older one begins to match the filter, and two of the same moment are told apart by their references.
    await stream.send("task", task(7, created_at=at(5)), task(3, created_at=at(3)), task(4, created_at=at(5)))
    await expect(names).to_have_text(["tool-1", "tool-3", "tool-4", "tool-5", "tool-7"])


async def test_a_task_that_matches_the_filter_no_more_leaves_and_the_focus_goes_to_the_next(
    visitor: Visitor, stream: EventStream
) -> None:
    names = await shown(visitor, stream, "-created", task(3), task(2), task(1))
    await visitor.page.get_by_label("Status").select_option("working")
    await expect(names).to_have_count(3)
    await names.nth(1).focus()
    await stream.send("task", task(2, status="input_required"))
    await expect(names).to_have_text(["tool-3", "tool-1"])
    await expect(names.nth(1)).to_be_focused()
    await expect(visitor.page.locator("#tasks-caption")).to_have_text("2 tasks")
    await stream.send("task", task(2))
    await expect(names).to_have_text(["tool-3", "tool-2", "tool-1"])


async def test_an_older_event_does_not_undo_a_newer_one(visitor: Visitor, stream: EventStream) -> None:
    names = await shown(visitor, stream, "-created", task(1, updated_at=at(5)))
    await stream.send("task", task(1, updated_at=at(4), status="input_required"))
    await stream.send("task", task(2))
    await expect(names).to_have_text(["tool-2", "tool-1"])
    await expect(visitor.page.locator("#task-rows tr").nth(1)).to_contain_text("working")


async def test_a_later_page_loses_a_task_that_changes_to_an_earlier_one_and_gets_none_of_another(
    visitor: Visitor, stream: EventStream
) -> None:
    items = [task(number, updated_at=at(10 - number)) for number in range(1, 4)]
    names = await shown(visitor, stream, "-updated", *items)
    page = visitor.page
    await answer(page, "tasks?*", page_of(*items, following="a-cursor"))
    async with page.expect_response("**/api/v1/tasks?*"):
        await page.get_by_role("button", name="Apply").first.click()
    await answer(page, "tasks?*cursor=a-cursor*", page_of(*(task(n, updated_at=at(10 - n)) for n in (5, 6, 7))))
    await page.get_by_role("button", name="Next page").first.click()
    await expect(names).to_have_text(["tool-5", "tool-6", "tool-7"])
    await stream.send("task", task(6, updated_at=at(10)), task(8, updated_at=at(11)), task(9, updated_at=at(0)))
    await expect(names).to_have_text(["tool-5", "tool-7"])
    await stream.send("task", task(4, updated_at=at(4, ".5")))
    await expect(names).to_have_text(["tool-5", "tool-4", "tool-7"])


async def test_a_page_that_tasks_have_left_gets_those_that_follow(visitor: Visitor, stream: EventStream) -> None:
    names = await shown(visitor, stream, "-created", task(3), task(2))
    page = visitor.page
    await answer(page, "tasks?*", page_of(task(3), task(2), following="a-cursor"))
    async with page.expect_response("**/api/v1/tasks?*"):
        await page.get_by_role("button", name="Apply").first.click()
    await answer(page, "tasks?*", page_of(task(2), task(1)))
    await stream.send("task", task(3, status="completed"))
    await expect(names).to_have_text(["tool-2", "tool-1"])


async def test_the_list_of_a_real_gateway_is_in_the_order_of_the_console(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor, stream: EventStream
) -> None:
    server.script["report"], server.script["echo"] = Hold(), Hold()
    host = await gateway.greeted()
    for name in ("report", "echo", "report"):
        await host.start(name)
    await visitor.sign_in()
    await stream.connect()
    references = visitor.page.locator("#task-rows tr")
    await expect(references).to_have_count(3)
    for order in ("-updated", "created", "-created"):
        async with visitor.page.expect_response("**/api/v1/tasks?*") as response:
            await visitor.page.get_by_label("Order").select_option(order)
        items = (await (await response.value).json())["items"]
        # Taken out and put in again by events, in another order, each is where it was.
        await stream.send(
            "task", *({**item, "status": "completed", "updated_at": "2027-01-01T00:00:00Z"} for item in items)
        )
        await expect(references).to_have_count(0)
        await stream.send("task", *sorted(items, key=lambda item: item["reference"]))
        await expect(visitor.page.locator("#task-rows .more:not(:empty)")).to_have_text(
            [f"{item['upstream']} · {item['reference']}" for item in items]
        )
