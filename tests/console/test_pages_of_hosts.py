"""A page of another origin is a host, in a real browser, if `server.allowed_origins` names its origin."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import Browser, Page

from helpers.chromium import PATIENCE_MS
from helpers.gateway.gateway import Gateway, serve
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import until
from requirements import covers

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOST = """async ([url, token]) => {
  window.told = [];
  const head = {"Content-Type": "application/json", Accept: "application/json, text/event-stream"};
  const send = (message, more = {}) => fetch(url, {
    method: "POST", headers: {...head, Authorization: `Bearer ${token}`, ...more},
    body: JSON.stringify({jsonrpc: "2.0", ...message}),
  });
  const refused = await fetch(url, {method: "POST", headers: head, body: '{"jsonrpc":"2.0","id":0,"method":"ping"}'});
  const opened = await send({id: 1, method: "initialize", params: {
    protocolVersion: "2025-11-25", capabilities: {}, clientInfo: {name: "page", version: "1"}}});
  const session = opened.headers.get("Mcp-Session-Id");
  const more = {"Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-11-25"};
  await opened.text();
  const noted = await send({method: "notifications/initialized"}, more);
  const called = await (await send({id: 2, method: "tools/call", params: {name: "echo", arguments: {}}}, more)).text();
  const headers = {...more, Accept: "text/event-stream", Authorization: `Bearer ${token}`};
  const stream = await fetch(url, {headers});
  const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
  const hear = async () => {
    for (;;) { const {done, value} = await reader.read(); if (done) return; window.told.push(value); }
  };
  hear();
  window.leave = async () => {
    const ended = await fetch(url, {method: "DELETE", headers: {...more, Authorization: `Bearer ${token}`}});
    const unknown = await send({id: 3, method: "ping"}, more);
    const nowhere = await fetch(url + "/nowhere", {method: "POST", headers: {...head, ...more}, body: "{}"});
    return [ended.status, unknown.status, nowhere.status];
  };
  return {
    refused: refused.status, challenge: refused.headers.get("WWW-Authenticate"), opened: opened.status, session,
    noted: noted.status, called, stream: stream.status,
  };
}"""
TRY = """async url => {
  try { await fetch(url, {method: "POST", headers: {"Content-Type": "application/json"}, body: "{}"}); return "read"; }
  catch (error) { return error.name; }
}"""


@asynccontextmanager
async def site() -> AsyncIterator[str]:
    """A web server with an empty page, and its origin."""

    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(text="<!doctype html><title>a host</title>", content_type="text/html")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def page_at(browser: Browser, origin: str) -> AsyncIterator[Page]:
    context = await browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    try:
        page = await context.new_page()
        await page.goto(origin)
        yield page
    finally:
        await context.close()


@asynccontextmanager
async def serving(server: ScriptedServer, issuer: TokenIssuer, *origins: str) -> AsyncIterator[Gateway]:
    more: dict[str, Any] = {"allowed_origins": list(origins)}
    async with serve(guarded({"reports": server.url}, issuer, server=more)) as gateway:
        yield gateway


@covers("T31")
async def test_a_page_of_an_allowed_origin_is_a_host(browser: Browser, server: ScriptedServer, tmp_path: Path) -> None:
    issuer = TokenIssuer(tmp_path)
    async with site() as origin, serving(server, issuer, origin) as gateway, page_at(browser, origin) as page:
        seen = await page.evaluate(HOST, [gateway.url(), issuer.token(gateway.url())])
        assert seen["session"]
        assert (seen["refused"], seen["opened"], seen["noted"], seen["stream"]) == (401, 200, 202, 200)
        assert seen["challenge"].startswith("Bearer ")
        assert '"result"' in seen["called"]
        await server.streaming()
        await server.push({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await until(_told(page))
        assert await page.evaluate("window.leave()") == [200, 404, 404]


@covers("T31")
async def test_a_page_of_another_origin_reads_nothing(browser: Browser, server: ScriptedServer, tmp_path: Path) -> None:
    issuer = TokenIssuer(tmp_path)
    async with (
        site() as origin,
        site() as other,
        serving(server, issuer, origin) as gateway,
        page_at(browser, other) as page,
    ):
        assert await page.evaluate(TRY, gateway.url()) == "TypeError"
        assert await gateway.count("taskgate_http_rejections_total", reason="bad_origin") > 0


def _told(page: Page) -> Callable[[], Any]:
    async def is_told() -> bool:
        return bool(await page.evaluate("window.told.join('').includes('list_changed')"))

    return is_told
