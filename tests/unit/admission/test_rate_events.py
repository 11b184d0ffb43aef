"""The limits of what happens: tokens that are not accepted, tasks that are not there, and what comes before both."""

from dataclasses import replace
from datetime import timedelta

import pytest

from taskgate.auth.context import AuthContext
from taskgate.domain.limits import Override, Overrides
from taskgate.domain.rates import RateEvent, RateLimit, RatePolicies, RateScope
from taskgate.errors import RateLimited
from taskgate.telemetry.events import RateLimitAllowed, RateLimitChecked, SuspicionRaised
from unit.admission.limiter_desk import ALICE, BOB, HERE, THERE, LimiterDesk, policy
from unit.admission.live_rules import rules


def unknown() -> bool:
    """Its token was never seen."""
    return False


def known() -> bool:
    """Its token was found good before."""
    return True


class TestBeforeAuthentication:
    """Where requests come from is all that is known of them."""

    async def test_an_address_has_a_budget(self) -> None:
        at = LimiterDesk(policy("ip", 2, scope=RateScope.IP, before_auth=True))
        for _ in range(2):
            await at.limiter.on_connection(HERE, "reports", unknown)
        with pytest.raises(RateLimited):
            await at.limiter.on_connection(HERE, "reports", unknown)
        await at.limiter.on_connection(THERE, "reports", unknown)
        allowed, rejected = RateLimitAllowed("ip", "ip"), RateLimitChecked("ip", "ip", "rejected")
        assert at.emitted.all == [allowed, allowed, rejected, allowed]

    async def test_tokens_that_are_not_accepted_close_the_door_for_their_address(self) -> None:
        at = LimiterDesk(policy("auth_failures", 2, scope=RateScope.IP, event=RateEvent.AUTH_FAILURE))
        for _ in range(2):
            await at.limiter.on_connection(HERE, "reports", unknown)
            await at.limiter.on_auth_failure(HERE, "reports")
        with pytest.raises(RateLimited) as refusal:
            await at.limiter.on_connection(HERE, "reports", unknown)
        assert refusal.value.policy == "auth_failures"
        await at.limiter.on_connection(THERE, "reports", unknown)
        at.clock.advance(refusal.value.retry_after)
        await at.limiter.on_connection(HERE, "reports", unknown)
        assert at.emitted.all == [
            RateLimitChecked("auth_failures", "ip", "rejected"),
            SuspicionRaised("auth_bruteforce", "reports"),
        ]

    async def test_a_token_that_was_found_good_before_passes_where_others_of_its_address_do_not(self) -> None:
        failures = policy("auth_failures", 1, every=100.0, scope=RateScope.IP, event=RateEvent.AUTH_FAILURE)
        at = LimiterDesk(failures, policy("ip", 2, every=100.0, scope=RateScope.IP, before_auth=True))
        await at.limiter.on_auth_failure(HERE, "reports")
        for _ in range(2):
            await at.limiter.on_connection(HERE, "reports", known)
        assert not [event for event in at.emitted.all if isinstance(event, SuspicionRaised)]
        with pytest.raises(RateLimited) as refusal:
            await at.limiter.on_connection(HERE, "reports", known)
        assert refusal.value.policy == "ip", "its address has no more than before"
        with pytest.raises(RateLimited) as refusal:
            await at.limiter.on_connection(HERE, "reports", unknown)
        assert refusal.value.policy == "auth_failures"

    async def test_whoever_goes_on_with_tokens_that_are_not_accepted_is_suspected_once_a_minute(self) -> None:
        at = LimiterDesk(policy("auth_failures", 1, every=100.0, scope=RateScope.IP, event=RateEvent.AUTH_FAILURE))

        async def suspected(times: int) -> int:
            for _ in range(times):
                with pytest.raises(RateLimited):
                    await at.limiter.on_connection(HERE, "reports", unknown)
            return at.emitted.all.count(SuspicionRaised("auth_bruteforce", "reports"))

        await at.limiter.on_auth_failure(HERE, "reports")
        assert await suspected(3) == 1
        at.clock.advance(timedelta(minutes=1))
        assert await suspected(3) == 2

    async def test_who_only_comes_too_often_is_not_suspected_of_trying_tokens(self) -> None:
        at = LimiterDesk(policy("ip", 1, scope=RateScope.IP, before_auth=True))
        await at.limiter.on_connection(HERE, "reports", unknown)
        with pytest.raises(RateLimited):
            await at.limiter.on_connection(HERE, "reports", unknown)
        assert not any(isinstance(event, SuspicionRaised) for event in at.emitted.all)

    async def test_looking_costs_nothing(self) -> None:
        at = LimiterDesk(policy("auth_failures", 1, scope=RateScope.IP, event=RateEvent.AUTH_FAILURE))
        for _ in range(5):
            await at.limiter.on_connection(HERE, "reports", unknown)

    async def test_a_door_that_failures_close_costs_the_address_nothing(self) -> None:
        at = LimiterDesk(
            policy("ip", 2, scope=RateScope.IP, before_auth=True),
            policy("auth_failures", 1, every=1.0, scope=RateScope.IP, event=RateEvent.AUTH_FAILURE),
        )
        await at.limiter.on_auth_failure(HERE, "reports")
        for _ in range(5):
            with pytest.raises(RateLimited):
                await at.limiter.on_connection(HERE, "reports", unknown)
        at.clock.advance(timedelta(seconds=1))
        for _ in range(2):
            await at.limiter.on_connection(HERE, "reports", unknown)


class TestFailedLookups:
    """Whoever asks for tasks that are not its own may ask for none any more, but may do all else."""

    POLICY = policy("lookups", 2, event=RateEvent.LOOKUP_FAILURE)

    async def test_no_room_refuses_requests_about_tasks_alone(self) -> None:
        at = LimiterDesk(self.POLICY)
        for _ in range(2):
            assert await at.asks(method="tasks/get")
            await at.limiter.on_lookup_failure(ALICE, HERE, "reports")
        assert [await at.asks(method=method) for method in ("tasks/get", "tasks/list", "tools/call")] == [
            False,
            False,
            True,
        ]
        assert await at.asks(BOB, "tasks/get")
        with pytest.raises(RateLimited):
            await at.limiter.check_lookups(ALICE, HERE, "reports")
        await at.limiter.check_lookups(BOB, HERE, "reports")
        after, name = await at.wait("tasks/get")
        assert name == "lookups"
        at.clock.advance(after)
        assert await at.asks(method="tasks/get")

    async def test_what_was_refused_for_them_costs_nothing_else(self) -> None:
        at = LimiterDesk(self.POLICY, policy("polls", 1, methods=("tasks/*",)))
        for _ in range(3):
            await at.limiter.on_lookup_failure(ALICE, HERE, "reports")
        assert (await at.wait("tasks/get"))[1] == "lookups"
        at.live.current = rules(rates=RatePolicies((policy("polls", 1, methods=("tasks/*",)),)))
        assert await at.asks(method="tasks/get")

    async def test_each_policy_counts_for_itself(self) -> None:
        """What has happened cannot be refused, so one budget without room keeps no other from being charged."""
        everybody = policy("all", 1, scope=RateScope.GLOBAL, event=RateEvent.LOOKUP_FAILURE)
        at = LimiterDesk(everybody, self.POLICY)
        for _ in range(2):
            await at.limiter.on_lookup_failure(ALICE, HERE, "reports")
        at.live.current = rules(rates=RatePolicies((self.POLICY,)))
        assert not await at.asks(method="tasks/get")

    async def test_a_callers_own_rate_counts(self) -> None:
        patient = Override(rates={"lookups": RateLimit(every=1.0, burst=3)})
        at = LimiterDesk(self.POLICY, overrides=Overrides((patient,)))
        for _ in range(3):
            assert await at.asks(method="tasks/get")
            await at.limiter.on_lookup_failure(ALICE, HERE, "reports")
        assert not await at.asks(method="tasks/get")

    async def test_in_shadow_they_only_tell(self) -> None:
        at = LimiterDesk(replace(self.POLICY, shadow=True))
        for _ in range(4):
            assert await at.limiter.on_lookup_failure(ALICE, HERE, "reports")
        assert await at.asks(method="tasks/get")
        assert at.emitted.all == [RateLimitChecked("lookups", "context", "shadow")]


class TestLargeBodies:
    """A large body takes its KiB before it is read."""

    POLICY = policy("bodies", 2000, every=1.0, scope=RateScope.SUBJECT, event=RateEvent.LARGE_BODY)

    async def test_a_person_has_a_budget_of_bytes(self) -> None:
        at = LimiterDesk(self.POLICY)
        for _ in range(2):
            await at.limiter.on_large_body(ALICE, HERE, "reports", 1000 * 1024)
        other = AuthContext(key="alice-2", subject=ALICE.subject)
        with pytest.raises(RateLimited) as refusal:
            await at.limiter.on_large_body(other, THERE, "reports", 300 * 1024)
        assert (refusal.value.policy, refusal.value.retry_after) == ("bodies", timedelta(seconds=300))
        await at.limiter.on_large_body(BOB, HERE, "reports", 300 * 1024)
        at.clock.advance(timedelta(seconds=300))
        await at.limiter.on_large_body(other, THERE, "reports", 300 * 1024)
        assert await at.asks()

    async def test_addresses_may_have_one_and_servers_too(self) -> None:
        by_address = policy("address", 1, scope=RateScope.IP, event=RateEvent.LARGE_BODY)
        by_server = policy("server", 3, scope=RateScope.UPSTREAM, event=RateEvent.LARGE_BODY)
        at = LimiterDesk(by_address, by_server)
        await at.limiter.on_large_body(ALICE, HERE, "reports", 1024)
        with pytest.raises(RateLimited) as refusal:
            await at.limiter.on_large_body(BOB, HERE, "reports", 1024)
        assert refusal.value.policy == "address"
        await at.limiter.on_large_body(BOB, THERE, "search", 1024)

    async def test_a_body_of_a_mount_that_is_gone_takes_from_the_rates_of_all_mounts(self) -> None:
        at = LimiterDesk(self.POLICY, policy("there", scope=RateScope.IP, event=RateEvent.LARGE_BODY, upstream="there"))
        for _ in range(2):
            await at.limiter.on_large_body(ALICE, HERE, "", 1000 * 1024)
        with pytest.raises(RateLimited):
            await at.limiter.on_large_body(ALICE, HERE, "", 1024)
