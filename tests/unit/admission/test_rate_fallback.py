"""What counts while the store cannot be asked that gateways share."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock
from taskgate.admission.rates import FallbackRateStore
from taskgate.admission.rules import OnStoreError
from taskgate.domain.rates import Demand
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import RateJudgement, RateStep, RateStepMode
from taskgate.stores.rates import MemoryRateStore
from taskgate.telemetry.events import RateFallbackUsed
from unit.admission.limiter_desk import policy
from unit.admission.live_rules import live
from unit.lifecycle.recorded_events import RecordedEvents


class Failing:
    """A store of rates that can be taken away."""

    def __init__(self) -> None:
        self.is_there, self.rates = True, MemoryRateStore()

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        if not self.is_there:
            raise StoreUnavailable("gone")
        return await self.rates.judge(steps, now=now)


class Sharing:
    """One of `processes` that share a store, which is not there."""

    def __init__(self, rule: OnStoreError, processes: int = 1) -> None:
        self.store, self.emitted, self.clock, self.processes = Failing(), RecordedEvents(), ManualClock(), processes
        self.live = live(on_store_error=rule)
        self.rates = FallbackRateStore(
            self.store, live=self.live, processes=lambda: self.processes, event_sink=self.emitted, clock=self.clock
        )
        self.store.is_there = False

    async def takes(self, burst: int = 1, every: float = 1.0, cost: int = 1) -> RateJudgement:
        limited = policy("calls", burst, every=every, cost=cost)
        step = RateStep(RateStepMode.TAKE, (Demand("alice", limited.limit, cost, limited),))
        return await self.rates.judge((step,), now=self.clock.elapsed())

    async def passes(self, times: int, burst: int) -> int:
        return sum([(await self.takes(burst)).refused is None for _ in range(times)])


async def test_while_the_store_answers_it_alone_counts() -> None:
    at = Sharing(OnStoreError.LOCAL, processes=4)
    at.store.is_there = True
    assert (await at.takes()).counted_as == "allowed"
    assert (await at.takes()).refused == 0
    assert at.emitted.all == []


@pytest.mark.parametrize(("processes", "burst", "part"), [(1, 8, 8), (2, 8, 4), (3, 8, 2), (0, 8, 8), (9, 8, 1)])
async def test_each_gives_its_part_of_a_rate_and_one_request_at_the_least(
    processes: int, burst: int, part: int
) -> None:
    at = Sharing(OnStoreError.LOCAL, processes)
    assert await at.passes(20, burst) == part


async def test_what_comes_back_is_a_part_too() -> None:
    at = Sharing(OnStoreError.LOCAL, processes=4)
    assert await at.passes(9, 4) == 1
    at.clock.advance(timedelta(seconds=3))
    assert await at.passes(9, 4) == 0
    at.clock.advance(timedelta(seconds=1))
    assert await at.passes(9, 4) == 1


async def test_a_cost_above_the_part_passes_once_all_is_there() -> None:
    at = Sharing(OnStoreError.LOCAL, processes=4)
    assert (await at.takes(burst=4, cost=3)).refused is None
    assert (await at.takes(burst=4, cost=3)).refused == 0


async def test_what_passed_is_told_apart() -> None:
    assert (await Sharing(OnStoreError.LOCAL).takes()).counted_as == "fail_local"
    assert (await Sharing(OnStoreError.OPEN).takes()).counted_as == "fail_open"


async def test_open_lets_everything_pass() -> None:
    at = Sharing(OnStoreError.OPEN)
    assert await at.passes(50, 1) == 50


async def test_closed_refuses_whatever_a_rate_is_for() -> None:
    at = Sharing(OnStoreError.CLOSED)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await at.takes()
    assert at.emitted.all == [RateFallbackUsed("closed")]


async def test_the_rule_is_the_one_of_the_day() -> None:
    at = Sharing(OnStoreError.CLOSED)
    at.live.current = live(on_store_error=OnStoreError.OPEN).current
    assert (await at.takes()).refused is None


async def test_operators_are_told_when_it_begins_and_each_minute_that_it_goes_on() -> None:
    at = Sharing(OnStoreError.LOCAL)
    for _ in range(3):
        await at.takes()
        at.clock.advance(timedelta(seconds=20))
    assert at.emitted.all == [RateFallbackUsed("local")]
    await at.takes()
    assert at.emitted.all == [RateFallbackUsed("local")] * 2


async def test_the_store_counts_again_as_soon_as_it_answers() -> None:
    at = Sharing(OnStoreError.LOCAL)
    await at.takes()
    at.store.is_there = True
    assert (await at.takes()).counted_as == "allowed"
