"""Every request needs a token, whatever it is about; without one nothing is read, and everybody hears the same."""

import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.raw import get, post, raw_host
from helpers.server import ScriptedServer, result
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import eventually
from interaction.bare_requests import DENIED, SCOPES, ask, challenge
from interaction.conftest import Told
from requirements import covers

REFUSED = "taskgate_http_rejections_total"
JUDGED = "taskgate_auth_requests_total"


@pytest.fixture
async def gateway(server: ScriptedServer, issuer: TokenIssuer) -> AsyncIterator[Gateway]:
    """A gateway that asks for tokens; it uses its store for nobody but its hosts."""
    config = guarded({"reports": server.url}, issuer, auth=SCOPES, store={"purge_interval": "1h"})
    async with serve(config) as gateway:
        yield gateway


@covers("A-AUTH-1", "A-AUTH-5", "A-AUTH-6", "A-AUTH-9", "A-AUTH-10", "H-HTTP-2")
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer nonsense", "Basic YTpi"])
async def test_without_a_good_token_nothing_is_done_and_the_challenge_says_where_to_get_one(
    gateway: Gateway, server: ScriptedServer, verb: str, authorization: str | None
) -> None:
    before = await stored(gateway)
    code, headers, body = await ask(gateway, verb, authorization=authorization)
    assert (code, body) == (401, DENIED)
    assert headers["WWW-Authenticate"] == challenge(gateway, sent=bool(authorization))
    assert server.requests == []
    # A scrape itself asks the store once whether the gateway is ready.
    assert await stored(gateway) == {**before, "load": before["load"] + 1}
    assert await gateway.counts(REFUSED, "reason") == {"unauthenticated": 1}
    assert await gateway.counts(JUDGED, "issuer", "result") == {("_OTHER", "rejected"): 1}
    assert await gateway.count("taskgate_active_contexts") == 0


async def stored(gateway: Gateway) -> dict[Any, float]:
    """The operations of the store so far, but for those that are counted on its own account."""
    done = await gateway.counts("taskgate_store_operation_duration_seconds_count", "operation")
    return {operation: times for operation, times in done.items() if operation != "count"}


def bad_tokens(gateway: Gateway, issuer: TokenIssuer, folder: Path) -> dict[str, tuple[str, tuple[str, str]]]:
    """Tokens that are wrong in one way each, and the issuer and the reason that are counted for them."""
    here, now = gateway.url(), int(time.time())
    good = issuer.token(here)
    stranger = TokenIssuer(folder, number=1)
    return {
        "expired": (issuer.token(here, exp=now - 60), ("corp", "expired")),
        "not yet valid": (issuer.token(here, nbf=now + 600), ("corp", "not_yet_valid")),
        "of another audience": (issuer.token(here + "/"), ("corp", "audience")),
        "of another issuer": (issuer.token(here, iss="https://idp.example.com"), ("_OTHER", "issuer")),
        "signed by somebody else": (good.rpartition(".")[0] + ".c2ln", ("corp", "signature")),
        "of an unknown key": (stranger.token(here, iss=issuer.issuer), ("corp", "unknown_kid")),
        "without a subject": (issuer.token(here, sub=...), ("corp", "claim")),
        "cut off": (good[:-50].rpartition(".")[0], ("_OTHER", "malformed")),
    }


EXPLAINED = {
    "expired": "the token expired 6[0-9] s ago",
    "not_yet_valid": "nbf is 9 min ahead of this clock|nbf is 10 min ahead of this clock",
    "audience": "aud is {here}/: this resource is {here}",
    "claim": "the token has no sub",
}
"""What a host hears of a token with a good signature, by the reason."""


@covers("A-AUTH-2", "A-AUTH-10", "T11")
async def test_of_a_token_that_may_be_forged_a_host_hears_the_same_and_the_operator_the_cause(
    gateway: Gateway, server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    heard = set()
    counted: Counter[tuple[str, str]] = Counter()
    for token, judged in bad_tokens(gateway, issuer, tmp_path).values():
        code, headers, body = await ask(gateway, "POST", authorization=f"Bearer {token}")
        fields = {name: value for name, value in headers.items() if name not in ("Date", "Content-Length")}
        if judged[1] not in EXPLAINED:
            heard.add((code, json.dumps(body), json.dumps(fields)))
        else:
            assert code == 401
            detail = body["error"]["message"].removeprefix("The token is not accepted: ")
            assert re.fullmatch(EXPLAINED[judged[1]].format(here=re.escape(gateway.url())), detail)
            assert headers["WWW-Authenticate"].endswith(f', error_description="{detail}"')
        counted[judged] += 1
        assert await gateway.counts(JUDGED, "issuer", "reason") == counted
    assert heard == {(401, json.dumps(DENIED), fields) for *_, fields in heard}
    assert len(heard) == 1
    assert server.requests == []
    # None of them was found good before.
    assert await gateway.count("taskgate_token_cache_lookups_total", result="hit") == 0


@covers("A-AUTH-1", "T8")
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_a_token_in_the_query_is_refused_beside_a_good_one_too_and_counted(
    gateway: Gateway, issuer: TokenIssuer, verb: str
) -> None:
    token = issuer.token(gateway.url())
    for authorization in (None, f"Bearer {token}"):
        code, headers, body = await ask(gateway, verb, authorization=authorization, query=f"?access_token={token}")
        assert (code, body) == (401, DENIED)
        assert headers["WWW-Authenticate"] == challenge(gateway, sent=True)
    assert await gateway.counts(JUDGED, "issuer", "reason") == {("_OTHER", "query_token"): 2}


@covers("A-AUTH-1")
async def test_two_authorization_headers_are_none_that_counts(gateway: Gateway, issuer: TokenIssuer) -> None:
    token, address = issuer.token(gateway.url()), gateway.address
    lines = f"Authorization: Bearer {token}\r\nauthorization: Bearer {token}\r\n\r\n".encode()
    head = get("/reports/mcp", host=f"{address[0]}:{address[1]}").removesuffix(b"\r\n") + lines
    async with raw_host(address) as host:
        assert (await host.ask(head)).status == 401
    assert await gateway.counts(JUDGED, "issuer", "reason") == {("_OTHER", "malformed"): 1}


@covers("A-AUTH-10")
async def test_the_connection_goes_on_after_a_refusal_and_nothing_of_it_sticks(
    gateway: Gateway, issuer: TokenIssuer
) -> None:
    address = gateway.address
    where = {"path": "/reports/mcp", "host": f"{address[0]}:{address[1]}"}
    hello = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "h", "version": "1"},
            },
        }
    )
    async with raw_host(address) as host:
        refused = await host.ask(post(hello, **where))
        welcome = await host.ask(post(hello, **where, Authorization=f"Bearer {issuer.token(gateway.url())}"))
        again = await host.ask(post(hello, **where))
    assert [answer.status for answer in (refused, welcome, again)] == [401, 200, 401]
    assert "mcp-session-id" in welcome.headers
    assert "www-authenticate" not in welcome.headers
    assert again.body == refused.body


@covers("A-AUTH-1")
async def test_every_message_of_a_session_needs_its_own_token(gateway: Gateway, issuer: TokenIssuer) -> None:
    host = await gateway.greeted(token=issuer.token(gateway.url()))
    host.token = None
    assert (await host.ask("ping")).status == 401
    assert (await host.tell("notifications/initialized")).status == 401
    assert await host.leave() == 401
    host.token = issuer.token(gateway.url())
    assert (await host.ask("ping")).result == {}
    assert await host.leave() == 200


@covers("A-AUTH-13")
async def test_a_new_token_of_the_same_caller_goes_on_with_session_and_task(
    gateway: Gateway, server: ScriptedServer, issuer: TokenIssuer
) -> None:
    host = await gateway.greeted(token=issuer.token(gateway.url(), jti="1", scope="a.read"))
    task = await host.start("echo", {"a": 1})
    host.token = issuer.token(gateway.url(), jti="2", scope="b.write")
    assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["structuredContent"] == {"a": 1}


@covers("A-AUTH-3", "T6", "T37")
async def test_neither_token_nor_cookie_crosses_in_either_direction(
    server: ScriptedServer, issuer: TokenIssuer, gateway: Gateway
) -> None:
    async def with_cookie(turn: Any) -> Any:
        response = await result({"content": []})(turn)
        response.headers["Set-Cookie"] = "upstream=1; Path=/"
        response.headers["WWW-Authenticate"] = "Bearer upstream"
        return response

    server.script["echo"] = server.script["report"] = with_cookie
    gateway.http.cookie_jar.update_cookies({"host": "1"})
    host = await gateway.greeted(token=issuer.token(gateway.url()))
    async with host.listen():
        await server.streaming()
        answer = await host.call("echo")
        task = await host.start("report")
        await host.ask("tasks/result", {"taskId": task["taskId"]})
        await host.call("echo")
    await host.leave()
    await eventually(lambda: server.verbs("DELETE"))
    assert answer.status == 200
    assert not {"Set-Cookie", "WWW-Authenticate"} & set(answer.headers)
    assert {verb.verb for verb in server.requests} == {"POST", "GET", "DELETE"}
    for request in server.requests:
        assert not {"authorization", "cookie"} & request.headers.keys()
        assert "eyJ" not in f"{request}"


@covers("A-AUTH-14")
@pytest.mark.parametrize("code", [401, 403])
async def test_a_servers_own_refusal_of_the_gateway_is_no_challenge_to_the_host(
    server: ScriptedServer, gateway: Gateway, issuer: TokenIssuer, code: int
) -> None:
    async def refuse(turn: Any) -> aiohttp.web.StreamResponse:
        return aiohttp.web.Response(status=code, headers={"WWW-Authenticate": 'Bearer realm="upstream"'})

    server.script["echo"] = refuse
    host = await gateway.greeted(token=issuer.token(gateway.url()))
    answer = await host.call("echo")
    assert (answer.status, answer.code) == (200, -32603)
    assert "WWW-Authenticate" not in answer.headers


# --- without authentication -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("asks", [False, True])
async def test_a_gateway_that_asks_nobody_for_a_token_says_so_at_each_start(
    server: ScriptedServer, issuer: TokenIssuer, told: Told, asks: bool
) -> None:
    servers = {"reports": server.url}
    for _ in range(2):
        async with serve(guarded(servers, issuer) if asks else configuration(servers)):
            pass
    warnings = [text for text in told.texts if "all hosts that reach the listener are one caller" in text]
    assert len(warnings) == (0 if asks else 2)
