"""The console lets an operator in with a token, and shows what its role may see."""

import json
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import expect

from console.visitor import Visitor
from helpers.gateway.gateway import Gateway
from helpers.server import Hold, ScriptedServer
from interaction.operators import OPS, ROLES, VIEWER
from requirements import covers

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOKEN = OPS.removeprefix("Bearer ")


async def test_an_operator_signs_in_with_a_token_and_out_again(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.open()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await page.get_by_label("Token", exact=True).fill("a-wrong-token-of-nothing")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("#message")).to_have_text("The token is wrong.")
    await page.get_by_label("Token", exact=True).fill(TOKEN)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="What happened")).to_be_visible()
    [cookie] = await page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    assert TOKEN not in cookie["value"]
    await page.reload()
    await expect(page.locator("#operator")).to_have_text("ops (operator)")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert await page.context.cookies() == []


async def test_a_link_with_a_token_signs_in_and_the_address_keeps_no_token(visitor: Visitor) -> None:
    requested: list[str] = []
    visitor.page.on("request", lambda request: requested.append(request.url))
    await visitor.open("#token=a-wrong-token-of-nothing")
    await expect(visitor.page.locator("#message")).to_have_text("The token of the link is wrong.")
    await visitor.sign_in()
    assert visitor.page.url == f"{visitor.origin}/ui/tasks"
    assert [url for url in requested if TOKEN in url] == []


@covers("T31", "T53")
async def test_a_link_shows_whose_token_it_has_and_signs_in_when_that_is_confirmed(visitor: Visitor) -> None:
    page = visitor.page
    for name, role in (("looks", "viewer"), ("ops", "operator")):
        await visitor.open(f"#token={ROLES[name][1].removeprefix('Bearer ')}")
        await expect(page.get_by_role("dialog")).to_contain_text(f"The link has the token of {name} ({role}).")
        assert await page.context.cookies() == []
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        await page.reload()
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert await page.context.cookies() == []
    await visitor.sign_in("looks")


async def test_a_link_does_not_replace_the_operator_of_a_page(visitor: Visitor) -> None:
    await visitor.sign_in()
    for name in ("a-wrong-token-of-nothing", VIEWER.removeprefix("Bearer ")):
        await visitor.open(f"#token={name}")
        await expect(visitor.page).to_have_url(f"{visitor.origin}/ui")
        await expect(visitor.page.locator("#operator")).to_have_text("ops (operator)")


async def test_a_viewer_sees_tasks_and_servers_and_no_button_that_acts(
    gateway: Gateway, server: ScriptedServer, visitor: Visitor
) -> None:
    server.script["report"] = Hold()
    await (await gateway.greeted()).start("report")
    await visitor.sign_in("looks")
    row = visitor.row("reports")
    await expect(row).to_have_count(1)
    await expect(row.get_by_role("button")).to_have_count(0)
    await row.get_by_role("link").click()
    shown = visitor.page.locator("#view-task")
    await expect(shown.get_by_role("button")).to_have_text(["Copy the link", "Copy as CLI"])
    await expect(visitor.page.locator("#task-cancel")).to_be_hidden()
    await visitor.go("Servers")
    await expect(visitor.row("reports")).to_have_count(1)
    await expect(visitor.row("reports").get_by_role("button")).to_have_count(0)
    # A page of a viewer that asks all the same is refused.
    refused: Any = await visitor.page.evaluate(
        "async () => { const headers = {'Taskgate-Console': sessionStorage.getItem('Taskgate-Console')};"
        " const answer = await fetch('/api/v1/upstreams/reports/hold', {method: 'POST', headers});"
        " return [answer.status, await answer.text()]; }"
    )
    assert (refused[0], json.loads(refused[1])["error"]["code"]) == (403, "not_allowed")


async def test_another_tab_signs_in_on_its_own_and_the_first_one_stays_signed_in(visitor: Visitor) -> None:
    await visitor.sign_in()
    other = await visitor.page.context.new_page()
    await other.goto(f"{visitor.origin}/ui")
    await expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
    await other.get_by_label("Token", exact=True).fill(TOKEN)
    await other.keyboard.press("Enter")
    await expect(other.locator("#operator")).to_have_text("ops (operator)")
    for page in (other, visitor.page):
        await page.reload()
        await expect(page.locator("#operator")).to_have_text("ops (operator)")


@covers("T31", "T53")
async def test_a_web_server_at_another_port_of_the_host_gets_the_cookie_and_cannot_use_it(
    visitor: Visitor, gateway: Gateway
) -> None:
    received: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        received.append(request.headers.get("Cookie", ""))
        return web.Response(text="<p>another page</p>", content_type="text/html")

    await visitor.sign_in()
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        await visitor.page.goto(f"http://127.0.0.1:{runner.addresses[0][1]}/")
        assert await visitor.page.evaluate("sessionStorage.length") == 0
    finally:
        await runner.cleanup()
    replayed = {"Cookie": received[0], "Origin": visitor.origin, "Sec-Fetch-Site": "same-origin"}
    assert "taskgate_console=" in received[0]
    for path, method in (("/api/v1/tasks", "GET"), ("/api/v1/upstreams/reports/hold", "POST"), ("/ui/session", "GET")):
        assert (await gateway.operators_answer(path, method, **replayed))[0] == 401
    await visitor.page.go_back()
    await expect(visitor.page.locator("#operator")).to_have_text("ops (operator)")
