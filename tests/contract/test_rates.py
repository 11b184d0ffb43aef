"""What every RateStore promises, in memory or shared: exact, in one step."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.examples import examples
from helpers.shared_store import KINDS, SharedServer, expect_every_key_to_expire
from taskgate.domain.rates import Demand, RateLimit, RatePolicy, RateScope, gcra
from taskgate.stores.base import RateJudgement, RateStep, RateStepMode, RateStore
from taskgate.stores.rates import MemoryRateStore
from taskgate.stores.redis.client import RedisClient
from taskgate.stores.redis.connector import RedisConnector
from taskgate.stores.redis.options import KeyNames, RedisOptions
from taskgate.stores.redis.rates import RedisRateStore

NEAR = 1e-5
"""Seconds: time is told in whole microseconds where it comes from a server."""


def demand(
    key: str = "k", burst: int = 3, cost: int = 1, every: float = 1.0, *, shadow: bool = False, ahead: float = 0.0
) -> Demand:
    limit = RateLimit(every=every, burst=burst, ahead=ahead)
    return Demand(key, limit, cost, RatePolicy(name=key, scope=RateScope.CONTEXT, limit=limit, shadow=shadow))


def look(*demands: Demand) -> RateStep:
    return RateStep(RateStepMode.LOOK, demands)


def take(*demands: Demand) -> RateStep:
    return RateStep(RateStepMode.TAKE, demands)


def take_in_shadow(*demands: Demand) -> RateStep:
    return take(*(each._replace(policy=replace(each.policy, shadow=True)) for each in demands))


def note(*demands: Demand) -> RateStep:
    return RateStep(RateStepMode.NOTE, demands)


@pytest.fixture(scope="session", params=["memory", *(pytest.param(kind, marks=pytest.mark.program) for kind in KINDS)])
def rates_server(request: pytest.FixtureRequest) -> SharedServer | None:
    """Where budgets are kept; None is in this process."""
    if request.param == "memory":
        return None
    server: SharedServer = request.getfixturevalue(f"{request.param}_server")
    return server


@asynccontextmanager
async def connected(options: RedisOptions, *, callers_time: bool) -> AsyncIterator[RedisRateStore]:
    """One of those who share."""
    connection = RedisClient(RedisConnector(options), limit=options.max_connections, wait=options.pool_timeout)
    yield RedisRateStore(connection, KeyNames(options.key_prefix), callers_time=callers_time)
    await connection.close()


@pytest.fixture
async def rates(rates_server: SharedServer | None) -> AsyncIterator[RateStore]:
    """A store with no budget in it, whose time is that of its callers."""
    if rates_server is None:
        yield MemoryRateStore()
        return
    options = rates_server.options()
    async with connected(options, callers_time=True) as store:
        yield store
    expect_every_key_to_expire(rates_server, options)


async def left(store: RateStore, one: Demand, now: float = 0.0) -> int:
    """How many units there are."""
    judged = await store.judge((look(one._replace(cost=0)),), now=now)
    return judged.verdicts[0][0].remaining


def allowed(judged: RateJudgement) -> list[list[bool]]:
    return [[each.allowed for each in verdicts] for verdicts in judged.verdicts]


async def test_a_budget_is_emptied_and_fills_again(rates: RateStore) -> None:
    taken = [(await rates.judge((take(demand()),), now=5.0)).verdicts[0][0] for _ in range(4)]
    assert [(each.allowed, each.remaining) for each in taken] == [(True, 2), (True, 1), (True, 0), (False, 0)]
    assert taken[-1].retry_after == pytest.approx(1.0, abs=NEAR)
    assert taken[-1].reset_after == pytest.approx(3.0, abs=NEAR)
    assert (await rates.judge((take(demand()),), now=5.99)).refused == 0
    assert (await rates.judge((take(demand()),), now=6.0)).refused is None
    assert await left(rates, demand(), 9.0) == 3


async def test_where_one_policy_refuses_nothing_is_taken_from_any(rates: RateStore) -> None:
    await rates.judge((take(demand("small", 1)),), now=0.0)
    judged = await rates.judge((take(demand("before"), demand("small", 1), demand("behind")),), now=0.0)
    assert (judged.refused, allowed(judged)) == (0, [[True, False, True]])
    # What a verdict says to be left is what is left.
    assert [each.remaining for each in judged.verdicts[0]] == [3, 0, 3]
    assert [await left(rates, demand(key)) for key in ("before", "behind")] == [3, 3]


async def test_a_shadow_keeps_nobody_from_being_charged_and_is_charged_itself(rates: RateStore) -> None:
    step = take(demand("real"), demand("shadow", 1, shadow=True))
    assert [allowed(await rates.judge((step,), now=0.0)) for _ in range(2)] == [[[True, True]], [[True, False]]]
    assert await left(rates, demand("real")) == 1


async def test_a_request_that_is_refused_costs_a_shadow_nothing_either(rates: RateStore) -> None:
    step = take(demand("shadow", shadow=True), demand("real", 1))
    for _ in range(3):
        await rates.judge((step,), now=0.0)
    assert await left(rates, demand("shadow")) == 2


async def test_a_cost_is_taken_whole_or_not_at_all(rates: RateStore) -> None:
    assert [(await rates.judge((take(demand(cost=2)),), now=0.0)).refused for _ in range(2)] == [None, 0]
    assert (await rates.judge((take(demand(cost=1)),), now=0.0)).refused is None


async def test_more_than_there_ever_is_will_never_be_allowed(rates: RateStore) -> None:
    judged = await rates.judge((take(demand(burst=1, cost=2)),), now=0.0)
    assert (judged.refused, judged.verdicts[0][0].retry_after) == (0, float("inf"))


async def test_a_look_charges_nothing_and_says_what_taking_would(rates: RateStore) -> None:
    for _ in range(3):
        judged = await rates.judge((look(demand(burst=1)),), now=0.0)
        assert (judged.refused, judged.verdicts[0][0].remaining) == (None, 0)
    await rates.judge((take(demand(burst=1)),), now=0.0)
    judged = await rates.judge((look(demand(burst=1)),), now=0.5)
    assert (judged.refused, judged.verdicts[0][0].retry_after) == (0, pytest.approx(0.5, abs=NEAR))


async def test_nothing_behind_a_step_that_refuses_is_taken_or_told(rates: RateStore) -> None:
    await rates.judge((take(demand("door", 1)),), now=0.0)
    for refusing in (look, take):
        steps = (take(demand("first")), refusing(demand("door", 1)), take(demand("last")))
        judged = await rates.judge(steps, now=0.0)
        assert (judged.refused, allowed(judged)) == (1, [[True], [False]])
    assert [await left(rates, demand(key)) for key in ("first", "last")] == [1, 3]


async def test_what_has_happened_is_noted_of_each_that_has_room_and_refuses_nothing(rates: RateStore) -> None:
    steps = (note(demand("small", 1), demand("large")), take(demand("behind")))
    judged = [await rates.judge(steps, now=0.0) for _ in range(2)]
    assert [each.refused for each in judged] == [None, None]
    assert allowed(judged[1]) == [[False, True], [True]]
    assert [await left(rates, each) for each in (demand("small", 1), demand("large"), demand("behind"))] == [0, 1, 1]


async def test_a_step_meets_what_the_one_before_it_left(rates: RateStore) -> None:
    steps = (look(demand()), take(demand()), note(demand()), look(demand(cost=2)))
    judged = await rates.judge(steps, now=0.0)
    assert [each.remaining for (each,) in judged.verdicts] == [2, 2, 1, 1]
    assert judged.refused == 3


async def test_steps_of_nothing_say_nothing(rates: RateStore) -> None:
    judged = await rates.judge((take(), look()), now=0.0)
    assert ([*judged.verdicts], judged.refused) == ([(), ()], None)
    assert (await rates.judge((), now=0.0)).refused is None


@pytest.mark.parametrize("way", [look, take, take_in_shadow, note])
async def test_what_is_owed_to_a_slower_limit_is_forgiven_once(rates: RateStore, way: type[RateStep]) -> None:
    """As after a reload, or where an override is met: not at every look anew, or nothing would ever be there again."""
    for _ in range(3):
        await rates.judge((take(demand(every=3600.0)),), now=0.0)
    for now, has_room, wait in ((10.0, False, 1.0), (10.5, False, 0.5), (11.0, True, 0.0)):
        judged = await rates.judge((way(demand()),), now=now)
        assert allowed(judged) == [[has_room]]
        assert judged.verdicts[0][0].retry_after == pytest.approx(wait)


@pytest.mark.parametrize("every", [0.2, 1 / 3, 0.001, 36.0])
async def test_a_burst_is_as_long_as_it_is_said_to_be(rates: RateStore, every: float) -> None:
    one = demand(burst=60, every=every)
    judged = [await rates.judge((take(one),), now=1e6 + 0.3) for _ in range(61)]
    assert [each.verdicts[0][0].remaining for each in judged] == [*range(59, -1, -1), 0]
    assert [each.refused for each in judged] == [*[None] * 60, 0]


async def test_names_are_what_their_budgets_are_kept_by(rates: RateStore) -> None:
    """Whatever they hold: those of tools and addresses are chosen by others."""
    names = ["a", "a\n", "a\nb", "", "\ud800", "\u00e9", "e\u0301", "a" * 500, "{taskgate}:rate"]
    for name in names:
        assert (await rates.judge((take(demand(name, 1)),), now=0.0)).refused is None
    for name in names:
        assert (await rates.judge((take(demand(name, 1)),), now=0.0)).refused == 0


NUMBERS = itertools.count()
PAUSES = st.integers(0, 3_000_000)
LIMITS = st.builds(
    RateLimit,
    every=st.sampled_from([0.1, 0.5, 1.0, 1 / 3, 7.0]),
    burst=st.integers(1, 6),
    ahead=st.sampled_from([0.0, 1.0, 3.0]),
)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limit=LIMITS, asked=st.lists(st.tuples(PAUSES, st.integers(0, 4)), min_size=1, max_size=15))
async def test_the_arithmetic_is_that_of_gcra(rates: RateStore, limit: RateLimit, asked: list[tuple[int, int]]) -> None:
    now, tat, key = 1.0, None, f"example {next(NUMBERS)}"
    for pause, cost in asked:
        now += pause / 1_000_000
        expected, tat = gcra(tat, now, limit, cost)
        judged = await rates.judge((take(demand(key, limit.burst, cost, limit.every, ahead=limit.ahead)),), now=now)
        (verdict,) = judged.verdicts[0]
        if abs(expected.retry_after - limit.ahead) < NEAR and verdict.allowed is not expected.allowed:
            # Within a microsecond both are right; from here on they owe something else.
            return
        assert verdict.allowed is expected.allowed
        assert verdict.retry_after == pytest.approx(expected.retry_after, abs=NEAR)
        assert verdict.reset_after == pytest.approx(expected.reset_after, abs=NEAR)


async def test_what_is_taken_ahead_has_turns_in_order_and_is_owed_by_whatever_looks(rates: RateStore) -> None:
    one = demand(burst=2, ahead=3.0)
    judged = [await rates.judge((take(one),), now=0.0) for _ in range(7)]
    assert [each.refused for each in judged] == [None] * 5 + [0, 0]
    turns = [each.verdicts[0][0].retry_after for each in judged]
    assert turns == pytest.approx([0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 4.0], abs=NEAR)
    assert [each.verdicts[0][0].remaining for each in judged] == [1, 0, 0, 0, 0, 0, 0]
    # A look consumes nothing, and forgives nothing.
    looked = await rates.judge((look(one), look(one._replace(cost=0))), now=1.0)
    assert [each[0].retry_after for each in looked.verdicts] == pytest.approx([3.0, 2.0], abs=NEAR)
    assert looked.verdicts[1][0].reset_after == pytest.approx(4.0, abs=NEAR)


async def test_many_at_once_get_no_more_than_there_is(rates: RateStore) -> None:
    judged = await asyncio.gather(*(rates.judge((take(demand(burst=5)),), now=0.0) for _ in range(200)))
    assert sum(each.refused is None for each in judged) == 5


class TestShared:
    """Of those that replicas share, by the server's own clock."""

    async def test_together_replicas_get_no_more_than_there_is(self, shared_options: RedisOptions) -> None:
        both = take(demand("mine", burst=5, every=60.0), demand("all", burst=7, every=60.0))
        other = take(demand("other", burst=5, every=60.0), demand("all", burst=7, every=60.0))
        async with (
            connected(shared_options, callers_time=False) as one,
            connected(shared_options, callers_time=False) as two,
        ):
            asked = [(store, step) for step in (both, other) for store in (one, two) for _ in range(50)]
            judged = await asyncio.gather(*(store.judge((step,), now=0.0) for store, step in asked))
            assert sum(each.refused is None for each in judged) == 7
            # Who was refused for one has taken nothing of the other.
            mine, others = [
                (await one.judge((look(each),), now=0.0)).verdicts[0][0].remaining
                for each in (both.demands[0]._replace(cost=0), other.demands[0]._replace(cost=0))
            ]
            assert mine + others == 3

    async def test_what_comes_back_does_so_by_the_servers_clock_whatever_callers_say(
        self, shared_options: RedisOptions
    ) -> None:
        slow, fast = demand("slow", 1, every=60.0), demand("fast", 1, every=0.05)
        async with connected(shared_options, callers_time=False) as store:
            await store.judge((take(slow, fast),), now=0.0)
            assert (await store.judge((take(slow),), now=1e9)).refused == 0
            async with asyncio.timeout(5):
                while (await store.judge((take(fast),), now=-1e9)).refused is not None:
                    pass

    async def test_whatever_is_asked_is_one_command(
        self, shared_server: SharedServer, shared_options: RedisOptions
    ) -> None:
        steps = (look(demand("a")), take(demand("b"), demand("c", shadow=True)), note(demand("a")))
        async with connected(shared_options, callers_time=False) as store:
            await store.judge(steps, now=0.0)
            before = shared_server.commands()["evalsha"]
            for _ in range(10):
                await store.judge(steps, now=0.0)
            after = shared_server.commands()
            assert after["evalsha"] - before == 10

    async def test_a_budget_that_is_full_has_no_key(
        self, shared_server: SharedServer, shared_options: RedisOptions
    ) -> None:
        async with connected(shared_options, callers_time=False) as store:
            await store.judge((look(demand("a")), take(demand("b", cost=0))), now=0.0)
            assert shared_server.keys(shared_options.key_prefix) == []
            await store.judge((take(demand("a", every=60.0)),), now=0.0)
            [key] = shared_server.keys(shared_options.key_prefix)
            assert 55_000 < shared_server.ask("PTTL", key) <= 61_000

    async def test_names_say_nothing_of_who_asks(
        self, shared_server: SharedServer, shared_options: RedisOptions
    ) -> None:
        async with connected(shared_options, callers_time=False) as store:
            await store.judge((take(demand("ip\n192.0.2.7")),), now=0.0)
            assert not any(b"192" in key for key in shared_server.keys(shared_options.key_prefix))
