"""The page of the console fits narrow and wide windows, is used by keyboard, and puts no barrier to anybody's way."""

from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, expect

from console.standins import CALLERS, EXPLANATION, REFUSALS, EventStream, answer
from console.visitor import NARROW, WIDE, Visitor
from helpers.gateway.gateway import Gateway
from helpers.server import Hold, ScriptedServer

pytestmark = pytest.mark.asyncio(loop_scope="session")

VIEWS = ("Overview", "Tasks", "Servers", "Callers", "Refusals", "Sessions", "Configuration")
GRAVE = {"serious", "critical"}
FILLED = "main section:not([hidden]) tbody tr, #yaml:not(:empty)"
LONG = "a_tool_with_a_very_long_name_that_has_no_place_to_break_it_" * 2


@pytest_asyncio.fixture(loop_scope="session")
async def full(gateway: Gateway, server: ScriptedServer) -> Gateway:
    """A gateway with a running task, whose tool has a long name, and one that has ended."""
    server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in (LONG, "echo")]
    server.script[LONG] = Hold()
    host = await gateway.greeted()
    await host.start(LONG)
    await host.start("echo")
    return gateway


async def prepared(visitor: Visitor, view: str = "Tasks") -> None:
    """Sign in, with something to see in each view, and choose one."""
    for path, document in {"callers?*": CALLERS, "refusals?*": REFUSALS, "explain": EXPLANATION}.items():
        await answer(visitor.page, path, document)
    await visitor.page.goto("about:blank")
    stream = await EventStream.of(visitor.page)
    await visitor.sign_in(view=view)
    await stream.open()


async def faults(visitor: Visitor, where: str) -> list[Any]:
    """What axe finds that is serious, and whether the page is wider than the window."""
    found = [
        (where, each["id"], [node["html"] for node in each["nodes"]])
        for each in (await Axe().run(visitor.page)).response["violations"]
        if each["impact"] in GRAVE
    ]
    wider = await visitor.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    return [*found, *([(where, "wider than the window", wider)] if wider > 0 else [])]


async def visited(visitor: Visitor) -> AsyncIterator[str]:
    """Each state of the page, one after the other."""
    await visitor.open()
    await expect(visitor.page.get_by_role("heading", name="Sign in")).to_be_visible()
    yield "sign-in"
    await prepared(visitor)
    for view in VIEWS:
        await visitor.go(view)
        await expect(
            visitor.page.locator("main section:not([hidden]) tbody tr, #yaml:not(:empty)").first
        ).to_be_visible()
        if view == "Configuration":
            await visitor.page.get_by_role("textbox", name="Tool", exact=True).fill("report")
            await visitor.page.get_by_role("button", name="Explain").click()
            await expect(visitor.row("tasks_per_context")).to_be_visible()
        yield view
    await visitor.go("Tasks")
    await visitor.row("working").locator("th a").click()
    await expect(visitor.page.locator("#task-events tr").first).to_be_visible()
    yield "one task"
    await visitor.page.locator("#task-cancel").click()
    await expect(visitor.page.get_by_role("dialog", name="Cancel the task?")).to_be_visible()
    yield "confirmation"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["narrow", "wide"])
async def test_every_view_fits_the_window_and_axe_finds_nothing_serious(
    browser: Browser, full: Gateway, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    async with Visitor.of(browser, full, size, scheme) as visitor:
        found = [fault async for where in visited(visitor) for fault in await faults(visitor, where)]
    assert found == []


async def test_the_console_is_used_by_keyboard_alone(full: Gateway, visitor: Visitor) -> None:
    await prepared(visitor, "")
    page = visitor.page
    keys, focused = page.keyboard, page.locator(":focus")
    # Whoever signs in has the focus in the page; a page that is opened anew has it nowhere.
    await expect(focused).to_have_id("main")
    await visitor.open()
    await expect(page.locator("#operator")).to_have_text("ops (operator)")
    await keys.press("Tab")
    await expect(focused).to_have_text("Skip to the content")
    await expect(focused).to_be_in_viewport()
    await keys.press("Tab")
    await expect(focused).to_have_text("taskgate")
    for view in VIEWS:
        await keys.press("Tab")
        await expect(focused).to_have_text(view)
        assert await focused.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
    for name in ("search-text", "utc", "sign-out"):
        await keys.press("Tab")
        await expect(focused).to_have_id(name)
    await visitor.go("Tasks")
    await page.locator("#task-rows th a").first.focus()
    await keys.press("Enter")
    await expect(page.locator("#task-title strong")).to_have_text(LONG)
    await page.locator("#task-cancel").focus()
    await keys.press("Enter")
    await expect(focused).to_have_text("Back")
    await keys.press("Escape")
    await expect(page.get_by_role("dialog", name="Cancel the task?")).to_have_count(0)
    await expect(page.locator("#task-title strong")).to_have_text(LONG)


async def test_a_view_whose_answers_this_gateway_has_not_says_so(visitor: Visitor) -> None:
    await visitor.page.route("**/api/v1/config", lambda route: route.fulfill(status=404, json={"error": {"code": "x"}}))
    await visitor.sign_in()
    await visitor.go("Configuration")
    await expect(visitor.page.locator("#message")).to_have_text(
        "Configuration: this gateway has no such path or record (404)."
    )


async def test_the_answer_of_explain_is_a_table_of_keys_values_and_their_sources(visitor: Visitor) -> None:
    await prepared(visitor)
    await visitor.go("Configuration")
    await expect(visitor.page.locator("#yaml")).to_contain_text("upstreams:")
    await visitor.page.locator("#explain-form").get_by_label("Server").select_option("reports")
    await visitor.page.get_by_role("textbox", name="Tool", exact=True).fill("report")
    await visitor.page.keyboard.press("Enter")
    row = visitor.row("promotion.mode")
    await expect(row.locator("th, td")).to_have_text(["promotion.mode", "auto", "tasks.upgrade[0].mode (default)"])


@pytest.mark.parametrize("name", ["ops", "looks"])
async def test_a_call_is_explained_by_the_gateway_itself(visitor: Visitor, name: str) -> None:
    await visitor.sign_in(name)
    await visitor.go("Configuration")
    page = visitor.page
    await expect(page.locator("#yaml")).to_contain_text("upstreams:")
    await page.locator("#explain-form").get_by_label("Server").select_option("books")
    await page.get_by_role("textbox", name="Tool", exact=True).fill("<b>report</b>")
    await page.get_by_role("textbox", name="Token of the caller").fill("a-token")
    await page.get_by_role("button", name="Explain").click()
    for key, value, where in (
        ("caller.anonymous", "true", ""),
        ("call.path", "/books/mcp", ""),
        ("call.tool", "<b>report</b>", ""),
        ("promotion.mode", "auto", "tasks.upgrade[0].mode (default)"),
        ("polls.reject_above", "1000", "tasks.early_poll.reject_above"),
        ("server.concurrency", "32", "upstreams.books.concurrency (default)"),
    ):
        row = page.locator("#explanation-rows tr").filter(has=page.get_by_role("rowheader", name=key, exact=True))
        await expect(row.locator("th, td")).to_have_text([key, value, where])


@pytest.mark.parametrize("claims", ["sub=bob,scope=read write", '{"sub": "bob", "groups": ["a", "b"]}'])
async def test_claims_stand_for_the_token_of_a_caller(visitor: Visitor, claims: str) -> None:
    await visitor.sign_in("looks")
    await visitor.go("Configuration")
    page = visitor.page
    await page.get_by_role("textbox", name="Tool", exact=True).fill("report")
    asked = page.get_by_role("textbox", name="Claims of the caller")
    await asked.fill("bob")
    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_text("claims are written as sub=bob,scope=read")).to_be_visible()
    await asked.fill(claims)
    async with page.expect_request("**/explain") as sent:
        await page.get_by_role("button", name="Explain").click()
    found = (await sent.value).post_data_json["claims"]
    assert found["sub"] == "bob"
    assert found.get("scope", "read write") == "read write"
    await expect(page.locator("#explanation-rows tr").first).to_be_visible()


async def test_pages_of_a_list_are_turned(gateway: Gateway, visitor: Visitor) -> None:
    host = await gateway.greeted()
    for _ in range(60):
        await host.start("echo")
    await visitor.sign_in()
    page = visitor.page
    await page.get_by_label("Status").select_option("completed")
    await expect(page.locator("#task-rows tr[data-key]")).to_have_count(50)
    await expect(page.get_by_role("button", name="First page").first).to_be_disabled()
    await page.get_by_role("button", name="Next page").first.click()
    await expect(page.locator("#task-rows tr[data-key]")).to_have_count(10)
    await expect(page.get_by_role("button", name="Next page").first).to_be_disabled()
    await page.get_by_role("button", name="First page").first.click()
    await expect(page.locator("#task-rows tr[data-key]")).to_have_count(50)
