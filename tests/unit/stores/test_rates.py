"""The rate store in memory, beyond tests/contract/test_rates.py: bounded, and as fast however many budgets."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.examples import examples
from requirements import covers
from taskgate.domain.rates import Demand, RateLimit, RatePolicy, RateScope
from taskgate.stores.base import RateCheck, RateStep, RateStepMode
from taskgate.stores.rates import MemoryRateStore


def demand(key: str = "k", burst: int = 3, cost: int = 1, *, shadow: bool = False) -> Demand:
    limit = RateLimit(every=1.0, burst=burst)
    return Demand(key, limit, cost, RatePolicy(name=key, scope=RateScope.CONTEXT, limit=limit, shadow=shadow))


async def left(store: MemoryRateStore, one: Demand, now: float = 0.0) -> int:
    """How many units there are."""
    (verdict,) = store.peek((one._replace(cost=0),), now=now)
    return verdict.remaining


async def test_a_look_charges_nothing_and_says_what_taking_would() -> None:
    store = MemoryRateStore()
    looks = [(store.peek((demand(burst=1),), now=0.0))[0] for _ in range(3)]
    assert [(each.allowed, each.remaining) for each in looks] == [(True, 0)] * 3
    assert len(store) == 0
    store.take((demand(burst=1),), now=0.0)
    (refused,) = store.peek((demand(burst=1),), now=0.5)
    assert (refused.allowed, refused.retry_after) == (False, 0.5)


async def test_the_one_that_was_asked_for_longest_ago_is_forgotten_where_it_owes_nothing() -> None:
    store = MemoryRateStore(size=2)
    for key in ("a", "b"):
        store.take((demand(key, 1),), now=0.0)
    # Refused, but asked for.
    store.take((demand("a", 1),), now=0.5)
    store.take((demand("c", 1),), now=1.0)
    assert len(store) == 2
    assert [await left(store, demand(key, 1), 1.0) for key in ("a", "c")] == [1, 0]


@covers("T45")
async def test_many_newcomers_share_one_budget_and_have_no_debt_forgotten() -> None:
    store = MemoryRateStore(size=10)

    def of(caller: str) -> Demand:
        return demand(burst=2)._replace(key=f"k\n{caller}")

    for number in range(20):
        store.take((of(f"early {number % 10}"),), now=0.0)
    newcomers = [store.take((of(f"late {number}"),), now=0.0)[0] for number in range(1000)]
    assert [each.allowed for each in newcomers] == [True, True] + [False] * 998
    assert [await left(store, of(f"late {number}")) for number in (0, 999)] == [0, 0]
    assert not any(store.take((of(f"early {number}"),), now=0.0)[0].allowed for number in range(10))
    assert len(store) == 11
    # Once budgets are full again, newcomers have their own.
    assert all(store.take((of(f"late {number}"),), now=2.0)[0].allowed for number in range(8))
    assert len(store) <= 11


@covers("T45")
@pytest.mark.parametrize("identities", [1_000, 10_000])
async def test_what_is_remembered_does_not_grow_with_identities(identities: int) -> None:
    store = MemoryRateStore(size=500)
    for number in range(identities):
        store.take((demand()._replace(key=f"k\n{number}"), demand("l")._replace(key=f"l\n{number}")), now=number / 100)
        assert len(store) <= 500 + 3


async def test_where_another_store_counts_too_the_one_asked_for_longest_ago_is_forgotten_whatever_it_owes() -> None:
    store = MemoryRateStore(size=2, is_lenient=True)
    for key in ("a", "b", "c"):
        store.take((demand(key, 1),), now=0.0)
    assert len(store) == 2
    assert [await left(store, demand(key, 1)) for key in ("a", "b", "c")] == [1, 0, 0]


async def test_what_is_known_is_kept_in_its_place_when_it_is_taken_from_again() -> None:
    store = MemoryRateStore(size=2)
    for key in ("a", "b", "a", "b"):
        store.take((demand(key),), now=0.0)
    assert [await left(store, demand(key)) for key in ("a", "b")] == [1, 1]


@pytest.mark.thorough
@pytest.mark.parametrize("turnover", [False, True], ids=["the same one", "always new ones, in a full store"])
async def test_it_takes_as_long_with_a_hundred_thousand_keys_as_with_one(turnover: bool) -> None:
    """Within a factor that leaves room for chance; a search for the oldest would take a thousand times as long."""

    async def cost(known: int, size: int) -> float:
        store = MemoryRateStore(size=size)
        for number in range(known):
            store.take((demand(f"known {number}"),), now=0.0)
        demands = [demand(f"new {number}" if turnover else "same", 10**9) for number in range(500)]
        times = []
        for _ in range(10):
            begun = time.perf_counter()
            for each in demands:
                store.take((each,), now=0.0)
            times.append(time.perf_counter() - begun)
        return min(times)

    assert await cost(100_000, 100_000) < 10 * await cost(1, 1 if turnover else 10)


def limited(key: str, every: float, burst: int, cost: int, shadow: bool) -> Demand:
    limit = RateLimit(every=every, burst=burst)
    return Demand(f"{key}\n1", limit, cost, RatePolicy(name=key, scope=RateScope.CONTEXT, limit=limit, shadow=shadow))


asked_for = st.tuples(
    st.builds(
        limited,
        st.sampled_from("abcd"),
        st.sampled_from([0.1, 1.0]),
        st.sampled_from([1, 2, 3, 3]),
        st.sampled_from([1, 1, 1, 2, 0]),
        st.sampled_from([False, False, True]),
    ),
    st.booleans(),
)
rounds = st.tuples(
    st.sampled_from([0.0, 0.05, 0.1, 0.95, 2.0]),
    st.lists(asked_for, min_size=1, max_size=3, unique_by=lambda each: each[0].key),
)


@settings(max_examples=examples(300))
@given(st.lists(rounds, min_size=4, max_size=20), st.sampled_from([1, 2, 3, 100]), st.booleans())
async def test_what_is_permitted_at_once_leaves_the_store_as_a_judgement_does(
    asked: list[tuple[float, list[tuple[Demand, bool]]]], size: int, lenient: bool
) -> None:
    quick, judging = (MemoryRateStore(size, is_lenient=lenient) for _ in range(2))
    # A check is kept, as the gateway keeps it, while the store may drop its budgets.
    checks: dict[str, RateCheck] = {}
    now = 0.3
    for pause, demands in asked:
        now += pause
        looked, taken = ([each for each, takes in demands if takes is way] for way in (False, True))
        steps = (RateStep(RateStepMode.LOOK, looked), RateStep(RateStepMode.TAKE, taken))
        judged = await judging.judge(steps, now=now)
        if quick.permits(checks.setdefault(str(steps), RateCheck(steps)), now):
            assert judged.refused is None
            assert all(each.allowed for verdicts in judged.verdicts for each in verdicts)
        else:
            assert await quick.judge(steps, now=now) == judged
        assert len(quick) == len(judging)
    every = [limited(key, 0.1, 3, 0, False) for key in "abcd"]
    assert quick.peek(every, now=now) == judging.peek(every, now=now)


def test_it_permits_at_once_while_there_is_room_and_takes_nothing_for_what_it_does_not_permit() -> None:
    store = MemoryRateStore()
    check = RateCheck((RateStep(RateStepMode.TAKE, (demand("large", 9), demand("small", 2))),))
    assert [store.permits(check, 0.0) for _ in range(3)] == [True, True, False]
    (large,) = store.peek((demand("large", 9, 0),), now=0.0)
    assert large.remaining == 7


def test_a_full_store_permits_no_new_budget_at_once() -> None:
    store = MemoryRateStore(size=1)
    first, other = (RateCheck((RateStep(RateStepMode.TAKE, (demand(key),)),)) for key in "ab")
    assert [store.permits(each, 0.0) for each in (first, other, first)] == [True, False, True]


def test_a_check_whose_budget_was_dropped_takes_from_the_one_that_counts() -> None:
    store, steps = MemoryRateStore(size=2), (RateStep(RateStepMode.TAKE, (demand("a", 2),)),)
    one, other = RateCheck(steps), RateCheck(steps)
    assert store.permits(one, 0.0)
    for key in ("b", "c"):
        # Full again by now, so each replaces what was used longest ago.
        store.take((demand(key),), now=100.0)
    assert not store.permits(one, 100.0)
    store.take((demand("a", 2),), now=200.0)
    assert [store.permits(each, 200.0) for each in (other, one, other)] == [True, False, False]


def test_checks_that_were_made_before_their_budget_share_it() -> None:
    store, steps = MemoryRateStore(), (RateStep(RateStepMode.TAKE, (demand("a", 3),)),)
    one, other = RateCheck(steps), RateCheck(steps)
    assert [store.permits(each, 0.0) for each in (one, other, one, other)] == [True, True, True, False]
