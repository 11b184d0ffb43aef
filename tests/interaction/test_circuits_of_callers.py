"""Circuits of servers that fail for one caller: no other caller is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway, serve
from helpers.server import ScriptedServer, status
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.programs import program
from requirements import covers

REVISIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
ONCE = {"retries": {"attempts": 1}}


@asynccontextmanager
async def over_http(issuer: TokenIssuer, era: str, **more: Any) -> AsyncIterator[tuple[Gateway, ScriptedServer]]:
    """A gateway that asks for tokens, before a server of the era whose tool `report` is answered 504 by a proxy."""
    async with ScriptedServer(era) as server:
        server.script["report"] = status(504)
        section = {"path": "/reports/mcp", "url": server.url, "protocol_version": REVISIONS[era]} | ONCE | more
        async with serve(guarded({}, issuer, upstreams={"reports": section})) as gateway:
            yield gateway, server


async def host_of(gateway: Gateway, era: str, issuer: TokenIssuer, user: str, **claims: Any) -> Any:
    """A host of the era for a user."""
    token = issuer.token(gateway.url(), subject=user, **claims)
    return await gateway.greeted(era=era, token=token)


async def is_served(host: Any) -> bool:
    """Whether a call of the tool `echo` has its result."""
    return "result" in (await host.call("echo", {"a": 1})).message


@covers("T46")
@pytest.mark.parametrize("failures", [5, 50])
@pytest.mark.parametrize("era", REVISIONS)
async def test_failing_calls_of_one_caller_refuse_no_call_of_another(
    issuer: TokenIssuer, era: str, failures: int
) -> None:
    async with over_http(issuer, era) as (gateway, _):
        mallory, alice = [await host_of(gateway, era, issuer, user) for user in ("mallory", "alice")]
        served = []
        for _ in range(failures):
            await mallory.call("report")
            served.append(await is_served(alice))
    assert served == [True] * failures


@covers("T46")
@pytest.mark.parametrize("era", REVISIONS)
async def test_failing_calls_of_all_clients_of_a_person_refuse_no_call_of_another(
    issuer: TokenIssuer, era: str
) -> None:
    async with over_http(issuer, era) as (gateway, _):
        alice = await host_of(gateway, era, issuer, "alice")
        served = []
        for number in range(8):
            client = await host_of(gateway, era, issuer, "mallory", client_id=f"client-{number}")
            await client.call("report")
            served.append(await is_served(alice))
    assert served == [True] * 8


@pytest.mark.parametrize("era", REVISIONS)
async def test_failing_calls_that_one_caller_makes_at_once_refuse_no_call_of_another(
    issuer: TokenIssuer, era: str
) -> None:
    async with over_http(issuer, era) as (gateway, _):
        mallory, alice = [await host_of(gateway, era, issuer, user) for user in ("mallory", "alice")]
        async with bounded():
            await asyncio.gather(*(mallory.call("report") for _ in range(20)))
        assert (await gateway.upstream())["circuit"] == "open"
        assert "Circuit open" in (await mallory.call("echo")).error["message"]
        async with bounded():
            assert all(await asyncio.gather(*(is_served(alice) for _ in range(10))))
        assert (await gateway.upstream())["circuit"] == "closed"


async def test_failing_calls_of_one_callers_program_refuse_no_call_of_another(issuer: TokenIssuer) -> None:
    section = program(circuit_breaker={"failures": 5}, restart={"backoff": "1ms", "max_backoff": "1ms"})
    async with serve(guarded({}, issuer, upstreams={"reports": section})) as gateway:
        mallory, alice = [await host_of(gateway, "legacy", issuer, user) for user in ("mallory", "alice")]
        served = []
        for _ in range(10):
            await mallory.call("crash")
            served.append(await is_served(alice))
    assert served == [True] * 10


async def test_failing_calls_of_two_callers_open_the_circuit_for_all(issuer: TokenIssuer) -> None:
    async with over_http(issuer, "modern") as (gateway, server):
        hosts = [await host_of(gateway, "modern", issuer, user) for user in ("alice", "bob", "carol")]
        for _ in range(3):
            for host in hosts[:2]:
                await host.call("report")
        before = len(server.requests)
        assert "Circuit open" in (await hosts[2].call("echo")).error["message"]
        assert len(server.requests) == before
        assert (await gateway.upstream())["circuit_reason"] == "all callers: HTTP 504"


async def test_a_server_that_takes_no_connection_opens_the_circuit_for_all(issuer: TokenIssuer) -> None:
    async with over_http(issuer, "modern") as (gateway, server):
        alice, bob = [await host_of(gateway, "modern", issuer, user) for user in ("alice", "bob")]
        await server.stop()
        for _ in range(5):
            await alice.call("echo")
        assert "Circuit open" in (await bob.call("echo")).error["message"]


async def test_a_failing_call_of_one_caller_does_not_mark_the_welcome_of_another_as_stale(issuer: TokenIssuer) -> None:
    async with over_http(issuer, "modern") as (gateway, _):
        mallory, alice = [await host_of(gateway, "modern", issuer, user) for user in ("mallory", "alice")]
        assert await is_served(alice)
        assert "stale" not in str((await alice.ask("server/discover")).result)
        await mallory.call("report")
        assert "stale" not in str((await alice.ask("server/discover")).result)
        assert "stale" in str((await mallory.ask("server/discover")).result)
