"""Each view of the console has an address, with its filter or task: for the way back and for another browser."""

import re

import pytest
from playwright.async_api import Browser, expect

from console.standins import REFUSALS, answer
from console.story import CAUSE
from console.visitor import NARROW, WIDE, Visitor
from helpers.gateway.gateway import Gateway
from helpers.server import Hold, ScriptedServer
from interaction.operators import OPS, look

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("size", [NARROW, (1200, 800), WIDE], ids=["narrow", "usual", "wide"])
async def test_from_a_problem_to_a_task_that_is_cancelled_and_shown_in_another_browser(
    browser: Browser, gateway: Gateway, server: ScriptedServer, size: tuple[int, int]
) -> None:
    server.script["report"] = Hold()
    host = await gateway.greeted()
    task = await host.start("report")
    listed = await look(gateway, "/api/v1/upstreams")
    # Three refusals make a server refusing only if some time is between them.
    listed["items"][1] |= {"state": "refusing", "cause": CAUSE}
    async with Visitor.of(browser, gateway, size) as visitor:
        await answer(visitor.page, "upstreams", listed)
        await visitor.sign_in(view="Overview")
        page = visitor.page
        problem = page.locator("#problems li")
        await expect(problem).to_contain_text(f"reports refuses: {CAUSE}")
        await problem.get_by_role("link", name="Unfinished tasks").click()
        await expect(page).to_have_url(f"{visitor.origin}/ui/tasks?upstream=reports")
        await visitor.row("report").get_by_role("link").click()
        await page.locator("#task-cancel").click()
        await page.get_by_label("Reason").fill("the key was revoked")
        await page.get_by_role("dialog").get_by_role("button", name="Cancel the task").click()
        await expect(page.locator("#task-title")).to_contain_text("cancelled")
        address = page.url
        shown = await page.locator("#task-events").inner_text()
        await page.go_back()
        await expect(page.locator("#task-filter").get_by_label("Server")).to_have_value("reports")
    assert (await host.task(task["taskId"]))["statusMessage"] == "Cancelled by an operator: the key was revoked"
    async with Visitor.of(browser, gateway, size) as other:
        await other.page.goto(address)
        await other.page.get_by_label("Token", exact=True).fill(OPS.removeprefix("Bearer "))
        await other.page.keyboard.press("Enter")
        await expect(other.page.locator("#task-title")).to_contain_text("cancelled")
        assert await other.page.locator("#task-events").inner_text() == shown
        assert other.page.url == address


async def test_a_filter_is_in_the_address_and_comes_back_with_it(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor
) -> None:
    await (await gateway.greeted()).start("echo")
    await visitor.sign_in()
    page, form = visitor.page, visitor.page.locator("#task-filter")
    await form.get_by_label("Status").select_option("completed")
    await expect(visitor.row("echo")).to_have_count(1)
    await form.get_by_label("Tool").fill("other")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{visitor.origin}/ui/tasks?tool=other&status=completed")
    await expect(page.locator("#task-rows")).to_contain_text("No task matches.")
    await page.reload()
    await expect(form.get_by_label("Tool")).to_have_value("other")
    await page.go_back()
    await expect(form.get_by_label("Tool")).to_have_value("")
    await expect(visitor.row("echo")).to_have_count(1)
    await page.go_back()
    await expect(page.locator("#task-rows")).to_contain_text("No task is unfinished.")
    await page.get_by_role("link", name="Show all tasks").click()
    await expect(visitor.row("echo")).to_have_count(1)


async def test_a_filter_that_the_page_or_the_gateway_does_not_know_leaves_no_row_to_cancel(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor
) -> None:
    server.script["report"] = Hold()
    await (await gateway.greeted()).start("report")
    await visitor.sign_in()
    page = visitor.page
    for query, words in (
        ("client=x", "the page has no filter client"),
        ("length=1", "the page has no filter length"),
        ("status=bogus", "status"),
    ):
        await visitor.go("Tasks")
        await expect(visitor.row("report")).to_have_count(1)
        await page.goto(f"{visitor.origin}/ui/tasks?{query}")
        await expect(page.locator("#message")).to_contain_text(words)
        await expect(page.locator("#task-rows tr")).to_have_count(0)
        await expect(page.locator("#tasks-cancel")).to_be_hidden()


async def test_a_task_that_has_expired_is_said_to_be_gone(visitor: Visitor) -> None:
    await visitor.sign_in()
    reference = f"t_{'x' * 22}"
    await visitor.page.goto(f"{visitor.origin}/ui/tasks/{reference}")
    await expect(visitor.page.locator("#task-title")).to_have_text(f"There is no task {reference}, or it has expired.")
    await expect(visitor.page.locator("#task-facts dt")).to_have_count(0)


async def test_what_is_searched_for_is_found_by_name_or_reference(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor
) -> None:
    await (await gateway.greeted()).start("echo")
    [item] = (await look(gateway, "/api/v1/tasks"))["items"]
    await visitor.sign_in(view="Overview")
    page = visitor.page
    for text, query in (
        (item["reference"], f"/{item['reference']}"),
        (item["reference"][:8], f"?reference={item['reference'][:8]}&status="),
        ("echo", "?tool=echo&status="),
        ("c_anonymous", "?caller=c_anonymous&status="),
        ("books", "?upstream=books&status="),
    ):
        await page.locator("#main").focus()
        await page.keyboard.press("/")
        await page.keyboard.type(text)
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{visitor.origin}/ui/tasks{query}")
    await page.keyboard.press("/")
    await page.keyboard.type("nothing")
    await page.keyboard.press("Enter")
    await expect(page.locator("#message")).to_contain_text("Nothing is named nothing")


async def test_all_tasks_that_match_are_cancelled_after_their_number_was_shown(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor
) -> None:
    server.script["report"], server.script["echo"] = Hold(), Hold()
    host = await gateway.greeted()
    tasks = [await host.start(name) for name in ("report", "report", "echo")]
    await visitor.sign_in()
    page = visitor.page
    await page.locator("#task-filter").get_by_label("Tool").fill("report")
    await page.keyboard.press("Enter")
    await expect(page.locator("#task-rows tr[data-key]")).to_have_count(2)
    await page.get_by_role("button", name="Cancel all that match").click()
    dialog = page.get_by_role("dialog", name="Cancel all tasks that match?")
    await expect(dialog).to_contain_text("2 unfinished tasks with tool report.")
    await dialog.get_by_label("Reason").fill("maintenance")
    await dialog.get_by_role("button", name="Cancel 2 tasks").click()
    await expect(page.locator("#message")).to_have_text("Cancelled: 2 tasks.")
    told = [(await host.task(each["taskId"]))["status"] for each in tasks]
    assert told == ["cancelled", "cancelled", "working"]


async def test_keys_go_through_rows_open_a_task_and_ask_before_a_cancel(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor
) -> None:
    server.script["report"], server.script["echo"] = Hold(), Hold()
    host = await gateway.greeted()
    await host.start("report")
    await host.start("echo")
    await visitor.sign_in()
    page = visitor.page
    await expect(page.locator("#task-rows tr[data-key]")).to_have_count(2)
    await page.locator("#main").focus()
    for key, name in (("j", "echo"), ("j", "report"), ("j", "report"), ("k", "echo")):
        await page.keyboard.press(key)
        await expect(page.locator(":focus")).to_have_text(name)
    await page.keyboard.press("c")
    await expect(page.get_by_role("dialog", name="Cancel the task?")).to_contain_text("echo at reports")
    await page.keyboard.press("Escape")
    await page.keyboard.press("o")
    await expect(page.locator("#task-title strong")).to_have_text("echo")


async def test_sessions_are_listed_and_one_is_ended(gateway: Gateway, visitor: Visitor) -> None:
    host = await gateway.greeted()
    await visitor.sign_in(view="Sessions")
    row = visitor.row("reports")
    await expect(row).to_contain_text("2025-11-25")
    await row.get_by_role("button", name=re.compile("^End the session s_")).click()
    await visitor.page.get_by_role("dialog").get_by_role("button", name="End the session").click()
    await expect(visitor.page.locator("#session-rows")).to_contain_text("No host has a session")
    assert (await host.ask("ping")).error is not None


async def test_times_are_of_the_zone_of_the_browser_or_utc(browser: Browser, gateway: Gateway) -> None:
    async with Visitor.of(browser, gateway, WIDE, zone="Asia/Tokyo") as visitor:
        await answer(visitor.page, "refusals?*", REFUSALS)
        await visitor.sign_in(view="Refusals")
        shown = visitor.page.locator("#refusal-rows time").first
        await expect(shown).to_have_text("16:00:00")
        await visitor.page.get_by_role("button", name="UTC").click()
        await expect(shown).to_have_text("07:00:00")
        await visitor.page.reload()
        await expect(shown).to_have_text("07:00:00")
