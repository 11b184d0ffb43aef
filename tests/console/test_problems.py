"""The overview of the console says what is wrong: of servers, and of the gateway itself."""

from typing import Any

import pytest
from playwright.async_api import Route, expect

from console.standins import EventStream, answer
from console.story import CAUSE
from console.visitor import Visitor
from helpers.gateway.gateway import Gateway
from interaction.operators import look

pytestmark = pytest.mark.asyncio(loop_scope="session")

SINCE = "2026-11-28T07:00:00Z"
NOT_READY: dict[str, Any] = {
    "status": "not ready",
    "checks": {"started": True, "store": True, "store_writes": False, "keys": True},
    "issuers": {
        "corp": {"keys": 0, "place": "https://corp", "cause": "HTTP 500", "since": SINCE, "refused": 7},
        "other": {"keys": 2, "place": "https://other", "cause": None, "since": None, "refused": 0},
    },
    "audit": {"file": {"cause": "No space left on device", "since": SINCE, "waiting": 12}},
    "vanished": {"gw-2": SINCE},
}


async def test_each_problem_has_its_cause_and_since_when_and_what_is_well_is_no_problem(
    gateway: Gateway, visitor: Visitor
) -> None:
    listed = await look(gateway, "/api/v1/upstreams")
    listed["items"][0] |= {"state": "held", "is_held": True, "calls": 4, "limit": 4, "waiting": 2}
    listed["items"][1] |= {"state": "down", "cause": CAUSE, "since": SINCE}
    await answer(visitor.page, "upstreams", listed)

    async def is_not_ready(route: Route) -> None:
        await route.fulfill(status=503, json=NOT_READY)

    await visitor.page.route("**/readyz?verbose", is_not_ready)
    await visitor.sign_in(view="Overview")
    problems = visitor.page.locator("#problems li p")
    await expect(problems).to_contain_text(
        [
            "books is held by an operator.",
            "books has 4 calls in use, its limit, and 2 wait",
            f"reports is down: {CAUSE} since 07:00:00",
            "The task store takes no writes.",
            "corp: its keys cannot be fetched: HTTP 500 since 07:00:00",
            "The audit log cannot be written to file: No space left on device since 07:00:00",
            "Replica gw-2 is gone since 07:00:00.",
        ]
    )
    await expect(problems).to_have_count(7)
    await expect(problems.nth(4)).to_contain_text("7 requests refused")
    await visitor.page.locator("#problems").get_by_role("button", name="Release books").click()
    await expect(visitor.page.locator("#message")).to_have_text("Released: books.")


async def test_what_cannot_be_read_leaves_the_other_parts_and_its_error_goes_with_the_next_success(
    visitor: Visitor,
) -> None:
    page = visitor.page

    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, json={"error": {"code": "store", "message": "the store does not answer"}})

    async def is_not_ready(route: Route) -> None:
        await route.fulfill(status=503, json={"checks": {"store": False}})

    await page.route("**/api/v1/tasks?*", refuse)
    await page.route("**/api/v1/callers?*", refuse)
    await page.route("**/readyz?verbose", is_not_ready)
    await visitor.sign_in(view="Overview")
    await expect(page.locator("#message")).to_have_text("Overview: the store does not answer")
    await expect(page.locator("#problems li p")).to_have_text(["The task store does not answer: hosts get 503."])
    await expect(page.locator("#overview-servers tr")).to_have_count(2)
    await page.unroute("**/api/v1/tasks?*")
    await page.unroute("**/api/v1/callers?*")
    await visitor.go("Overview")
    await expect(page.locator("#message")).to_be_hidden()


async def test_an_error_stays_as_long_as_what_it_is_about_is_refused(visitor: Visitor) -> None:
    page = visitor.page

    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, json={"error": {"code": "busy", "message": "too many requests"}})

    await page.route("**/api/v1/history", refuse)
    stream = await EventStream.of(page)
    await visitor.sign_in(view="Servers")
    await expect(page.locator("#message")).to_have_text("Servers: too many requests")
    async with page.expect_response("**/api/v1/history") as again:
        await stream.open()
    await (await again.value).finished()
    # What a later request of the page gets is read after the answer before it.
    await page.evaluate("fetch('/api/v1/upstreams').then((each) => each.json()).then(() => null)")
    await expect(page.locator("#message")).to_have_text("Servers: too many requests")


async def test_a_gateway_that_is_well_has_no_problem(visitor: Visitor) -> None:
    await visitor.sign_in(view="Overview")
    await expect(visitor.page.locator("#numbers li")).to_have_count(6)
    await expect(visitor.page.locator("#overview-servers tr")).to_have_count(2)
    await expect(visitor.page.locator("#problems li")).to_have_count(0)
