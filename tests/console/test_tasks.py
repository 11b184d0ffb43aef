"""The console lists tasks, chooses among them, shows one, and cancels it."""

import re

import pytest
from playwright.async_api import expect

from console.visitor import Visitor
from helpers.gateway.gateway import Gateway
from helpers.server import Hold, ScriptedServer
from helpers.waiting import eventually
from requirements import covers

pytestmark = pytest.mark.asyncio(loop_scope="session")

MARKUP = '<img src=x onerror="document.title=1"><script>document.title=2</script>'


async def test_tasks_are_listed_and_filters_choose_among_them(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor
) -> None:
    server.script["report"] = Hold()
    host = await gateway.greeted()
    await host.start("report")
    await host.start("echo")
    await (await gateway.greeted(mount="books")).start("report")
    await visitor.sign_in()
    rows, page = visitor.page.locator("#task-rows tr[data-key]"), visitor.page
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("working")
    status = page.get_by_label("Status")
    await status.select_option("completed")
    await expect(rows).to_have_count(2)
    await page.locator("#task-filter").get_by_label("Server").select_option("books")
    await expect(rows).to_have_count(1)
    await status.select_option("all")
    await page.locator("#task-filter").get_by_label("Server").select_option("all")
    await expect(rows).to_have_count(3)
    await page.get_by_label("Tool").first.fill("echo")
    await page.get_by_role("button", name="Apply").first.click()
    await expect(rows).to_have_count(1)
    await page.get_by_label("Tool").first.fill("")
    await page.get_by_label("Reference").fill("no reference")
    await page.get_by_role("button", name="Apply").first.click()
    assert await page.get_by_label("Reference").evaluate("input => input.validity.patternMismatch")
    await page.get_by_label("Reference").fill("t_")
    await page.keyboard.press("Enter")
    await expect(rows).to_have_count(3)
    await page.locator("#task-filter").get_by_label("Age").select_option("60")
    await expect(rows).to_have_count(0)


async def test_an_operator_cancels_a_task_after_a_question(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor
) -> None:
    server.script["report"] = hold = Hold()
    host = await gateway.greeted()
    task = await host.start("report")
    await visitor.sign_in()
    page, row = visitor.page, visitor.row("report")
    await row.get_by_role("button", name=re.compile("^Cancel")).click()
    dialog = page.get_by_role("dialog", name="Cancel the task?")
    await expect(dialog).to_contain_text("report at reports, t_")
    await dialog.get_by_role("button", name="Back").click()
    await expect(row).to_contain_text("working")
    await row.get_by_role("button", name=re.compile("^Cancel")).click()
    await dialog.get_by_label("Reason").fill("the database is down")
    await dialog.get_by_role("button", name="Cancel the task").click()
    await expect(row).to_have_count(0)
    assert (await host.task(task["taskId"]))["statusMessage"] == "Cancelled by an operator: the database is down"
    await expect(page.locator("#message")).to_have_text(re.compile("^Cancelled: report, t_"))
    await page.get_by_label("Status").select_option("cancelled")
    await expect(row.get_by_role("button")).to_have_count(0)
    await eventually(lambda: server.cancelled == [hold.turns[0].id])


async def test_a_task_is_shown_with_its_timeline(gateway: Gateway, server: ScriptedServer, visitor: Visitor) -> None:
    await (await gateway.greeted()).start("echo")
    await visitor.sign_in()
    await visitor.page.get_by_label("Status").select_option("all")
    await visitor.row("echo").get_by_role("link", name="echo").click()
    shown = visitor.page.locator("#view-task")
    await expect(shown.locator("#task-timeline li")).to_have_text([re.compile(r"^call at the server, \d+ m?s$")])
    await expect(shown.locator("#task-events td:last-child")).to_have_text(["created by tools/call", "completed"])
    await expect(shown).to_contain_text("c_anonymous")
    await visitor.page.go_back()
    await expect(shown).to_be_hidden()


@covers("T36")
async def test_names_and_progress_of_a_server_are_text_and_never_markup(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor
) -> None:
    server.tools = [{"name": MARKUP, "inputSchema": {"type": "object"}}]
    server.script[MARKUP] = Hold()
    await (await gateway.greeted()).start(MARKUP)
    await visitor.sign_in()
    await expect(visitor.page.locator("#task-rows th a")).to_have_text(MARKUP)
    await visitor.page.locator("#task-rows th a").click()
    await expect(visitor.page.get_by_role("heading", name=MARKUP)).to_be_visible()
    assert await visitor.page.locator("main img, main script").count() == 0
    assert await visitor.page.title() == f"{MARKUP} - taskgate console"
