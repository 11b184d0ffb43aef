"""An answer of the API that comes late does not replace what was asked for after it."""

import asyncio
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from console.standins import CALLERS, REFUSALS, EventStream, answer, refusal, task
from console.visitor import Visitor
from helpers.gateway.gateway import Gateway
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded

pytestmark = pytest.mark.asyncio(loop_scope="session")


class LateAnswer:
    """An answer of the API to the requests for a path. The page gets it when the test says so."""

    def __init__(self, document: dict[str, Any], status: int = 200) -> None:
        self._document = document
        self._status = status
        self._is_sent = asyncio.Event()
        self.is_asked = asyncio.Event()
        self.is_over = asyncio.Event()

    @classmethod
    async def to(cls, page: Page, path: str, document: dict[str, Any], status: int = 200) -> "LateAnswer":
        """Put it in place."""
        late = cls(document, status)
        await page.route(f"**/api/v1/{path}", late.fulfill)
        return late

    async def fulfill(self, route: Route) -> None:
        """Answer a request once it may be."""
        self.is_asked.set()
        await self._is_sent.wait()
        await route.fulfill(json=self._document, status=self._status)
        self.is_over.set()

    async def asked(self) -> None:
        """Wait until the page has asked."""
        async with bounded():
            await self.is_asked.wait()

    async def send(self, page: Page) -> None:
        """Answer, and wait until the page has read it."""
        self._is_sent.set()
        async with bounded():
            await self.is_over.wait()
        # What a later request of the page gets is read after the answers before it.
        await page.evaluate("fetch('/api/v1/upstreams').then((each) => each.json()).then(() => null)")


async def test_a_list_for_an_earlier_filter_does_not_replace_that_for_a_later_one(visitor: Visitor) -> None:
    page = visitor.page
    await answer(page, "callers?*", CALLERS)
    # A stream that opens would have the view read again.
    await EventStream.of(page)
    await visitor.sign_in()
    await visitor.go("Callers")
    rows = page.locator("#caller-rows tr")
    await expect(rows).to_contain_text(["c_0123456789abcdef"])
    late = await LateAnswer.to(page, "callers?*caller=c_a*", {**CALLERS, "items": [], "next": "a-cursor"})
    form = page.locator("#caller-filter")
    await form.get_by_label("Caller").fill("c_a")
    await form.get_by_role("button", name="Apply").click()
    await late.asked()
    await form.get_by_label("Caller").fill("c_0")
    async with page.expect_response("**/callers?*caller=c_0*"):
        await form.get_by_role("button", name="Apply").click()
    await late.send(page)
    await expect(rows).to_contain_text(["c_0123456789abcdef"])
    await expect(page.locator("#callers-next")).to_be_disabled()


async def test_an_error_of_an_earlier_filter_is_not_shown_for_a_later_one(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.sign_in()
    await expect(page.locator("#tasks-caption")).to_contain_text("0 tasks")
    late = await LateAnswer.to(page, "tasks?*tool=first*", {"error": {"message": "wrong"}}, 500)
    await page.get_by_label("Tool").first.fill("first")
    await page.get_by_role("button", name="Apply").first.click()
    await late.asked()
    await answer(page, "tasks?*tool=second*", {
        "now": "2026-11-28T08:00:00Z", "items": [task(2)], "next": None, "is_complete": True,
    })  # fmt: skip
    await page.get_by_label("Tool").first.fill("second")
    await page.get_by_role("button", name="Apply").first.click()
    await expect(page.locator("#task-rows th a")).to_have_text(["tool-2"])
    await late.send(page)
    await expect(page.locator("#message")).to_be_hidden()
    await expect(page.locator("#task-rows th a")).to_have_text(["tool-2"])


async def test_the_page_of_a_task_that_comes_late_does_not_replace_that_of_another(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor
) -> None:
    server.script["report"], server.script["echo"] = Hold(), Hold()
    host = await gateway.greeted()
    await host.start("report")
    await host.start("echo")
    await visitor.sign_in()
    page = visitor.page
    items = {item["tool"]: item for item in (await visitor.documents("/api/v1/tasks"))["items"]}
    reference = items["report"]["reference"]
    late = await LateAnswer.to(page, f"tasks/{reference}", await visitor.documents(f"/api/v1/tasks/{reference}"))
    await page.goto(f"{visitor.origin}/ui/tasks/{reference}")
    await late.asked()
    await visitor.go("Tasks")
    await page.get_by_role("link", name="echo", exact=True).click()
    await expect(page.locator("#task-title strong")).to_have_text("echo")
    await late.send(page)
    await expect(page.locator("#task-title strong")).to_have_text("echo")


async def test_an_answer_after_the_sign_out_is_not_shown(visitor: Visitor) -> None:
    page = visitor.page
    await answer(page, "refusals?*", REFUSALS)
    await visitor.sign_in()
    await expect(page.locator("#tasks-caption")).to_contain_text("0 tasks")
    late = await LateAnswer.to(page, "refusals?*", REFUSALS)
    await visitor.go("Refusals")
    await late.asked()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await late.send(page)
    await expect(page.locator("#refusal-rows tr")).to_have_count(0)


async def test_a_refusal_of_an_event_outlives_an_older_list(visitor: Visitor) -> None:
    page = visitor.page
    stream = await EventStream.of(page)
    await visitor.sign_in()
    await stream.connect()
    late = await LateAnswer.to(page, "refusals?*", REFUSALS)
    await visitor.go("Refusals")
    await late.asked()
    new = refusal("a new reason")
    await stream.send("refusal", new)
    await answer(page, "refusals?*", {**REFUSALS, "items": [new, *REFUSALS["items"]]})
    await late.send(page)
    await expect(page.locator("#refusal-rows tr").first).to_contain_text("a new reason")
