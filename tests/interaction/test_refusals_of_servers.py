"""Servers that refuse a request with an HTTP status and a body of their own: hosts get both as data."""

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.server import ScriptedServer, Turn, raw, status
from requirements import covers

DETAIL = {"detail": [{"loc": ["body", "year"], "msg": "Input should be a valid integer", "input": "x"}]}
PROBLEM = {"type": "about:blank", "title": "Quota exceeded", "status": 429, "detail": "10 of 10 reports"}
SCOPE = {"error": "insufficient_scope", "scope": "reports.write"}
REFUSALS: dict[str, tuple[int, bytes, str | None, Any]] = {
    "a validation of FastAPI": (422, json.dumps(DETAIL).encode(), "application/json", DETAIL),
    "a problem document": (409, json.dumps(PROBLEM).encode(), "application/problem+json", PROBLEM),
    "an error of OAuth": (403, json.dumps(SCOPE).encode(), "application/json; charset=utf-8", SCOPE),
    "a line of text": (400, b"year is missing\n", "text/plain", "year is missing"),
    "long text": (400, b"x" * 5000, "text/plain", "x" * 4096 + "…"),
    "long JSON": (500, json.dumps({"a": "é" * 5000}).encode(), "application/json", '{"a":"' + "é" * 4090 + "…"),
    "a page": (502, b"<html>bad gateway</html>", "text/html", None),
    "a page as text": (502, b"\n<!doctype html>bad gateway", "text/plain", None),
    "nothing": (403, b"", "application/json", None),
    "an empty object": (400, b"{}", "application/json", None),
    "bytes": (400, b"\xff\xfe\x00", "text/plain", None),
    "half a character": (400, b'{"detail": "\\ud800"}', "application/json", '{"detail": "\\ud800"}'),
    "a deep nest": (400, b"[" * 65 + b"]" * 65, "application/json", None),
    "a large body": (400, b"x" * 70_000, "text/plain", None),
    "a message of another call": (400, b'{"jsonrpc":"2.0","id":424242,"result":{"a":"b"}}', "application/json", None),
    "a refusal of credentials": (401, b'{"error":"invalid_token"}', "application/json", None),
}


def before(server: ScriptedServer, **keys: Any) -> dict[str, Any]:
    """The configuration of a gateway before a server of any era; `keys` are those of the upstream."""
    upstream = {"path": "/reports/mcp", "url": server.url, "protocol_version": "auto", **keys}
    return configuration({}, upstreams={"reports": upstream})


both_eras_of_servers = pytest.mark.parametrize("era", ["legacy", "modern"])
FIXED = "key-of-the-gateway"
CREDENTIALS = {"mode": "header", "header": "X-Api-Key", "value": FIXED}


@both_eras_of_servers
@pytest.mark.parametrize("as_task", [False, True], ids=["call", "task"])
@pytest.mark.parametrize(("code", "body", "media_type", "shown"), REFUSALS.values(), ids=REFUSALS)
async def test_the_data_of_the_error_has_status_and_body_of_a_refusal(
    era: Any, as_task: bool, code: int, body: bytes, media_type: str | None, shown: Any
) -> None:
    async with ScriptedServer(era) as server, serve(before(server)) as gateway:
        host = await gateway.greeted()
        server.script["echo"] = raw(body, content_type=media_type, status=code)
        if as_task:
            answer = await host.ask("tasks/result", {"taskId": (await host.start("echo"))["taskId"]})
        else:
            answer = await host.call("echo")
    data = answer.error["data"]
    assert (answer.code, data["reason"], data["dispatched"], data["httpStatus"]) == (
        -32603,
        "refused",
        code > 499,
        code,
    )
    assert data.get("body") == shown


@covers("A-AUTH-3")
@both_eras_of_servers
async def test_a_body_shows_neither_credentials_nor_the_address_of_the_server(era: Any) -> None:
    async with ScriptedServer(era) as server:
        url = f"{server.url}?tenant=acme-secret"
        headers = {"Authorization": "Bearer fixed/token"}
        async with serve(before(server, url=url, credentials=CREDENTIALS, headers=headers)) as gateway:
            host = await gateway.greeted()
            await host.call("echo")
            sent = server.requests[-1].headers
            echoed = {
                "key": FIXED,
                "token": "fixed/token",
                "headers": {sent["authorization"]: 1},
                "url": url,
                "path": "/mcp?tenant=acme-secret",
                "session": sent.get("mcp-session-id", ""),
                "host": f"{urlsplit(server.url).hostname} is not allowed",
                "kept": "Bearer of news",
            }
            body = json.dumps(echoed).replace("fixed/", "fixed\\/").encode()
            server.script["echo"] = raw(body, status=422)
            answer = await host.call("echo")
            mark = "[redacted]"
            assert answer.error["data"]["body"] == {
                **dict.fromkeys(("key", "token", "url", "path"), mark),
                "headers": {mark: 1},
                "session": mark if era == "legacy" else "",
                "host": f"{mark} is not allowed",
                "kept": "Bearer of news",
            }


async def test_a_body_in_which_a_secret_is_a_number_is_left_out() -> None:
    credentials = {**CREDENTIALS, "value": "12345678"}
    async with ScriptedServer() as server, serve(before(server, credentials=credentials)) as gateway:
        host = await gateway.greeted()
        server.script["echo"] = raw(b'{"key": 12345678}', status=422)
        data = (await host.call("echo")).error["data"]
    assert data == {"origin": "upstream", "reason": "refused", "dispatched": False, "httpStatus": 422}


@both_eras_of_servers
async def test_of_a_refused_handshake_the_status_alone_is_shown(era: Any) -> None:
    async with ScriptedServer(era) as server, serve(before(server)) as gateway:
        refuses = status(422, b"who are you")
        server.methods |= {"initialize": refuses, "server/discover": refuses}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}}
        answer = await gateway.host().ask("initialize", params)
    assert (answer.error["data"]["httpStatus"], "body" in answer.error["data"]) == (422, False)


@covers("A-AUTH-14")
@both_eras_of_servers
async def test_a_server_that_wants_credentials_is_told_from_one_that_refuses_them(era: Any) -> None:
    texts = {}
    for name, credentials in {"none": {}, "some": {"credentials": CREDENTIALS}}.items():
        async with ScriptedServer(era) as server, serve(before(server, **credentials)) as gateway:
            host = await gateway.greeted()
            for code in (401, 403):
                server.script["echo"] = status(code)
                texts[name, code] = (await host.call("echo")).error["message"]
    forbids = "The server forbids the request (HTTP status 403)"
    assert texts == {
        ("none", 401): "The server requires credentials, and none are configured: set upstreams.*.credentials",
        ("none", 403): forbids,
        ("some", 401): "The server refused the gateway's credentials",
        ("some", 403): forbids,
    }


async def test_a_body_that_does_not_end_delays_the_refusal_by_seconds_alone() -> None:
    async def refuses(turn: Turn) -> web.StreamResponse:
        response = web.StreamResponse(status=503, headers={"Content-Type": "text/plain"})
        await response.prepare(turn.request)
        await response.write(b"the rest follows")
        await asyncio.Event().wait()
        return response

    async with ScriptedServer() as server, serve(before(server)) as gateway:
        host = await gateway.greeted()
        server.script["echo"] = refuses
        began = asyncio.get_running_loop().time()
        data = (await host.call("echo")).error["data"]
        assert asyncio.get_running_loop().time() - began < 11
    assert (data["httpStatus"], "body" in data) == (503, False)
