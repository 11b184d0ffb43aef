"""A body is received for nobody whose token was not found good before."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.host.raw import post, raw_host
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from interaction.bare_requests import DENIED, SCOPES, challenge
from requirements import covers

JUDGED = "taskgate_auth_requests_total"
LARGE = str(3 * 1024 * 1024)
HELLO = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}},
    }
)


@pytest.fixture
async def gateway(server: ScriptedServer, issuer: TokenIssuer) -> AsyncIterator[Gateway]:
    """A gateway that asks for tokens."""
    async with serve(guarded({"reports": server.url}, issuer, auth=SCOPES)) as gateway:
        yield gateway


def knock(gateway: Gateway, body: str = "", **headers: str) -> bytes:
    """A POST at the mount."""
    address, port = gateway.address
    return post(body, path="/reports/mcp", host=f"{address}:{port}", **headers)


@covers("A-AUTH-1", "A-AUTH-10")
@pytest.mark.parametrize("authorization", ["", "Bearer nonsense"])
@pytest.mark.parametrize("more", [{}, {"Expect": "100-continue"}], ids=["unasked", "asking first"])
async def test_without_a_good_token_the_answer_comes_before_the_body_and_ends_the_connection(
    gateway: Gateway, authorization: str, more: dict[str, str]
) -> None:
    async with raw_host(gateway.address) as host:
        # The first head that comes: never that of a 100.
        answer = await host.ask(knock(gateway, Content_Length=LARGE, Authorization=authorization, **more))
        assert (answer.status, json.loads(answer.body)) == (401, DENIED)
        assert answer.headers["www-authenticate"] == challenge(gateway, sent=bool(authorization))
        assert answer.headers["connection"] == "close"
        assert await host.at_end()
    assert await gateway.counts("taskgate_http_rejections_total", "reason") == {"unauthenticated": 1}
    labels = ("http_route", "http_request_method", "http_response_status_code")
    assert await gateway.counts("http_server_request_duration_seconds_count", *labels) == {("mcp", "POST", "401"): 1}


@covers("A-AUTH-1")
async def test_with_a_good_token_a_host_that_asks_first_is_told_to_go_on_and_served(
    gateway: Gateway, issuer: TokenIssuer
) -> None:
    head: dict[str, Any] = {"Expect": "100-continue", "Authorization": f"Bearer {issuer.token(gateway.url())}"}
    async with raw_host(gateway.address) as host:
        await host.send(knock(gateway, Content_Length=str(len(HELLO)), **head))
        assert (await host.head()).status == 100
        answer = await host.ask(HELLO)
        assert answer.status == 200
        assert "mcp-session-id" in answer.headers


@covers("A-AUTH-1")
@pytest.mark.parametrize(
    ("length", "sent", "status", "reasons"),
    [("100", "{", 408, []), ("", "zz\r\n", 400, []), ("", f"401\r\n{'x' * 0x401}", 413, ["body_too_large"])],
    ids=["slow", "broken", "too large"],
)
async def test_what_is_wrong_with_a_body_is_told_to_whoever_may_send_one(
    server: ScriptedServer, issuer: TokenIssuer, length: str, sent: str, status: int, reasons: list[str]
) -> None:
    limits = {"max_body": "1KiB", "read_timeout": "50ms" if status == 408 else "30s"}
    framing = {"Content_Length": length, "Transfer_Encoding": "" if length else "chunked"}
    async with serve(guarded({"reports": server.url}, issuer, server=limits)) as gateway:
        token = issuer.token(gateway.url())
        async with raw_host(gateway.address) as host:
            await host.send(knock(gateway, **framing, Authorization=f"Bearer {token}"))
            await gateway.counted(JUDGED)
            answer = await host.ask(sent)
            assert (answer.status, answer.headers["connection"]) == (status, "close")
            assert answer.headers["content-type"].startswith("application/json")
            assert json.loads(answer.body)["id"] is None
            assert await host.at_end()
        assert await gateway.counts("taskgate_http_rejections_total", "reason") == dict.fromkeys(reasons, 1)
        assert await gateway.counts(JUDGED, "issuer", "result") == {("corp", "accepted"): 1}
        assert await gateway.count("mcp_server_operation_duration_seconds_count") == 0
