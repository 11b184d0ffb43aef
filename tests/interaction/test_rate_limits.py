"""How often hosts may ask: a budget of each scope, for hosts of either era, and when there is room again."""

from datetime import timedelta
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, serve
from helpers.host.host import Host, both_eras
from helpers.manual_clock import ManualClock
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer
from interaction.rate_limits import CALLS, Opens, passes
from requirements import covers

# --- refused, and let in again ---------------------------------------------------------------------------------------


@covers("R-RES-5")
@both_eras
async def test_one_call_too_many_never_reaches_the_server(opens: Opens, server: ScriptedServer, era: str) -> None:
    async with opens(CALLS) as gateway:
        host = await gateway.greeted(era=era)
        assert await passes(host, "echo", "echo") == [True, True]
        answer = await host.call("echo")
        assert (answer.status, answer.headers["Retry-After"]) == (200, "60")
        assert answer.error == {
            "code": 429,
            "message": "Rate limit calls exceeded; try again in 60 s",
            "data": {"origin": "gateway", "reason": "rate", "policy": "calls", "retryAfterMs": 60_000},
        }
        assert len(server.heard("tools/call")) == 2


@both_eras
async def test_a_host_that_waits_as_long_as_it_is_told_is_let_in_and_not_sooner(
    opens: Opens, clock: ManualClock, era: str
) -> None:
    async with opens({**CALLS, "rate": "3/s", "burst": 1}) as gateway:
        host = await gateway.greeted(era=era)
        clock.advance(timedelta(seconds=1234.567))
        assert await passes(host, "echo") == [True]
        clock.advance(timedelta(milliseconds=100))
        data = (await host.call("echo")).error["data"]
        assert data["retryAfterMs"] == 234
        clock.advance(timedelta(milliseconds=data["retryAfterMs"] - 1))
        assert await passes(host, "echo") == [False]
        clock.advance(timedelta(milliseconds=1))
        assert await passes(host, "echo") == [True]


@pytest.mark.parametrize(
    ("passed", "header"), [(0, "60"), (0.5, "60"), (1, "59"), (58.999, "2"), (59, "1"), (59.999, "1")]
)
async def test_retry_after_is_in_seconds_and_never_one_too_few(
    opens: Opens, clock: ManualClock, passed: float, header: str
) -> None:
    async with opens({**CALLS, "burst": 1}) as gateway:
        host = await gateway.greeted()
        await host.call("echo")
        clock.advance(timedelta(seconds=passed))
        assert (await host.call("echo")).headers["Retry-After"] == header
        clock.advance(timedelta(seconds=int(header)))
        assert await passes(host, "echo") == [True]


# --- whose budget ----------------------------------------------------------------------------------------------------


@both_eras
async def test_each_caller_has_a_budget_over_all_its_sessions(
    opens_guarded: Opens, issuer: TokenIssuer, era: str
) -> None:
    async with opens_guarded(CALLS) as gateway:
        ann, bob = (issuer.token(gateway.url(), subject=name) for name in ("ann", "bob"))
        hosts = [await gateway.greeted(era=era, token=token) for token in (ann, ann, bob)]
        assert await passes(hosts[0], "echo", "echo") == [True, True]
        assert await passes(hosts[1], "echo") == [False]
        assert await passes(hosts[2], "echo", "echo", "echo") == [True, True, False]


async def test_the_eras_of_one_caller_share_its_budget(opens_guarded: Opens, issuer: TokenIssuer) -> None:
    async with opens_guarded(CALLS) as gateway:
        token = issuer.token(gateway.url())
        assert await passes(gateway.modern(token=token), "echo", "echo") == [True, True]
        assert await passes(await gateway.greeted(token=token), "echo") == [False]


async def test_a_tenant_shares_a_budget_and_gold_has_a_larger_one(
    opens_guarded: Opens, issuer: TokenIssuer, clock: ManualClock
) -> None:
    tenants = {**CALLS, "name": "tenants", "scope": "tenant"}
    gold = {"match": {"tenant": "gold"}, "rate": {"tenants": "2/m"}}
    async with opens_guarded(tenants, tenants=True, overrides=[gold]) as gateway:

        def member(name: str, tenant: str) -> Host:
            return gateway.modern(token=issuer.token(gateway.url(), subject=name, org=tenant))

        silver = member("ann", "silver"), member("bob", "silver")
        assert [*await passes(silver[0], "echo"), *await passes(silver[1], "echo", "echo")] == [True, True, False]
        assert await passes(member("cleo", "gold"), *["echo"] * 5) == [True] * 4 + [False]
        clock.advance(timedelta(seconds=30))
        assert await passes(member("dora", "gold"), "echo") == [True]
        assert await passes(silver[0], "echo") == [False]


async def test_an_override_may_be_for_a_claim(opens_guarded: Opens, issuer: TokenIssuer) -> None:
    robots = {"match": {"claims": {"kind": ["robot", "cron"]}}, "rate": {"calls": "4/m"}}
    async with opens_guarded(CALLS, overrides=[robots]) as gateway:

        def host(subject: str, **claims: Any) -> Host:
            return gateway.modern(token=issuer.token(gateway.url(), subject=subject, **claims))

        assert sum(await passes(host("ann"), *["echo"] * 9)) == 2
        assert sum(await passes(host("bob", kind=["person", "robot"]), *["echo"] * 9)) == 8


@pytest.mark.parametrize(
    ("scope", "shared"), [("upstream", "by server"), ("tool", "by tool"), ("global", "by all"), ("ip", "by all")]
)
@both_eras
async def test_what_is_shared_is_the_scopes(opens: Opens, scope: str, shared: str, era: str) -> None:
    async with opens({**CALLS, "scope": scope, "burst": 1}) as gateway:
        here, there = await gateway.greeted(era=era), await gateway.greeted(era=era, mount="search")
        first, same, other_tool = await passes(here, "echo", "echo", "report")
        elsewhere = (await passes(there, "echo"))[0]
        assert (first, same) == (True, False)
        assert (other_tool, elsewhere) == {
            "by server": (False, True),
            "by tool": (True, True),
            "by all": (False, False),
        }[shared]


# --- in the usual configuration --------------------------------------------------------------------------------------


async def test_the_rates_that_come_with_it_let_sixty_calls_at_once_and_ten_a_second(
    server: ScriptedServer, clock: ManualClock
) -> None:
    config = configuration({"reports": server.url})
    config = config.model_copy(update={"limits": type(config.limits)(wait=timedelta())})
    async with serve(config, Environment(clock=clock)) as gateway:
        host = gateway.modern()
        assert sum(await passes(host, *["echo"] * 70)) == 60
        clock.advance(timedelta(seconds=1))
        assert sum(await passes(host, *["echo"] * 20)) == 10
