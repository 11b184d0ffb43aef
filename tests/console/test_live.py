"""The console shows what events tell, in a bounded page."""

from typing import Any
from unicodedata import category

import pytest
import pytest_asyncio
from playwright.async_api import expect

from console.standins import CALLERS, REFUSALS, EventStream, answer, refusal, task
from console.visitor import Visitor
from helpers.gateway.gateway import Gateway
from helpers.server import Hold, ScriptedServer
from requirements import covers
from taskgate.cli.printing import clean

pytestmark = pytest.mark.asyncio(loop_scope="session")

MARKUP = "<b onclick=1>bold</b><img src=x onerror=alert(1)>"


@pytest_asyncio.fixture(loop_scope="session")
async def stream(visitor: Visitor) -> EventStream:
    """The stream of a page that is signed in and connected."""
    await answer(visitor.page, "callers?*", CALLERS)
    await answer(visitor.page, "refusals?*", REFUSALS)
    stream = await EventStream.of(visitor.page)
    await visitor.sign_in()
    # Not only open: the list that is read then has none of these made-up tasks.
    await stream.connect()
    await expect(visitor.page.locator("#live")).to_have_text("live")
    return stream


async def listed(visitor: Visitor, *items: dict[str, Any]) -> None:
    """Have the gateway list these tasks from now on."""
    page = {"now": "2026-11-28T08:00:00Z", "items": items, "next": None, "is_complete": True}
    await answer(visitor.page, "tasks?*", page)


async def test_a_task_of_an_event_joins_the_list_changes_in_place_and_leaves_at_its_end(
    visitor: Visitor, stream: EventStream
) -> None:
    await listed(visitor, task(2), task(1))
    await stream.send("task", task(1), task(2))
    rows = visitor.page.locator("#task-rows tr[data-key]")
    await expect(rows.locator("th a")).to_have_text(["tool-2", "tool-1"])
    await listed(visitor, task(2))
    await stream.send("task", task(1, status="input_required", progress=MARKUP))
    await expect(rows.nth(1)).to_contain_text("input_required")
    await expect(rows.nth(1).locator("td").nth(2)).to_have_text(MARKUP)
    assert await rows.locator("b, img").count() == 0
    await stream.send("task", task(1, status="completed"))
    await expect(rows.locator("th a")).to_have_text(["tool-2"])


@covers("T36")
async def test_invisible_characters_are_marked_as_the_command_line_marks_them(
    visitor: Visitor, stream: EventStream
) -> None:
    kinds = {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"}
    codes = [code for code in range(0x110000) if code >> 9 == 0xE0000 >> 9 or category(chr(code)) in kinds]
    unseen = "".join(f"{chr(code)}a" for code in codes)
    hidden = task(1, tool="pay\u202etxt\u200b.\U000e0041exe", progress=unseen)
    # A list in which no lone surrogate stands, which the stand-in cannot write.
    await listed(visitor, hidden | {"progress": None})
    await stream.send("task", hidden)
    await expect(visitor.page.locator("#task-rows tr[data-key]")).to_have_count(1)
    await stream.send("task", hidden)
    row = visitor.page.locator("#task-rows tr[data-key]")
    await expect(row.locator("th a")).to_have_text("pay\ufffdtxt\ufffd.\ufffdexe")
    assert await row.locator("td").nth(2).evaluate("cell => cell.textContent") == clean(unseen)
    label = await row.get_by_role("button").last.get_attribute("aria-label")
    assert label is not None
    assert label.startswith("Cancel pay\ufffdtxt\ufffd.\ufffdexe, t_")
    await row.get_by_role("button").last.click()
    await expect(visitor.page.locator("#confirm-text")).to_contain_text("pay\ufffdtxt\ufffd.\ufffdexe at reports")
    await visitor.page.get_by_role("button", name="Back").click()
    await visitor.go("Refusals")
    reason = visitor.page.locator("#refusal-rows tr").first.locator("td").nth(2)
    # The list is there: one that is on its way would be asked for again, without this event.
    await expect(reason).not_to_be_empty()
    await stream.send("refusal", refusal("a reason \u2066of\u2069 a host\x1b[31m"))
    await expect(reason).to_have_text("a reason \ufffdof\ufffd a host\ufffd[31m")


async def test_ten_thousand_tasks_leave_the_page_small_and_make_few_rows(visitor: Visitor, stream: EventStream) -> None:
    await visitor.page.evaluate(
        "window.made = 0; new MutationObserver((list) => { for (const each of list) window.made +="
        " each.addedNodes.length; }).observe(document.getElementById('task-rows'), {childList: true});"
    )
    rows = visitor.page.locator("#task-rows tr[data-key]")
    asked: list[str] = []
    visitor.page.on("request", lambda request: asked.append(request.url))
    for start in range(0, 10_000, 1000):
        await listed(visitor, *(task(number) for number in range(start + 999, start + 949, -1)))
        await stream.send("task", *(task(number) for number in range(start, start + 1000)))
    await expect(rows.locator("th a").first).to_have_text("tool-9999")
    assert await rows.count() == 50
    assert await visitor.page.evaluate("document.querySelectorAll('*').length") < 3000
    # At most once a second, the list is read and has its rows.
    lists = len([url for url in asked if "/tasks?" in url])
    assert lists <= 11
    assert await visitor.page.evaluate("window.made") <= 50 * lists


async def test_the_page_of_one_task_follows_its_events(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor, stream: EventStream
) -> None:
    server.script["report"] = hold = Hold()
    await (await gateway.greeted()).start("report")
    [item] = (await visitor.documents("/api/v1/tasks"))["items"]
    await stream.send("task", item)
    await visitor.row("report").get_by_role("link", name="report", exact=True).click()
    happened = visitor.page.locator("#task-events tr")
    await expect(happened).to_have_count(1)
    hold.release({"content": []})
    await visitor.until_status(item["reference"], "completed")
    await stream.send("task", {**item, "status": "completed"})
    await expect(happened).to_have_count(2)
    await expect(visitor.page.locator("#task-cancel")).to_be_hidden()


@covers("T36")
async def test_refusals_are_listed_and_a_new_one_comes_first_as_text(visitor: Visitor, stream: EventStream) -> None:
    await visitor.go("Refusals")
    rows = visitor.page.locator("#refusal-rows tr")
    await expect(rows).to_have_count(2)
    await stream.send("refusal", refusal(MARKUP, "auth"))
    await expect(rows.first.locator("td").nth(2)).to_have_text(MARKUP)
    assert await rows.locator("b, img").count() == 0
    await stream.send("refusal", {**refusal("ids of tasks are tried", "security"), "count": 7})
    await expect(rows.first.locator("td").last).to_have_text("7")
    await expect(rows).to_have_count(3)
    await stream.send("refusal", *(refusal(f"reason {number}") for number in range(300)))
    await expect(rows.first).to_contain_text("reason 299")
    await expect(rows).to_have_count(200)


async def test_callers_are_listed_with_the_use_of_their_limits(visitor: Visitor, stream: EventStream) -> None:
    await visitor.go("Callers")
    cells = visitor.page.locator("#caller-rows tr").locator("th, td")
    await expect(cells).to_have_text(["c_0123456789abcdef", "calls", "3", "20", ""])
    await expect(cells.get_by_role("img", name="3 of 20")).to_be_visible()


async def test_an_event_of_a_server_has_its_row_read_again(
    gateway: Gateway, visitor: Visitor, stream: EventStream
) -> None:
    await visitor.go("Servers")
    row = visitor.row("books")
    await expect(row.get_by_role("button")).to_have_text("Hold")
    path = "/api/v1/upstreams/books"
    assert (await gateway.operators_answer(f"{path}/hold", "POST", Authorization=visitor.bearer))[0] == 200
    await stream.send("upstream", {"at": "2026-11-28T07:00:00Z", "name": "books", "state": "up", "circuit": "closed"})
    await expect(row).to_contain_text("held")
    await row.get_by_role("button", name="Release books").click()
    await expect(row.get_by_role("button", name="Hold books")).to_be_visible()


async def test_after_a_break_the_page_connects_again_and_reads_its_view_anew(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor, stream: EventStream
) -> None:
    server.script["report"] = Hold()
    await stream.end()
    await expect(visitor.page.locator("#live")).to_have_text("connecting again")
    await stream.refuse()
    await expect(visitor.page.locator("#live")).to_have_text("no live updates")
    await (await gateway.greeted()).start("report")
    await stream.open()
    await expect(visitor.page.locator("#live")).to_have_text("live")
    await expect(visitor.row("report")).to_have_count(1)


async def test_when_its_session_has_ended_the_page_asks_for_a_token(
    gateway: Gateway, visitor: Visitor, stream: EventStream
) -> None:
    await listed(visitor, task(1))
    await stream.send("task", task(1))
    await expect(visitor.row("tool-1")).to_have_count(1)
    await visitor.page.context.clear_cookies()
    await stream.end()
    await expect(visitor.page.get_by_role("heading", name="Sign in")).to_be_visible()
    await expect(visitor.page.locator("#message")).to_have_text("The session has ended. Sign in again.")
    await expect(visitor.page.locator("#task-rows tr[data-key]")).to_have_count(0)
