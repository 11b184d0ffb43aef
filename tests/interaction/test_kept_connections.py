"""Whatever changes for a caller, the very next request of a connection that is kept meets it.

A connection remembers who sent a head. Each test sends the same head again and again on one connection, and changes
something in between.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.host.host import Host
from helpers.key_server import KeyServer
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, until
from interaction.rate_limits import present
from interaction.reloads import DONE, SUCCESS, echoed, refused
from requirements import covers

UNKNOWN = "A" * 32
CHECKED = "taskgate_auth_requests_total"
LOOKUPS = "taskgate_token_cache_lookups_total"
TOKENS = {"name": "tokens", "scope": "ip", "event": "auth_failure", "rate": "1/h", "burst": 3}


@asynccontextmanager
async def kept(gateway: Gateway, token: str | None = None, mount: str = "reports") -> AsyncIterator[Host]:
    """A host with an open session, all of whose requests go over one connection."""
    made = count()
    trace = aiohttp.TraceConfig()

    async def note(*_: Any) -> None:
        next(made)

    trace.on_connection_create_end.append(note)
    connector = aiohttp.TCPConnector(limit=1, keepalive_timeout=600)
    async with aiohttp.ClientSession(connector=connector, trace_configs=[trace]) as http:
        host = Host(http, gateway.url(mount), token)
        await host.initialize()
        # The head of all that follows, which the gateway knows by then.
        assert (await host.ask("ping")).result == {}
        yield host
    assert next(made) == 1, "more than one connection was opened"


# --- configuration -------------------------------------------------------------------------------------------------


async def test_a_mount_that_is_removed_is_not_found(
    server: ScriptedServer, other: ScriptedServer, gateway: Gateway
) -> None:
    async with kept(gateway) as host:
        books = {"books": {"path": "/books/mcp", "url": other.url}}
        assert await gateway.reload(configuration({}, upstreams=books)) == SUCCESS
        assert (await host.ask("ping")).status == 404
        assert await gateway.reload(configuration({"reports": server.url})) == SUCCESS
        assert (await host.ask("ping")).result == {}


async def test_a_path_leads_to_the_mount_that_has_it_now(
    server: ScriptedServer, other: ScriptedServer, issuer: TokenIssuer
) -> None:
    def config(**paths: str) -> Any:
        upstreams = {name: {"path": path, "url": server.url} for name, path in paths.items()}
        return guarded({}, issuer, upstreams=upstreams)

    before, after = config(reports="/a/mcp", books="/b/mcp"), config(reports="/b/mcp", books="/a/mcp")
    async with serve(before) as gateway, kept(gateway, issuer.token(gateway.url())) as host:
        assert await gateway.reload(after) == SUCCESS
        # The path is the other mount's, where the session belongs to no caller.
        assert (await host.ask("ping")).status == 404


async def test_tokens_of_an_issuer_that_is_removed_are_refused(server: ScriptedServer, tmp_path: Path) -> None:
    first = TokenIssuer(tmp_path)
    second = TokenIssuer(tmp_path, issuer="https://other.example.com/", number=1)
    config = guarded({"reports": server.url}, first)
    async with serve(config) as gateway, kept(gateway, first.token(gateway.url())) as host:
        assert await gateway.reload(guarded({"reports": server.url}, second)) == SUCCESS
        assert [(await host.ask("ping")).status for _ in range(2)] == [401, 401]


async def test_callers_are_bound_by_the_key_of_now(server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path) -> None:
    file = tmp_path / "context.keys"

    def config(key: str) -> Any:
        file.write_text(43 * key)
        file.chmod(0o600)
        return guarded({"reports": server.url}, issuer, auth={"context": {"key_file": str(file)}})

    async with serve(config("b")) as gateway, kept(gateway, issuer.token(gateway.url())) as host:
        assert await gateway.reload(config("c")) == SUCCESS
        # With another key the caller is another one, to whom the session does not belong.
        assert (await host.ask("ping")).status == 404
        assert await gateway.reload(config("b")) == SUCCESS
        assert (await host.ask("ping")).result == {}


async def test_an_access_rule_applies_to_the_next_request(server: ScriptedServer, gateway: Gateway) -> None:
    async with kept(gateway) as host:
        assert await echoed(host) == "the first"
        rules = {"rules": [{"tool": "echo", "effect": "deny"}]}
        assert await gateway.reload(configuration({"reports": server.url}, authorization=rules)) == SUCCESS
        assert (await host.call("echo")).code == 403


async def test_a_rate_counts_each_request_and_applies_to_the_next(server: ScriptedServer, gateway: Gateway) -> None:
    rates = [
        {"name": "calls", "scope": "context", "methods": ["tools/call"], "rate": "1/h", "burst": 2},
        {"name": "requests", "scope": "ip", "before_auth": True, "rate": "1/h", "burst": 5},
    ]
    async with kept(gateway) as host:
        assert await gateway.reload(configuration({"reports": server.url}, limits={"rate": rates})) == SUCCESS
        answers = [await host.call("echo") for _ in range(3)]
        assert [refused(each) for each in answers[2:]] == [(429, "rate")]
        assert [(await host.ask("ping")).status for _ in range(3)] == [200, 200, 429]


# --- tokens --------------------------------------------------------------------------------------------------------


@covers("A-AUTH-13", "T9")
async def test_a_token_that_expires_is_refused(server: ScriptedServer, issuer: TokenIssuer) -> None:
    clock = present()
    section = {**issuer.section, "leeway": "0s"}
    config = guarded({"reports": server.url}, auth={"issuers": {"corp": section}, "token_cache": {"max_ttl": "1h"}})
    environment = Environment(clock=clock)
    async with serve(config, environment) as gateway, kept(gateway, issuer.token(gateway.url())) as host:
        clock.advance(timedelta(minutes=4))
        assert (await host.ask("ping")).status == 200
        # More than the minute that is left: the token was made some time after the clock stood still.
        clock.advance(timedelta(minutes=3))
        assert [(await host.ask("ping")).status for _ in range(3)] == [401] * 3
        assert await gateway.counts(CHECKED, "reason", result="rejected") == {"expired": 3}


@covers("T5")
async def test_a_key_that_is_taken_back_is_met_as_soon_as_a_token_may_not_be_cached_any_more(
    server: ScriptedServer, tmp_path: Path
) -> None:
    clock = present()
    async with KeyServer() as keys:
        old, new = (TokenIssuer(tmp_path, issuer=keys.issuer, number=number) for number in (0, 1))
        keys.publish(old.jwk())
        jwks = {"refresh": "25ms", "cooldown": "20ms", "timeout": "5s"}
        corp = {"issuer": keys.issuer, "jwks_uri": keys.url("/keys"), "jwks": jwks}
        auth = {"issuers": {"corp": corp}, "token_cache": {"max_ttl": "1m"}}
        async with serve(guarded({"reports": server.url}, auth=auth), Environment(clock=clock)) as gateway:
            await until(gateway.ready, lambda status: status == 200)
            async with kept(gateway, old.token(gateway.url())) as host:
                keys.publish(new.jwk())
                clock.advance(timedelta(seconds=59))
                await gateway.counted("taskgate_jwks_refreshes_total", 2, result="ok")
                assert (await host.ask("ping")).status == 200
                clock.advance(timedelta(seconds=1))
                assert [(await host.ask("ping")).status for _ in range(2)] == [401, 401]


async def test_each_invalid_token_counts_for_its_address_and_each_good_one_for_its_issuer(
    server: ScriptedServer, issuer: TokenIssuer
) -> None:
    config = guarded({"reports": server.url}, issuer, limits={"rate": [TOKENS]})
    async with serve(config) as gateway, kept(gateway, issuer.token(gateway.url())) as host:
        before = [await gateway.count(CHECKED, result="accepted"), await gateway.count(LOOKUPS, result="hit")]
        for _ in range(3):
            assert (await host.ask("ping")).status == 200
        after = [await gateway.count(CHECKED, result="accepted"), await gateway.count(LOOKUPS, result="hit")]
        assert after == [count + 3 for count in before]
        token, host.token = host.token, "none.of.ours"
        assert [(await host.ask("ping")).status for _ in range(5)] == [401, 401, 401, 429, 429]
        # A caller behind the same address is not locked out.
        host.token = token
        assert (await host.ask("ping")).status == 200


async def test_callers_that_share_a_connection_are_told_apart(server: ScriptedServer, issuer: TokenIssuer) -> None:
    async with serve(guarded({"reports": server.url}, issuer)) as gateway:
        tokens = [issuer.token(gateway.url(), subject=f"caller-{number}") for number in range(12)]
        async with kept(gateway, tokens[0]) as host:
            for token in tokens * 2:
                host.token = token
                assert (await host.ask("ping")).status == (200 if token == tokens[0] else 404)


@covers("T7", "T12", "T19")
@pytest.mark.parametrize("connections", [1, 2])
async def test_callers_that_alternate_have_each_its_own_session_task_and_rate(
    server: ScriptedServer, issuer: TokenIssuer, connections: int
) -> None:
    """With heads that are equal but for the token, and with the session of the other."""
    rates = [{"name": "calls", "scope": "context", "methods": ["tools/call"], "rate": "1/h", "burst": 4}]
    server.script["report"] = Hold()
    config = guarded({"reports": server.url}, issuer, limits={"rate": rates})
    async with serve(config) as gateway, AsyncExitStack() as stack:
        tokens = [issuer.token(gateway.url(), subject=name) for name in ("ann", "bob")]
        ann = await stack.enter_async_context(kept(gateway, tokens[0]))
        if connections == 2:
            bob = await stack.enter_async_context(kept(gateway, tokens[1]))
        else:
            bob = Host(ann.http, gateway.url(), tokens[1])
            await bob.initialize()
        pairs = [(ann, bob, await ann.start("report")), (bob, ann, await bob.start("report"))]
        for _ in range(3):
            for own, other, task in pairs:
                assert await echoed(own) == "the first"
                assert (await own.task(task["taskId"]))["status"] == "working"
                assert (await other.ask("tasks/get", {"taskId": task["taskId"]})).error["message"] == "Task not found"
                session, own.session = own.session, other.session
                assert [(await own.ask("ping")).status for _ in range(2)] == [404, 404]
                own.session = session
        for own, _, _ in pairs * 2:
            assert refused(await own.call("echo")) == (429, "rate")


# --- what is judged for each request -------------------------------------------------------------------------------


async def test_a_session_that_was_ended_elsewhere_is_not_found(gateway: Gateway) -> None:
    async with kept(gateway) as host:
        elsewhere = gateway.host()
        elsewhere.session, elsewhere.revision = host.session, host.revision
        assert await elsewhere.leave() == 200
        assert (await host.ask("ping")).status == 404


async def test_a_penalty_is_met_by_the_next_request(server: ScriptedServer, issuer: TokenIssuer) -> None:
    failures = {"threshold": 1, "window": "1m", "penalty": "5m"}
    clock = present()
    config = guarded({"reports": server.url}, issuer, auth={"lookup_failures": failures})
    async with serve(config, Environment(clock=clock)) as gateway:
        token = issuer.token(gateway.url(), exp=clock.now().timestamp() + 3600)
        async with kept(gateway, token) as host:
            found = [await host.ask("tasks/get", {"taskId": letter * 32}) for letter in "ABC"]
            assert [each.code for each in found] == [-32602, -32602, 429]
            clock.advance(timedelta(minutes=5))
            assert (await host.ask("tasks/get", {"taskId": UNKNOWN})).code == -32602


async def test_a_drain_is_met_by_the_next_request(server: ScriptedServer, gateway: Gateway) -> None:
    server.script["report"] = hold = Hold()
    async with kept(gateway) as host:
        running_one = asyncio.create_task(gateway.modern(tasks=False).call("report"))
        async with bounded():
            await hold.begun.wait()
            draining = asyncio.create_task(gateway.drain())
            met = await until(lambda: host.call("echo"), lambda answer: "error" in answer.message)
            assert refused(met) == (503, "draining")
            assert (await host.ask("ping")).result == {}
            hold.release(DONE)
            await running_one
            await draining
