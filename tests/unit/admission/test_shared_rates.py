"""The rate limiter of one of several gateways: one question to the store that they share for each request."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from helpers.manual_clock import ManualClock
from taskgate.admission.rates import LocalRateCache, QuotaSubjects, RateLimitExceeded
from taskgate.domain.rates import RateEvent, RatePolicies, RatePolicy, RateScope
from taskgate.errors import RateLimited, StoreUnavailable
from taskgate.stores.base import RateJudgement, RateStep
from taskgate.stores.rates import MemoryRateStore
from taskgate.telemetry.events import RateLimitAllowed, RateLimitChecked, SuspicionRaised
from unit.admission.limiter_desk import ALICE, BOB, AskedAsByGateway, policy
from unit.admission.live_rules import live
from unit.lifecycle.asked import Asked
from unit.lifecycle.recorded_events import RecordedEvents

IP = policy("ip", 3, scope=RateScope.IP, before_auth=True)
FAILURES = policy("auth_failures", 2, scope=RateScope.IP, event=RateEvent.AUTH_FAILURE)
CALLS = policy("calls", 2, methods=("tools/call",))
LOOKUPS = policy("lookups", 1, event=RateEvent.LOOKUP_FAILURE)


class Counted:
    """What gateways share, and how often it was asked."""

    def __init__(self) -> None:
        self.rates, self.asked, self.is_there, self.counted_as = MemoryRateStore(), 0, True, "allowed"

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        self.asked += 1
        if not self.is_there:
            raise StoreUnavailable("gone")
        judged = await self.rates.judge(steps, now=now)
        return RateJudgement(judged.verdicts, judged.refused, self.counted_as)


class Replica:
    """One of those who share, and what it told."""

    def __init__(self, store: Counted, *policies: RatePolicy, **changes: object) -> None:
        self.clock, self.emitted, self.live = (
            ManualClock(),
            RecordedEvents(),
            live(rates=RatePolicies(policies), **changes),
        )
        self.limiter = AskedAsByGateway(
            live=self.live,
            subjects=QuotaSubjects(self.live),
            store=store,
            event_sink=self.emitted,
            clock=self.clock,
            local_cache=LocalRateCache(),
        )

    async def serves(self, method: str = "tools/call") -> str | None:
        """Who refuses a request that goes the whole way; None where it is let in."""
        exchange = Asked()
        try:
            await self.limiter.on_connection(exchange, "reports")
            await self.limiter.on_request(ALICE, exchange, "reports", method)
        except RateLimited as refused:
            return refused.policy
        finally:
            await self.limiter.flush(exchange, "reports")
        return None

    async def turns_away(self) -> None:
        """A request with a token that is not accepted. Raises RateLimited."""
        exchange = Asked()
        try:
            await self.limiter.on_connection(exchange, "reports")
            await self.limiter.on_auth_failure(exchange, "reports")
        finally:
            await self.limiter.flush(exchange, "reports")

    async def loses(self) -> None:
        """A request that comes to nothing, for a reason that is not the rate limiter's."""
        exchange = Asked()
        await self.limiter.on_connection(exchange, "reports")
        await self.limiter.flush(exchange, "reports")


ALL = (IP, FAILURES, CALLS, LOOKUPS)


@pytest.mark.parametrize("method", ["tools/call", "tasks/get", "tools/list", "notifications/cancelled", ""])
async def test_a_request_is_one_question(method: str) -> None:
    store = Counted()
    assert await Replica(store, *ALL).serves(method) is None
    assert store.asked == 1


async def test_so_is_one_that_is_refused_and_one_without_a_token_and_one_with_a_bad_one() -> None:
    store = Counted()
    at = Replica(store, IP, FAILURES, replace(CALLS, limit=policy("x", 1).limit))
    await at.serves()
    assert await at.serves() == "calls"
    await at.loses()
    assert store.asked == 3
    other = Counted()
    await Replica(other, *ALL).turns_away()
    assert other.asked == 1


async def test_nothing_is_asked_where_no_rate_is_for_it() -> None:
    store = Counted()
    at = Replica(store, CALLS)
    assert await at.serves("tools/list") is None
    await at.loses()
    assert store.asked == 0


async def test_what_a_request_takes_it_takes_of_all_gateways() -> None:
    store = Counted()
    one, two = Replica(store, *ALL), Replica(store, *ALL)
    assert [await at.serves() for at in (one, two, one, two)] == [None, None, "calls", "ip"]


async def test_what_comes_too_often_is_refused_before_a_token_is_looked_at_and_without_a_question() -> None:
    store = Counted()
    one, two = Replica(store, IP), Replica(store, IP)
    for at in (one, two, two):
        assert await at.serves("tools/list") is None
    with pytest.raises(RateLimitExceeded):
        await two.limiter.on_connection(Asked(), "reports")
    assert store.asked == 3
    assert two.emitted.all[-1] == RateLimitChecked("ip", "ip", "rejected")


async def test_what_came_to_no_request_counts_nevertheless() -> None:
    store = Counted()
    at = Replica(store, IP)
    for _ in range(3):
        await at.loses()
    assert await Replica(store, IP).serves() == "ip"


async def test_each_policy_is_told_of_once_for_a_request() -> None:
    at = Replica(Counted(), *ALL)
    await at.serves()
    assert at.emitted.all == [RateLimitAllowed("ip", "ip"), RateLimitAllowed("calls", "context")]


async def test_tokens_that_are_not_accepted_anywhere_close_the_door_everywhere() -> None:
    store = Counted()
    one, two = Replica(store, *ALL), Replica(store, *ALL)
    for at in (one, two):
        await at.turns_away()
    # This one knows nothing of the other's failures: it learns of them before it says what it thinks of the token.
    with pytest.raises(RateLimited):
        await one.turns_away()
    with pytest.raises(RateLimited):
        await Replica(store, *ALL).turns_away()
    # Now it knows, and asks nobody.
    asked = store.asked
    with pytest.raises(RateLimited):
        await one.limiter.on_connection(Asked(), "reports")
    assert store.asked == asked
    assert one.emitted.all.count(SuspicionRaised("auth_bruteforce", "reports")) == 1


async def test_a_door_that_failures_close_costs_the_address_and_the_caller_nothing() -> None:
    store = Counted()
    one, two = Replica(store, *ALL), Replica(store, *ALL)
    for _ in range(2):
        await one.turns_away()
    for at in (one, two, two):
        with pytest.raises(RateLimited) as refusal:
            await at.turns_away()
        assert refusal.value.policy == "auth_failures"
    wider = Replica(store, IP, CALLS)
    assert [await wider.serves() for _ in range(2)] == [None, "ip"]


async def test_a_token_that_was_found_good_is_refused_for_no_others_that_were_not() -> None:
    store = Counted()
    one, two = Replica(store, FAILURES, CALLS), Replica(store, FAILURES, CALLS)
    for _ in range(2):
        await one.turns_away()
    assert await two.serves() is None
    with pytest.raises(RateLimited):
        await two.turns_away()
    # Now it has learnt of the failures, and refuses who is not known at once.
    with pytest.raises(RateLimited):
        await two.limiter.on_connection(Asked(), "reports")
    exchange = Asked()
    await two.limiter.on_connection(exchange, "reports", lambda: True)
    await two.limiter.flush(exchange, "reports")


async def test_look_ups_that_failed_anywhere_count_everywhere() -> None:
    store = Counted()
    one, two = Replica(store, *ALL), Replica(store, *ALL)
    assert await one.limiter.on_lookup_failure(ALICE, Asked(), "reports")
    assert await two.serves("tasks/get") == "lookups"
    with pytest.raises(RateLimited):
        await two.limiter.check_lookups(ALICE, Asked(), "reports")
    await two.limiter.check_lookups(BOB, Asked(), "reports")
    assert not await two.limiter.on_lookup_failure(ALICE, Asked(), "reports")


async def test_several_messages_of_one_request_take_once_for_their_arrival() -> None:
    store = Counted()
    at, exchange = Replica(store, IP, CALLS), Asked()
    await at.limiter.on_connection(exchange, "reports")
    for _ in range(2):
        await at.limiter.on_request(ALICE, exchange, "reports", "tools/call")
    await at.limiter.flush(exchange, "reports")
    assert [event.policy for event in at.emitted.all if isinstance(event, RateLimitAllowed)] == ["ip", "calls", "calls"]


async def test_what_is_left_is_told_of_what_the_request_takes() -> None:
    at, exchange = Replica(Counted(), IP, CALLS, exposes_quota=True), Asked()
    await at.limiter.on_connection(exchange, "reports")
    quota, _ = await at.limiter.on_request(ALICE, exchange, "reports", "tools/call")
    assert dict(quota)["RateLimit"] == '"calls";r=1;t=10'
    await at.limiter.on_connection(exchange, "reports")
    assert await at.limiter.on_request(ALICE, exchange, "reports", "tools/list") == ((), None)


async def test_what_counts_without_the_store_teaches_nothing() -> None:
    """Its parts are smaller than what is shared: who remembered them would refuse what the store allows."""
    store = Counted()
    at, other = Replica(store, IP), Replica(store, IP)
    store.counted_as = "fail_local"
    for _ in range(3):
        assert await other.serves() is None
    assert RateLimitChecked("ip", "ip", "fail_local") in other.emitted.all
    assert await at.serves() == "ip"
    store.rates, store.counted_as = MemoryRateStore(), "allowed"
    assert await at.serves() is None


async def test_where_the_store_is_gone_and_nothing_counts_instead_requests_are_refused() -> None:
    store = Counted()
    store.is_there = False
    at, exchange = Replica(store, *ALL), Asked()
    await at.limiter.on_connection(exchange, "reports")
    with pytest.raises(StoreUnavailable):
        await at.limiter.on_request(ALICE, exchange, "reports", "tools/call")
    await at.limiter.flush(exchange, "reports")
    await at.loses()


async def test_nothing_is_remembered_of_exchanges_that_are_over() -> None:
    store = Counted()
    at, served, lost = Replica(store, *ALL), Asked(), Asked()
    await at.limiter.on_connection(served, "reports")
    await at.limiter.on_request(ALICE, served, "reports", "tools/call")
    await at.limiter.on_connection(lost, "reports")
    await at.limiter.flush(lost, "reports")
    assert store.asked == 2
    for exchange in (served, lost):
        await at.limiter.flush(exchange, "reports")
    assert store.asked == 2
