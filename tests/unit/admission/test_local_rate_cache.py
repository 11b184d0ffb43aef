"""What one of several gateways knows of budgets that they share: never more than it was told, and never less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.admission.rates import LocalRateCache
from taskgate.domain.rates import Demand, RateEvent, RateLimit, RatePolicy, RateScope
from taskgate.stores.base import RateJudgement, RateStep, RateStepMode
from taskgate.stores.rates import MemoryRateStore
from unit.admission.limiter_desk import policy

ARRIVALS = policy("ip", 3, every=1.0, scope=RateScope.IP, before_auth=True)
FAILURES = policy("auth_failures", 2, every=1.0, scope=RateScope.IP, event=RateEvent.AUTH_FAILURE)
CALLS = policy("calls", 1, every=1.0)


def of(policy: RatePolicy, cost: int = 1) -> Demand:
    return Demand(policy.name, policy.limit, cost, policy)


COMES = (RateStep(RateStepMode.LOOK, (of(FAILURES),)), RateStep(RateStepMode.TAKE, (of(ARRIVALS),)))
CALL = RateStep(RateStepMode.TAKE, (of(CALLS),))


class Gateway:
    """One of several that share a store, with its own sieve."""

    def __init__(self, shared: MemoryRateStore) -> None:
        self.shared, self.sieve = shared, LocalRateCache()

    async def lets_through(self, now: float) -> bool:
        return (await self.sieve.judge(COMES, now=now)).refused is None

    async def serves(self, now: float, *more: RateStep) -> RateJudgement:
        """What the store says to a request that was let through."""
        steps = (*COMES, *more)
        judged = await self.shared.judge(steps, now=now)
        self.sieve.learn(steps, judged, asked=now)
        return judged


async def test_what_others_took_is_known_from_the_first_answer_on() -> None:
    shared = MemoryRateStore()
    busy, other = Gateway(shared), Gateway(shared)
    for _ in range(2):
        assert await busy.lets_through(0.0)
        await busy.serves(0.0)
    assert await other.lets_through(0.0)
    assert (await other.serves(0.0)).refused is None
    assert not await other.lets_through(0.0)
    # The other one was not told yet that nothing is left, and learns of it by a refusal.
    assert await busy.lets_through(0.0)
    assert (await busy.serves(0.0)).refused == 1
    assert not await busy.lets_through(0.5)
    assert await busy.lets_through(1.0)


async def test_what_is_under_way_counts_before_its_answer_comes() -> None:
    """Or a crowd would be let through to the checks of tokens, of which each is dear."""
    gateway = Gateway(MemoryRateStore())
    assert [await gateway.lets_through(0.0) for _ in range(4)] == [True, True, True, False]
    await gateway.serves(0.0)
    assert not await gateway.lets_through(0.0)


async def test_what_the_store_did_not_take_is_given_back() -> None:
    gateway = Gateway(MemoryRateStore())
    for _ in range(2):
        await gateway.shared.judge((RateStep(RateStepMode.NOTE, (of(FAILURES),)),), now=0.0)
    assert [await gateway.lets_through(0.0) for _ in range(3)] == [True, True, True]
    assert [(await gateway.serves(0.0)).refused for _ in range(3)] == [0, 0, 0]
    # It knows of the failures now, and refuses for those until they are forgiven; of arrivals none has counted.
    assert (await gateway.sieve.judge(COMES, now=0.5)).refused == 0
    assert [await gateway.lets_through(1.0) for _ in range(4)] == [True, True, True, False]


async def test_only_what_is_asked_at_arrival_is_remembered() -> None:
    gateway = Gateway(MemoryRateStore())
    assert await gateway.lets_through(0.0)
    await gateway.serves(0.0, CALL)
    assert (await gateway.sieve.judge((CALL,), now=0.0)).refused is None


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.booleans()), max_size=60),
    st.sampled_from([(1.0, 3), (0.25, 2), (2.0, 1)]),
)
async def test_nobody_is_refused_whom_the_store_would_let_in(
    arrivals: list[tuple[int, int, bool]], limit: tuple[float, int]
) -> None:
    """Two gateways, requests that overlap: whenever a sieve refuses, so would the store, then and there."""
    every, burst = limit
    ip = Demand("ip", RateLimit(every=every, burst=burst), 1, ARRIVALS)
    steps = (RateStep(RateStepMode.TAKE, (ip,)),)
    shared = MemoryRateStore()
    gateways, now = [Gateway(shared), Gateway(shared)], 0.0
    under_way: list[Gateway] = []

    async def settle() -> None:
        while under_way:
            judged = await shared.judge(steps, now=now)
            under_way.pop().sieve.learn(steps, judged, asked=now)

    for which, pause, overlaps in arrivals:
        if pause:
            await settle()
        now += pause / 4
        gateway = gateways[which]
        if (await gateway.sieve.judge(steps, now=now)).refused is None:
            under_way.append(gateway)
        else:
            await settle()
            assert (await shared.judge((RateStep(RateStepMode.LOOK, (ip,)),), now=now)).refused == 0
        if not overlaps:
            await settle()


@pytest.mark.parametrize("shadow", [ARRIVALS, FAILURES])
async def test_what_only_tells_refuses_nobody(shadow: RatePolicy) -> None:
    silent = RateStep(RateStepMode.TAKE, (Demand("ip", shadow.limit, 1, policy("ip", shadow=True, before_auth=True)),))
    sieve = LocalRateCache()
    for _ in range(9):
        assert (await sieve.judge((silent,), now=0.0)).refused is None
