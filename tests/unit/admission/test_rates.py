"""The limits of requests: what is taken when, what a refusal says, and what is counted."""

from dataclasses import replace
from datetime import timedelta

import pytest

from taskgate.admission.rates import address_block
from taskgate.auth.context import AuthContext
from taskgate.domain.limits import Override, Overrides
from taskgate.domain.rates import RateEvent, RateLimit, RatePolicies, RateScope
from taskgate.telemetry.events import RateLimitAllowed, RateLimitChecked
from unit.admission.limiter_desk import ALICE, BOB, HERE, THERE, LimiterDesk, policy
from unit.admission.live_rules import rules
from unit.auth.identities import identity
from unit.lifecycle.asked import Asked


async def test_a_budget_is_a_callers_own() -> None:
    at = LimiterDesk(policy("calls"))
    assert [await at.asks(), await at.asks(), await at.asks(BOB)] == [True, False, True]


async def test_who_comes_after_the_time_that_was_told_is_let_in_and_not_before() -> None:
    at = LimiterDesk(policy("calls", every=0.3))
    at.clock.advance(timedelta(seconds=1234.1))
    assert await at.asks()
    at.clock.advance(timedelta(seconds=0.05))
    after, name = await at.wait()
    assert (after, name) == (timedelta(seconds=0.25), "calls")
    at.clock.advance(after - timedelta(milliseconds=1))
    assert not await at.asks()
    at.clock.advance(timedelta(milliseconds=1))
    assert await at.asks()


async def test_the_policy_that_refuses_for_longest_is_named_and_after_its_time_all_have_room() -> None:
    at = LimiterDesk(policy("short", every=5.0), policy("long", every=50.0), policy("middle", every=20.0))
    assert await at.asks()
    after, name = await at.wait()
    assert (after, name) == (timedelta(seconds=50), "long")
    at.clock.advance(after)
    assert await at.asks()


async def test_one_request_takes_from_all_its_policies_or_from_none() -> None:
    at = LimiterDesk(policy("calls", 2), policy("all", 1, scope=RateScope.GLOBAL))
    assert await at.asks()
    assert not await at.asks()
    at.live.current = rules(rates=RatePolicies((policy("calls", 2),)))
    assert await at.asks()
    assert not await at.asks()


async def test_a_shadow_lets_through_and_tells() -> None:
    at = LimiterDesk(policy("shadow", shadow=True))
    assert [await at.asks() for _ in range(3)] == [True] * 3
    allowed, shadow = RateLimitAllowed("shadow", "context"), RateLimitChecked("shadow", "context", "shadow")
    assert at.emitted.all == [allowed, shadow, shadow]


async def test_what_is_decided_is_told_of_every_policy_that_was_asked() -> None:
    everything, polls = policy("all", 9, scope=RateScope.GLOBAL), policy("polls", methods=("tasks/*",))
    at = LimiterDesk(policy("calls", 1), everything, polls)
    await at.asks()
    await at.asks()
    assert at.emitted.all == [
        RateLimitAllowed("calls", "context"),
        RateLimitAllowed("all", "global"),
        RateLimitChecked("calls", "context", "rejected"),
        RateLimitAllowed("all", "global"),
    ]


async def test_without_policies_nothing_is_asked_nor_told() -> None:
    at = LimiterDesk()
    assert await at.limiter.on_request(ALICE, HERE, "reports", "tools/call") == ((), None)
    await at.limiter.on_connection(HERE, "reports")
    assert at.emitted.all == []


async def test_a_tenant_shares_a_budget_and_may_have_another_rate() -> None:
    def member(name: str, tenant: str | None) -> AuthContext:
        return AuthContext(key=name, identity=replace(identity(), subject=name, tenant=tenant))

    gold = Override(tenant="gold", rates={"tenants": RateLimit(every=1.0, burst=3)})
    at = LimiterDesk(policy("tenants", 1, scope=RateScope.TENANT), overrides=Overrides((gold,)))
    silver = [await at.asks(member(name, "silver")) for name in ("ann", "bob")]
    golden = [await at.asks(member(name, "gold")) for name in ("cleo", "dora", "cleo", "cleo")]
    nobody = [await at.asks(member("emil", None)) for _ in range(3)]
    assert (silver, golden, nobody) == ([True, False], [True, True, True, False], [True] * 3)


async def test_a_wait_without_end_is_told_as_a_long_one() -> None:
    after, _ = await LimiterDesk(policy("impossible", cost=2)).wait()
    assert after == timedelta(days=1)


async def test_an_address_is_found_out_only_where_something_is_counted_by_it() -> None:
    host = Asked()
    at = LimiterDesk(policy("calls", 9))
    await at.limiter.on_auth_failure(host, "reports")
    await at.limiter.on_request(ALICE, host, "reports", "tasks/get")
    await at.limiter.on_lookup_failure(ALICE, host, "reports")
    assert host.looked == 0


@pytest.mark.parametrize("event", [None, RateEvent.LOOKUP_FAILURE])
async def test_who_comes_from_one_address_shares_what_is_counted_by_address(event: RateEvent | None) -> None:
    at = LimiterDesk(policy("by address", scope=RateScope.IP, event=event))
    if event is not None:
        await at.limiter.on_lookup_failure(ALICE, HERE, "reports")
    else:
        assert await at.asks(method="tasks/get")
    assert not await at.asks(BOB, "tasks/get")
    await at.limiter.on_request(BOB, THERE, "reports", "tasks/get")


@pytest.mark.parametrize(
    ("address", "block"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("unknown", "unknown"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("::1", "::/64"),
    ],
)
def test_a_site_of_ipv6_is_one_address(address: str, block: str) -> None:
    assert address_block(address) == block


async def test_a_request_that_has_room_is_admitted_at_once_and_counted_as_one_that_is_judged() -> None:
    at = LimiterDesk(
        policy("ip", 5, scope=RateScope.IP, before_auth=True),
        policy("calls", 2),
        policy("all", 2, scope=RateScope.GLOBAL),
    )
    await at.limiter.on_connection(HERE, "reports")
    assert (await at.asks(), at.limiter.judged) == (True, 0)
    assert at.emitted.all == [
        RateLimitAllowed("ip", "ip"),
        RateLimitAllowed("calls", "context"),
        RateLimitAllowed("all", "global"),
    ]
    assert [await at.asks(), await at.asks(), at.limiter.judged] == [True, False, 1]


async def test_a_policy_in_shadow_without_room_is_judged() -> None:
    at = LimiterDesk(policy("shadow", shadow=True))
    assert [await at.asks(), await at.asks(), at.limiter.judged] == [True, True, 1]


async def test_what_is_remembered_of_a_caller_follows_its_token() -> None:
    gold = Override(claims={"plan": frozenset({"gold"})}, rates={"calls": RateLimit(every=10.0, burst=3)})
    at = LimiterDesk(policy("calls", 1), overrides=Overrides((gold,)))
    usual, better, again = (AuthContext(key="ann", identity=identity(plan=plan)) for plan in ("tin", "gold", "lead"))
    assert [await at.asks(usual), await at.asks(usual), await at.asks(better), await at.asks(again)] == [
        True,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("scope", [RateScope.TOOL, RateScope.CONTEXT])
async def test_what_is_remembered_is_of_one_tool_and_server(scope: RateScope) -> None:
    at = LimiterDesk(policy("builds", scope=scope, tool="build*"))
    said = [await at.asks(tool=tool) for tool in ("build", "build", "test", "builder", "test")]
    assert said == [True, False, True, scope is RateScope.TOOL, True]


async def test_more_callers_than_are_remembered_keep_what_they_owe() -> None:
    at = LimiterDesk(policy("calls", 1), policy("ip", 6000, scope=RateScope.IP, before_auth=True))
    many = [AuthContext(key=f"caller {number}") for number in range(5000)]
    assert all([await at.asks(each) for each in many])
    assert not any([await at.asks(each) for each in many])


async def test_a_long_name_of_a_tool_is_limited_like_any_other() -> None:
    at = LimiterDesk(policy("tools", scope=RateScope.TOOL))
    one, other = ("x" * 300 + end for end in "ab")
    assert [await at.asks(tool=tool) for tool in (one, one, other)] == [True, False, True]


def recognize(host: Asked, caller: AuthContext) -> None:
    """Have the caller of a head known, as the gateway does."""
    host.head.caller, host.head.request_check = caller, None


async def test_a_head_remembers_what_is_checked_for_its_own_caller_alone() -> None:
    at, host = LimiterDesk(policy("calls", 2)), Asked()
    recognize(host, ALICE)

    def asks(caller: AuthContext) -> bool:
        return at.limiter.admits(caller, host, "reports", "tools/call", None, at.clock.elapsed())

    assert [asks(each) for each in (ALICE, BOB, ALICE, BOB, ALICE, BOB)] == [True, True, True, True, False, False]


async def test_what_a_head_remembers_is_of_the_caller_that_it_has_now() -> None:
    gold = Override(claims={"plan": frozenset({"gold"})}, rates={"calls": RateLimit(every=10.0, burst=3)})
    at, host = LimiterDesk(policy("calls", 1), overrides=Overrides((gold,))), Asked()
    usual, better = (AuthContext(key="ann", identity=identity(plan=plan)) for plan in ("tin", "gold"))
    said = list[bool]()
    for caller in (usual, usual, better, better, better, usual):
        recognize(host, caller)
        said.append(at.limiter.admits(caller, host, "reports", "tools/call", None, 0.0))
    assert said == [True, False, True, True, False, False]


@pytest.mark.parametrize("before_auth", [True, False])
async def test_what_a_head_remembers_ends_with_the_rules(before_auth: bool) -> None:
    def rules_of(burst: int) -> RatePolicies:
        scope = RateScope.IP if before_auth else RateScope.CONTEXT
        return RatePolicies((policy("calls", burst, scope=scope, before_auth=before_auth),))

    at, host = LimiterDesk(policy("none", 9)), Asked()
    recognize(host, ALICE)
    said = list[bool]()
    for burst in (1, 2, 1):
        at.live.current = rules(rates=rules_of(burst))
        for _ in range(2):
            said.append(
                at.limiter.admits_connection(host, "reports", 0.0)
                and at.limiter.admits(ALICE, host, "reports", "tools/call", None, 0.0)
            )
    assert said == [True, False, True, False, False, False]


@pytest.mark.parametrize("differs", ["method", "tool", "mount"])
async def test_what_a_head_remembers_is_of_one_method_tool_and_mount(differs: str) -> None:
    everything = {"method": policy("calls", methods=("a",)), "tool": policy("calls", tool="a")}
    at, host = LimiterDesk(everything.get(differs, policy("calls", upstream="a"))), Asked()
    recognize(host, ALICE)
    said = list[bool]()
    for name in "aabb":
        usual = {"mount": "reports", "method": "tools/call", "tool": "echo", differs: name}
        said.append(at.limiter.admits(ALICE, host, usual["mount"], usual["method"], usual["tool"], 0.0))
    assert said == [True, False, True, True]
