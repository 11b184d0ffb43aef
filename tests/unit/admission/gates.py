"""A gate with everything that it needs, and the policies that tests give it."""

from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from taskgate.admission.rates import QuotaSubjects, RateLimiter
from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext
from taskgate.domain.rates import RateLimit, RatePolicies, RatePolicy, RateScope
from taskgate.errors import RateLimited
from taskgate.stores.rates import MemoryRateStore
from unit.admission.live_rules import live
from unit.lifecycle.asked import Asked
from unit.lifecycle.recorded_events import RecordedEvents

ALICE, BOB = AuthContext(key="alice"), AuthContext(key="bob")
HERE, THERE = Asked(where="192.0.2.7"), Asked(where="192.0.2.8")


def policy(
    name: str, burst: int = 1, every: float = 10.0, scope: RateScope = RateScope.CONTEXT, **more: Any
) -> RatePolicy:
    return RatePolicy(name=name, scope=scope, limit=RateLimit(every=every, burst=burst), **more)


class Gate:
    """A gate with its clock, its rules and what it told."""

    def __init__(self, *policies: RatePolicy, **changes: Any) -> None:
        self.clock, self.emitted = ManualClock(), RecordedEvents()
        self.live: RuntimeConfig = live(rates=RatePolicies(policies), **changes)
        self.gate = RateLimiter(
            live=self.live,
            subjects=QuotaSubjects(self.live),
            store=MemoryRateStore(),
            event_sink=self.emitted,
            clock=self.clock,
        )

    async def asks(self, caller: AuthContext = ALICE, method: str = "tools/call", tool: str | None = None) -> bool:
        """Whether a request is let through."""
        try:
            await self.gate.on_request(caller, HERE, "reports", method, tool)
        except RateLimited:
            return False
        return True

    async def wait(self, method: str = "tools/call") -> tuple[timedelta, str]:
        """After how long a refused request would be let in, and the policy that refuses it."""
        with pytest.raises(RateLimited) as refusal:
            await self.gate.on_request(ALICE, HERE, "reports", method)
        return refusal.value.retry_after, refusal.value.policy
