"""Operators see what each caller uses of its limits."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from interaction.operators import VIEWER, look, tokens
from interaction.rate_limits import CALLS, present

CALLERS = "/api/v1/callers"


@pytest.fixture
async def gateway(server: ScriptedServer, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway with a rate, one slot at its server, and tokens of operators."""
    config = configuration(
        {"reports": server.url},
        admin=tokens(tmp_path),
        limits={"rate": [{**CALLS, "burst": 5}]},
        upstreams={"reports": {"path": "/reports/mcp", "url": server.url, "concurrency": 1}},
    )
    async with serve(config, Environment(clock=present())) as gateway:
        yield gateway


@pytest.fixture
async def guarded_gateway(server: ScriptedServer, issuer: TokenIssuer, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway that knows its callers, of which those of one tenant have limits of their own."""
    own = {"match": {"tenant": "acme"}, "rate": {"calls": "2/m"}, "concurrency": {"tasks_per_context": 7}}
    config = guarded(
        {"reports": server.url},
        issuer,
        auth={"issuers": {"corp": {**issuer.section, "claims": {"tenant": "org"}}}},
        limits={"rate": [CALLS], "overrides": [own]},
        admin=tokens(tmp_path),
    )
    async with serve(config, Environment(clock=present())) as gateway:
        yield gateway


async def used(gateway: Gateway, caller: str = "c_anonymous") -> dict[str, tuple[int, int]]:
    """What a caller uses: number and most, by limit."""
    [found] = [each for each in (await look(gateway, CALLERS))["items"] if each["caller"] == caller]
    return {each["limit"]: (each["used"], each["most"]) for each in found["limits"]}


async def test_calls_and_places_in_the_queue_and_tasks_and_rates_are_counted(
    gateway: Gateway, server: ScriptedServer
) -> None:
    server.script["report"] = hold = Hold()
    host = await gateway.greeted()
    for _ in range(3):
        await host.start("report")
    await hold.begun.wait()
    found = await used(gateway)
    assert (found["tasks_per_context"], found["calls"]) == ((3, 10), (3, 5))
    assert (found["calls_per_context"], found["queue.size"][0]) == ((1, 8), 2)
    assert found["sessions_per_context"] == (1, 100)


async def test_a_look_takes_nothing(gateway: Gateway) -> None:
    await (await gateway.greeted()).call("echo")
    for _ in range(10):
        assert (await used(gateway))["calls"] == (1, 5)


async def test_a_caller_has_its_own_limits(guarded_gateway: Gateway, issuer: TokenIssuer) -> None:
    for subject, tenant in (("alice", "acme"), ("bob", "other")):
        token = issuer.token(guarded_gateway.url("reports"), subject=subject, org=tenant)
        await guarded_gateway.modern("reports", token).call("echo")
    page = await look(guarded_gateway, CALLERS)
    mosts = sorted(
        tuple(each["most"] for each in caller["limits"] if each["limit"] in ("tasks_per_context", "calls"))
        for caller in page["items"]
    )
    assert mosts == [(7, 4), (10, 2)]
    alone = page["items"][0]
    assert (await look(guarded_gateway, f"{CALLERS}?caller={alone['caller']}"))["items"] == [alone]


async def test_pages_have_each_caller_once(guarded_gateway: Gateway, issuer: TokenIssuer) -> None:
    for number in range(5):
        token = issuer.token(guarded_gateway.url("reports"), subject=f"caller-{number}", org="acme")
        await guarded_gateway.modern("reports", token).call("echo")
    found: list[str] = []
    page: dict[str, Any] = await look(guarded_gateway, f"{CALLERS}?limit=2")
    while True:
        found += [each["caller"] for each in page["items"]]
        if page["next"] is None:
            break
        page = await look(guarded_gateway, f"{CALLERS}?limit=2&cursor={page['next']}")
    assert (len(found), sorted(set(found))) == (5, found)
    other = await look(guarded_gateway, f"{CALLERS}?limit=2")
    status, _ = await guarded_gateway.operators(
        f"{CALLERS}?caller={found[0]}&cursor={other['next']}", Authorization=VIEWER
    )
    assert status == 400
