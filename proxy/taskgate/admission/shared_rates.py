"""Rates that replicas share, and what is done while nobody can say what is left of them (decision 20).

What must not live here: where the shared budgets are kept (`stores`), and what becomes of a refusal (`rates`).
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from taskgate.admission.rules import OnStoreError, RuntimeConfig
from taskgate.clock import Clock
from taskgate.domain.rates import Demand, RateLimit, RateVerdict
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import RateJudgement, RateStep, RateStore
from taskgate.stores.rates import MemoryRateStore
from taskgate.telemetry.events import EventSink, RateFallbackUsed

PAUSE: Final = 60.0
"""Seconds after which it is told again that the store is not asked."""


class SharedRates:
    """A RateStore: the shared one, or while that fails whatever the operator's rules have in its place.

    `processes` says how many share the budgets: of each this one gives its part alone, for as long as it is alone.
    """

    def __init__(
        self,
        store: RateStore,
        *,
        live: RuntimeConfig,
        processes: Callable[[], int],
        event_sink: EventSink,
        clock: Clock,
    ) -> None:
        self._store = store
        self._live = live
        self._processes = processes
        self._event_sink = event_sink
        self._clock = clock
        self._own = MemoryRateStore()
        self._told = -inf

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        """See RateStore. Raises StoreUnavailable where the rules have everything refused then."""
        try:
            return await self._store.judge(steps, now=now)
        except StoreUnavailable:
            rule = self._live.now.on_store_error
            self._tell(rule)
            if rule is OnStoreError.CLOSED:
                raise
        if rule is OnStoreError.OPEN:
            return RateJudgement([tuple(map(_open, each.demands)) for each in steps], counted_as="fail_open")
        share = max(1, self._processes())
        judged = await self._own.judge([_part(each, share) for each in steps], now=now)
        return judged._replace(counted_as="fail_local")

    def _tell(self, rule: OnStoreError) -> None:
        now = self._clock.elapsed()
        if now - self._told >= PAUSE:
            self._told = now
            self._event_sink.emit(RateFallbackUsed(rule.value))


def _open(demand: Demand) -> RateVerdict:
    return RateVerdict(True, demand.limit.burst, 0.0, 0.0)


def _part(step: RateStep, share: int) -> RateStep:
    """What one of `share` processes gives, which is enough for one request at the least."""
    if share == 1:
        return step
    return RateStep(step.way, [each._replace(limit=_part_of(each.limit, share, each.cost)) for each in step.demands])


def _part_of(limit: RateLimit, share: int, cost: int) -> RateLimit:
    return RateLimit(every=limit.every * share, burst=max(cost, limit.burst // share))


_: type[RateStore] = SharedRates
