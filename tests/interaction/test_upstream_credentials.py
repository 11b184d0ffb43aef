"""What a server is shown when hosts call it through the gateway, and what of it comes back to them: nothing."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from helpers.exchange_server import ExchangeServer
from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.gateway.replicas import key_file
from helpers.server import Hold, ScriptedServer, raw, status
from helpers.stored_tasks import stored_task
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.falls import falling, leave_one_sent
from requirements import covers

TOLD = {"context": "X-Taskgate-Context", "subject": "X-Taskgate-Subject"}
NO_TOKEN = "The gateway could not get credentials for the server: the caller has no valid token"


@pytest.fixture
async def endpoint() -> AsyncIterator[ExchangeServer]:
    async with ExchangeServer() as endpoint:
        yield endpoint


def exchanging(server: ScriptedServer, endpoint: ExchangeServer, **more: Any) -> dict[str, Any]:
    """An upstream as in a file, whose server is shown exchanged tokens."""
    client, secret = endpoint.terms.client
    credentials = {
        "mode": "token_exchange",
        "token_url": endpoint.url,
        "client_id": client,
        "client_secret": secret,
        "audience": endpoint.terms.audience,
        "scopes": list(endpoint.terms.scopes),
    }
    return {"path": "/reports/mcp", "url": server.url, "credentials": credentials, **more}


@pytest.fixture
def config(server: ScriptedServer, endpoint: ExchangeServer, issuer: TokenIssuer) -> GatewayConfig:
    """Tokens of hosts are exchanged, and the server is told for whom."""
    return guarded({}, issuer, upstreams={"reports": exchanging(server, endpoint, identity_headers=TOLD)})


@pytest.fixture
async def gateway(config: GatewayConfig) -> AsyncIterator[Gateway]:
    async with serve(config) as gateway:
        yield gateway


def known(
    gateway: Gateway, endpoint: ExchangeServer, issuer: TokenIssuer, subject: str = "alice", **claims: Any
) -> str:
    """A token of somebody, which the endpoint knows too."""
    token = issuer.token(gateway.url(), subject=subject, **claims)
    endpoint.subjects[token] = subject
    return token


def everything(server: ScriptedServer) -> str:
    """All that the server was ever sent, but for its own addresses."""
    return "\n".join(json.dumps([request.headers, request.message]) for request in server.requests)


@covers("A-AUTH-3")
@pytest.mark.parametrize("as_task", [False, True], ids=["call", "task"])
async def test_a_servers_token_is_its_own_and_nothing_of_the_hosts_reaches_it(
    gateway: Gateway, server: ScriptedServer, endpoint: ExchangeServer, issuer: TokenIssuer, as_task: bool
) -> None:
    token = known(gateway, endpoint, issuer)
    host = await gateway.greeted(token=token)
    if as_task:
        task = await host.start("echo", {"a": 1})
        answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
    else:
        answer = await host.call("echo", {"a": 1})
    assert answer.result["structuredContent"] == {"a": 1}
    assert (endpoint.asked, endpoint.refusals) == (1, [])
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer issued-1.for_alice"}
    for part in token.split("."):
        assert part not in everything(server)
    assert "issued-1" not in f"{answer.text} {answer.headers}"


ATTEMPTS: Mapping[str, str] = {
    "X-Taskgate-Context": "somebody-else",
    "x-taskgate-subject": "root",
    "X_Taskgate_Subject": "root",
    "Cookie": "session=stolen",
    "Proxy-Authorization": "Basic c3RvbGVu",
    "X-Api-Key": "stolen",
    "X-Forwarded-For": "10.0.0.1",
    "Forwarded": "for=10.0.0.1",
    "Traceparent": "00-stolen",
    "X-Anything": "stolen",
}


@covers("A-AUTH-3", "T38")
async def test_hosts_cannot_set_a_header_that_the_server_sees(
    gateway: Gateway, server: ScriptedServer, endpoint: ExchangeServer, issuer: TokenIssuer
) -> None:
    host = await gateway.greeted(token=known(gateway, endpoint, issuer))
    call = {"name": "echo", "arguments": {}}
    assert (await host.ask("tools/call", call, headers=ATTEMPTS)).status == 200
    assert (await host.ask("tools/list", headers=ATTEMPTS)).status == 200
    told = {request.headers["x-taskgate-context"] for request in server.requests}
    assert len(told) == 1
    assert told != {"somebody-else"}
    assert {request.headers["x-taskgate-subject"] for request in server.requests} == {"alice"}
    for request in server.requests:
        assert set(request.headers) <= {
            *("accept", "accept-encoding", "content-length", "content-type", "host", "user-agent"),
            *("authorization", "mcp-protocol-version", "mcp-session-id", "x-taskgate-context", "x-taskgate-subject"),
        }
    for word in ("stolen", "somebody-else", "root", "10.0.0.1"):
        assert word not in everything(server)


@covers("A-AUTH-3")
async def test_the_newest_token_of_a_host_is_what_is_exchanged(
    gateway: Gateway, server: ScriptedServer, endpoint: ExchangeServer, issuer: TokenIssuer
) -> None:
    endpoint.lifetime = 0
    host = await gateway.greeted(token=known(gateway, endpoint, issuer, jti="first"))
    endpoint.subjects.clear()
    host.token = known(gateway, endpoint, issuer, jti="second")
    assert (await host.call("echo")).result
    host.token = known(gateway, endpoint, issuer, jti="third")
    endpoint.subjects = {host.token: "alice"}
    task = await host.start("echo")
    assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result
    assert endpoint.refusals == []


@covers("A-AUTH-3")
async def test_a_token_with_fewer_scopes_brings_no_more_than_it_is_good_for(
    gateway: Gateway, server: ScriptedServer, endpoint: ExchangeServer, issuer: TokenIssuer
) -> None:
    tokens = [known(gateway, endpoint, issuer, scope=scope) for scope in ("reports.admin", "reports.read")]
    host = await gateway.greeted(token=tokens[0])
    for token in (*tokens, *tokens):
        host.token = token
        await host.call("echo")
    calls = [request for request in server.verbs("POST") if request.message["method"] == "tools/call"]
    shown = [call.headers["authorization"].removeprefix("Bearer ") for call in calls]
    assert shown == [*endpoint.issued, *endpoint.issued]
    assert len({call.headers["mcp-session-id"] for call in calls}) == 1


@covers("A-AUTH-3")
async def test_a_task_leaves_with_the_token_of_who_made_it_whoever_comes_meanwhile(
    gateway: Gateway, server: ScriptedServer, endpoint: ExchangeServer, issuer: TokenIssuer
) -> None:
    narrow, wide = (known(gateway, endpoint, issuer, scope=scope) for scope in ("reports.read", "reports.admin"))
    endpoint.subjects |= {narrow: "narrow", wide: "wide"}
    server.methods["tools/list"] = hold = Hold()
    host = await gateway.greeted(token=narrow)
    making = asyncio.create_task(host.start("echo"))
    async with bounded():
        await hold.begun.wait()
        other = host.again()
        other.token = wide
        assert (await other.call("echo", {"n": 1})).result
        hold.release({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
        task = await making
    assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result
    sent = [request for request in server.verbs("POST") if request.message["method"] == "tools/call"]
    shown = [endpoint.owners[call.headers["authorization"].removeprefix("Bearer ")] for call in sent]
    assert shown == ["wide", "narrow"]


@covers("A-AUTH-3")
async def test_two_callers_share_neither_a_token_nor_a_session_of_the_server(
    gateway: Gateway, server: ScriptedServer, endpoint: ExchangeServer, issuer: TokenIssuer
) -> None:
    hosts = [await gateway.greeted(token=known(gateway, endpoint, issuer, name)) for name in ("alice", "bob")]
    await asyncio.gather(*(host.call("echo", {"n": n}) for n in range(5) for host in hosts))
    seen = {
        (request.headers["x-taskgate-subject"], request.headers["authorization"], request.headers["mcp-session-id"])
        for request in server.requests
        if "mcp-session-id" in request.headers
    }
    assert len(seen) == 2
    assert {(subject, token.partition("for_")[2]) for subject, token, _ in seen} == {("alice",) * 2, ("bob",) * 2}
    assert len({session for _, _, session in seen}) == 2
    assert len({request.headers["x-taskgate-context"] for request in server.requests}) == 2
    assert endpoint.asked == 2


@covers("A-AUTH-14")
@pytest.mark.parametrize("code", [401, 403])
@pytest.mark.parametrize("as_task", [False, True], ids=["call", "task"])
async def test_a_server_that_refuses_the_gateway_is_no_reason_for_a_host_to_look_for_another_token(
    gateway: Gateway,
    server: ScriptedServer,
    endpoint: ExchangeServer,
    issuer: TokenIssuer,
    code: int,
    as_task: bool,
) -> None:
    challenge = {"WWW_Authenticate": 'Bearer realm="inside", error="invalid_token"'}
    server.script["echo"] = raw(b"who is issued-1.for_alice", content_type="text/plain", status=code, **challenge)
    host = await gateway.greeted(token=known(gateway, endpoint, issuer))
    if as_task:
        task = await host.start("echo")
        answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
    else:
        answer = await host.call("echo")
    assert (answer.status, answer.code) == (200, -32603)
    text, body = "The server refused the gateway's credentials", {}
    if code == 403:
        text, body = "The server forbids the request (HTTP status 403)", {"body": "who is [redacted]"}
    assert answer.error["message"] == text
    told = {"origin": "upstream", "reason": "refused", "dispatched": False, "httpStatus": code}
    assert answer.error["data"] == told | body
    assert "WWW-Authenticate" not in answer.headers
    assert "issued-1" not in answer.text
    # A token that was used before may have been revoked: the call is sent once more with another.
    assert (len(server.heard("tools/call")), endpoint.asked) == ((2, 2) if code == 401 else (1, 1))
    failures = {"upstream": "reports", "error_type": "refused"}
    assert await gateway.count("mcp_client_operation_duration_seconds_count", **failures) == 1


@pytest.mark.parametrize(("code", "state"), [("invalid_target", "up"), ("unauthorized_client", "refusing")])
async def test_what_an_endpoint_refuses_one_caller_says_nothing_of_the_server(
    gateway: Gateway, endpoint: ExchangeServer, issuer: TokenIssuer, code: str, state: str
) -> None:
    alice = gateway.host(token=known(gateway, endpoint, issuer))
    await alice.initialize()
    await alice.call("echo")

    async def refuse(_: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"error": code}, status=400)

    endpoint.instead = refuse
    for number in range(3):
        host = gateway.modern(token=known(gateway, endpoint, issuer, f"mallory-{number}"))
        assert "could not get credentials" in (await host.call("echo")).error["message"]
        await asyncio.sleep(1)
    assert (await gateway.upstream())["state"] == state


@covers("A-AUTH-14")
async def test_an_endpoint_that_gives_nothing_is_told_without_a_word_of_it(
    gateway: Gateway, server: ScriptedServer, endpoint: ExchangeServer, issuer: TokenIssuer
) -> None:
    host = gateway.host(token=issuer.token(gateway.url()))
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
    answer = await host.ask("initialize", params)
    assert (answer.status, answer.code) == (200, -32603)
    text = "The gateway could not get credentials for the server: the user must sign in again in the host"
    assert answer.error["message"] == text
    assert answer.error["data"] == {"origin": "upstream", "reason": "refused", "dispatched": False}
    assert endpoint.refusals == ["invalid_grant: subject_token"]
    assert server.requests == []
    assert "invalid_grant" not in answer.text


async def test_metrics_hold_nothing_of_what_is_shown(
    gateway: Gateway, endpoint: ExchangeServer, issuer: TokenIssuer
) -> None:
    await (await gateway.greeted(token=known(gateway, endpoint, issuer))).call("echo")
    page = await gateway.metrics()
    for secret in ("issued-1", endpoint.terms.client[1], "alice", endpoint.url):
        assert secret not in page


@pytest.mark.parametrize("needed", ["a token", "a name"])
async def test_a_task_that_was_never_sent_ends_after_a_restart_where_its_caller_must_be_known(
    server: ScriptedServer, endpoint: ExchangeServer, issuer: TokenIssuer, tmp_path: Path, needed: str
) -> None:
    named = {"path": "/reports/mcp", "url": server.url, "identity_headers": TOLD}
    upstream = {**(exchanging(server, endpoint) if needed == "a token" else named), "concurrency": 1}
    auth = {"issuers": {"corp": issuer.section}, "context": {"key_file": str(key_file(tmp_path))}}
    sections: dict[str, Any] = {"auth": {"mode": "required", **auth}, "server": {"public_url": "https://m.example"}}
    token = issuer.token("https://m.example/reports/mcp")
    endpoint.subjects[token] = "alice"
    async with falling(server, tmp_path, upstreams={"reports": upstream}, **sections) as gateway:
        host = await gateway.greeted(token=token)
        _, unsent = await leave_one_sent(server, tmp_path, host, host)
    asked = endpoint.asked
    async with serve(
        configuration({}, upstreams={"reports": upstream}, folder=tmp_path, **sections), data_directory=tmp_path
    ) as gateway:
        await stored_task(tmp_path, unsent, lambda task: task.status == "failed")
        assert (endpoint.asked, server.requests) == (asked, [])
        found = await gateway.modern(token=token).until(unsent, "failed")
    assert NO_TOKEN in str(found)


async def test_nothing_of_a_token_is_stored(
    server: ScriptedServer, endpoint: ExchangeServer, issuer: TokenIssuer, tmp_path: Path
) -> None:
    upstreams = {"reports": exchanging(server, endpoint)}
    async with serve(guarded({}, issuer, upstreams=upstreams, folder=tmp_path), data_directory=tmp_path) as gateway:
        token = known(gateway, endpoint, issuer)
        host = await gateway.greeted(token=token)
        task = await host.start("echo")
        assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("taskgate.db*"))
    assert task["taskId"].encode() in stored
    for secret in (b"issued-1", *(part.encode() for part in token.split("."))):
        assert secret not in stored


async def test_a_refusal_of_the_moment_costs_no_token(
    gateway: Gateway, server: ScriptedServer, endpoint: ExchangeServer, issuer: TokenIssuer
) -> None:
    server.script["echo"] = status(503)
    host = await gateway.greeted(token=known(gateway, endpoint, issuer))
    for _ in range(3):
        assert (await host.call("echo")).code == -32603
    assert endpoint.asked == 1
