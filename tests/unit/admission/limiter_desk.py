"""A rate limiter with everything that it needs, and the policies that tests give it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from taskgate.admission.rate_queue import QueuedRequest
from taskgate.admission.rates import QuotaFields, QuotaSubjects, RateLimiter
from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext
from taskgate.domain.rates import RateLimit, RatePolicies, RatePolicy, RateScope
from taskgate.errors import RateLimited
from taskgate.stores.rates import MemoryRateStore
from taskgate.streams.exchange import Exchange
from unit.admission.live_rules import live
from unit.lifecycle.asked import Asked
from unit.lifecycle.recorded_events import RecordedEvents

ALICE, BOB = AuthContext(key="alice"), AuthContext(key="bob")
HERE, THERE = Asked(where="192.0.2.7"), Asked(where="192.0.2.8")


def policy(
    name: str, burst: int = 1, every: float = 10.0, scope: RateScope = RateScope.CONTEXT, **more: Any
) -> RatePolicy:
    return RatePolicy(name=name, scope=scope, limit=RateLimit(every=every, burst=burst), **more)


class AskedAsByGateway(RateLimiter):
    """A rate limiter that judges only what it does not admit at once, as the gateway asks it.

    `judged` counts those.
    """

    def __init__(self, *, clock: ManualClock, **parts: Any) -> None:
        super().__init__(clock=clock, **parts)
        self.own_clock, self.judged = clock, 0

    async def on_connection(self, exchange: Exchange, mount: str, is_known: Callable[[], bool] | None = None) -> None:
        if not self.admits_connection(exchange, mount, self.own_clock.elapsed()):
            self.judged += 1
            await super().on_connection(exchange, mount, is_known)

    async def on_request(
        self, caller: AuthContext, exchange: Exchange, mount: str, method: str, tool: str | None = None
    ) -> tuple[QuotaFields, QueuedRequest | None]:
        if self.admits(caller, exchange, mount, method, tool, self.own_clock.elapsed()):
            return (), None
        self.judged += 1
        return await super().on_request(caller, exchange, mount, method, tool)


class LimiterDesk:
    """A rate limiter with its clock, its rules and what it told."""

    def __init__(self, *policies: RatePolicy, **changes: Any) -> None:
        self.clock, self.emitted = ManualClock(), RecordedEvents()
        self.live: RuntimeConfig = live(rates=RatePolicies(policies), **changes)
        self.limiter = AskedAsByGateway(
            live=self.live,
            subjects=QuotaSubjects(self.live),
            store=MemoryRateStore(),
            event_sink=self.emitted,
            clock=self.clock,
        )

    async def asks(self, caller: AuthContext = ALICE, method: str = "tools/call", tool: str | None = None) -> bool:
        """Whether a request is let through."""
        try:
            await self.limiter.on_request(caller, HERE, "reports", method, tool)
        except RateLimited:
            return False
        return True

    async def wait(self, method: str = "tools/call") -> tuple[timedelta, str]:
        """After how long a refused request would be let in, and the policy that refuses it."""
        with pytest.raises(RateLimited) as refusal:
            await self.limiter.on_request(ALICE, HERE, "reports", method)
        return refusal.value.retry_after, refusal.value.policy
