"""While a server is down, hosts are told what it said last, and that this is not of now; calls fail as ever."""

import json
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from helpers.exchange_server import ExchangeServer
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, __version__, serve
from helpers.host.host import ERAS
from helpers.modern_schema import SERVER
from helpers.server import PROGRAM, Hold, Reply, ScriptedServer, breaks_off, error, status
from helpers.server.sse import SseServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.server_identity import GATEWAY, INFO, before, info_of, server_of, welcome

both_hosts = pytest.mark.parametrize("host", ERAS)
both_servers = pytest.mark.parametrize("upstream", ERAS)
FRESH, STALE = {"version": __version__}, {"version": __version__, "stale": True}
FORMS = {"elicitation": {"form": {}}}
ASKS = {"legacy": "initialize", "modern": "server/discover"}


async def refusal(gateway: Gateway, era: str, **more: Any) -> dict[str, Any]:
    """The error that a new host of that era is told instead of a welcome."""
    if era == "modern":
        return (await gateway.modern(**more).ask("server/discover")).error
    client = {"name": "host", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": more.get("capabilities", {}), "clientInfo": client}
    return (await gateway.host(token=more.get("token")).ask("initialize", params)).error


def is_unreachable(told: dict[str, Any]) -> bool:
    """Whether that is what hosts are told of a server that is down."""
    return (told["code"], told["data"]["reason"], told["data"]["dispatched"]) == (-32603, "unreachable", False)


async def met_in_vain(gateway: Gateway, **more: Any) -> None:
    """A call that fails: the sessions of hosts without any of their own stand, and who is in them finds out so."""
    assert "code" in (await gateway.modern(**more).call("echo")).error


@both_hosts
@both_servers
async def test_a_host_is_told_what_a_server_that_is_down_said_last(host: str, upstream: str) -> None:
    async with server_of(upstream) as server, before(server) as gateway:
        server.also = {"instructions": "Ask nicely.", "x-region": "eu", "_meta": {"com.example/a": 1}}
        first = await welcome(gateway, host)
        await server.stop()
        await met_in_vain(gateway)
        again = await welcome(gateway, host)
    assert (first["_meta"].pop(GATEWAY), again["_meta"].pop(GATEWAY)) == (FRESH, STALE)
    assert again == first
    assert info_of(again, host) == INFO


@both_servers
async def test_a_session_that_was_opened_without_its_server_works_once_that_is_back(upstream: str) -> None:
    async with server_of(upstream) as server, before(server, circuit_breaker=None) as gateway:
        await gateway.greeted()
        await server.stop()
        host = gateway.host()
        assert (await host.initialize())["_meta"][GATEWAY] == STALE
        refused = [await host.call("echo"), await host.ask("tools/list"), await gateway.modern().call("echo")]
        await server.come_back()
        listed, called = await host.ask("tools/list"), await host.call("echo", {"a": 1})
        as_task = await host.start("echo", {"a": 2})
        done = await host.ask("tasks/result", {"taskId": as_task["taskId"]})
    assert all(is_unreachable(answer.error) for answer in refused)
    assert [tool["name"] for tool in listed.result["tools"]] == ["echo"]
    assert (called.result["structuredContent"], done.result["structuredContent"]) == ({"a": 1}, {"a": 2})


@both_servers
async def test_a_host_that_asks_again_is_told_what_the_server_says_now(upstream: str) -> None:
    host = "legacy"
    async with server_of(upstream) as server, before(server) as gateway:
        await welcome(gateway, host)
        await server.stop()
        stale = await welcome(gateway, host)
        server.capabilities = {"prompts": {}}
        server.info = {"name": "reports", "version": "3"}
        await server.come_back()
        fresh = await welcome(gateway, host)
    assert ("prompts" in stale["capabilities"], "prompts" in fresh["capabilities"]) == (False, True)
    assert info_of(fresh, host) == {"name": "reports", "version": "3"}
    assert fresh["_meta"][GATEWAY] == FRESH


@both_hosts
@both_servers
async def test_of_a_server_that_nobody_met_nothing_is_told(host: str, upstream: str) -> None:
    async with server_of(upstream) as server, before(server) as gateway:
        await server.stop()
        assert is_unreachable(await refusal(gateway, host))


@both_hosts
@both_servers
async def test_what_a_server_said_to_others_is_not_told_to_a_host_that_declares_more(host: str, upstream: str) -> None:
    async with server_of(upstream) as server, before(server) as gateway:
        await welcome(gateway, host)
        await server.stop()
        assert is_unreachable(await refusal(gateway, host, capabilities=FORMS))


@both_servers
async def test_hosts_of_both_eras_that_declare_the_same_share_what_it_said(upstream: str) -> None:
    async with server_of(upstream) as server, before(server) as gateway:
        await gateway.modern(tasks=False).call("echo")
        await server.stop()
        told = await gateway.host().initialize()
    assert (told["_meta"][GATEWAY], told["serverInfo"]) == (STALE, INFO)


# --- what counts as down


DOWN: dict[str, Callable[[], Reply]] = {
    "500": lambda: status(500),
    "502": lambda: status(502),
    "503 with a word": lambda: error(-32000, "not now", status=503),
    "closed": breaks_off,
    "silent": Hold,
}
UP: dict[str, Callable[[], Reply]] = {
    "an error": lambda: error(-32602, "no"),
    "401": lambda: status(401),
    "403": lambda: status(403),
    "429": lambda: status(429),
}


@pytest.mark.parametrize("how", DOWN)
@both_servers
async def test_a_server_is_down_that_does_not_answer_who_it_is(upstream: str, how: str) -> None:
    async with server_of(upstream) as server, before(server, timeouts={"first_byte": "300ms"}) as gateway:
        await welcome(gateway, "legacy")
        for method in ("initialize", "server/discover"):
            server.methods[method] = DOWN[how]()
        async with bounded():
            assert (await welcome(gateway, "legacy"))["_meta"][GATEWAY] == STALE


@both_servers
async def test_a_session_that_stands_tells_of_no_outage_once_its_server_answers(upstream: str) -> None:
    async with server_of(upstream) as server, before(server) as gateway:
        first = await welcome(gateway, "modern")
        await server.stop()
        unknown = await welcome(gateway, "modern")
        await met_in_vain(gateway)
        known = await welcome(gateway, "modern")
        await server.come_back()
        assert "structuredContent" in (await gateway.modern().call("echo")).result
        over = await welcome(gateway, "modern")
    assert [told["_meta"].pop(GATEWAY) for told in (first, unknown, known, over)] == [FRESH, FRESH, STALE, FRESH]
    assert first == unknown == known == over


@pytest.mark.parametrize("how", UP)
@both_servers
async def test_a_server_that_refuses_is_not_down(upstream: str, how: str) -> None:
    revision = {"legacy": "2025-11-25", "modern": "2026-07-28"}[upstream]
    async with server_of(upstream) as server, before(server, protocol_version=revision) as gateway:
        await gateway.greeted()
        server.methods[ASKS[upstream]] = UP[how]()
        assert (await refusal(gateway, "legacy"))["data"]["reason"] == "refused"


async def test_a_server_that_is_left_alone_is_down() -> None:
    breaker = {"failures": 1, "window": "1h", "open_for": "1h"}
    async with server_of("legacy") as server, before(server, circuit_breaker=breaker) as gateway:
        host = await gateway.greeted()
        server.script["echo"] = status(503)
        assert "code" in (await host.call("echo")).error
        told = await gateway.host().initialize()
    assert told["_meta"][GATEWAY] == STALE
    assert len(server.heard("initialize")) == 1


# --- whose it is


@both_hosts
async def test_what_a_server_said_to_one_caller_is_never_told_to_another_where_it_knows_callers(
    host: str, server: ScriptedServer, issuer: TokenIssuer
) -> None:
    async with ExchangeServer() as endpoint:
        client, secret = endpoint.terms.client
        credentials = {"mode": "token_exchange", "token_url": endpoint.url, "client_id": client}
        credentials |= {"client_secret": secret, "audience": endpoint.terms.audience}
        credentials["scopes"] = list(endpoint.terms.scopes)
        upstream = {"path": "/reports/mcp", "url": server.url, "credentials": credentials}
        async with serve(guarded({}, issuer, upstreams={"reports": upstream})) as gateway:
            tokens = {name: issuer.token(gateway.url(), subject=name) for name in ("alice", "bob")}
            endpoint.subjects |= {token: name for name, token in tokens.items()}
            await told_by(gateway, host, tokens["alice"])
            await server.stop()
            await met_in_vain(gateway, token=tokens["alice"])
            assert (await told_by(gateway, host, tokens["alice"]))["_meta"][GATEWAY] == STALE
            assert is_unreachable(await refusal(gateway, host, token=tokens["bob"]))


@pytest.mark.parametrize(("identity", "shares"), [({}, True), ({"subject": "X-Subject"}, False)])
async def test_callers_share_what_a_server_said_that_is_not_told_who_they_are(
    server: ScriptedServer, issuer: TokenIssuer, identity: dict[str, str], shares: bool
) -> None:
    upstream = {"path": "/reports/mcp", "url": server.url, "identity_headers": identity}
    async with serve(guarded({}, issuer, upstreams={"reports": upstream})) as gateway:
        alice, bob = (issuer.token(gateway.url(), subject=name) for name in ("alice", "bob"))
        await told_by(gateway, "legacy", alice)
        await server.stop()
        if shares:
            assert (await told_by(gateway, "legacy", bob))["_meta"][GATEWAY] == STALE
        else:
            assert is_unreachable(await refusal(gateway, "legacy", token=bob))


async def told_by(gateway: Gateway, era: str, token: str) -> dict[str, Any]:
    """What a new host of that era with that token is told."""
    if era == "legacy":
        return await gateway.host(token=token).initialize()
    return await gateway.modern(token=token).discover()


# --- over other transports


@both_servers
async def test_a_program_that_does_not_start_any_more_is_down(upstream: str, tmp_path: Path) -> None:
    host = "legacy"
    gate = tmp_path / "gate"
    named = {"serverInfo": INFO} if upstream == "legacy" else {"_meta": {SERVER: INFO}}
    gate.write_text(json.dumps({**named, "instructions": "Ask nicely."}))
    command = [sys.executable, "-IS", PROGRAM, "--gate", upstream, str(gate)]
    keys = {"transport": "stdio", "command": command, "protocol_version": "auto", "restart": {"backoff": "1ms"}}
    async with serve(configuration({}, upstreams={"reports": {"path": "/reports/mcp", **keys}})) as gateway:
        first = await welcome(gateway, host)
        gate.rename(tmp_path / "away")
        # Only who needs the program finds out that it is gone.
        await gateway.modern().call("echo")
        again = await welcome(gateway, host)
        session = await gateway.greeted()
        assert "error" in json.loads((await session.call("echo")).text)
        (tmp_path / "away").rename(gate)
        await eventually_called(session)
        last = await welcome(gateway, host)
    assert [told["_meta"].pop(GATEWAY) for told in (first, again, last)] == [FRESH, STALE, FRESH]
    assert first == again == last
    assert (info_of(again, host), again["instructions"]) == (INFO, "Ask nicely.")


async def eventually_called(session: Any) -> None:
    """Call until the program was started again: that is paused after it ended at once."""
    async with bounded():
        while "error" in json.loads((await session.call("echo")).text):
            pass


@both_hosts
async def test_a_server_of_event_streams_that_is_gone_is_down(host: str) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(SseServer(revision="2025-11-25"))
        keys = {"transport": "sse", "url": server.url, "protocol_version": "auto"}
        async with serve(configuration({}, upstreams={"reports": {"path": "/reports/mcp", **keys}})) as gateway:
            first = await welcome(gateway, host)
            await stack.aclose()
            await met_in_vain(gateway)
            again = await welcome(gateway, host)
    assert (first["_meta"].pop(GATEWAY), again["_meta"].pop(GATEWAY)) == (FRESH, STALE)
    assert again == first
