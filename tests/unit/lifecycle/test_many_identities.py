"""Ten thousand callers leave as much behind in memory as a thousand, in each place that remembers callers."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any, cast

import pytest

from helpers.manual_clock import ManualClock
from helpers.recording_upstream import RecordingUpstream
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.admission.concurrency import OpenStreams
from taskgate.admission.lookup_guard import PenaltyBox
from taskgate.admission.rates import QuotaSubjects, RateLimiter
from taskgate.admission.security_alerts import SecurityAlerts
from taskgate.auth.context import AuthContext
from taskgate.domain.fair_queue import FairQueue
from taskgate.domain.rates import Demand, RateLimit, RatePolicies, RatePolicy, RateScope
from taskgate.gateway.extensions import DeniedExtensions
from taskgate.sessions.session_pool import MAX_OWNERS, SessionPool
from taskgate.stores.rates import MemoryRateStore
from taskgate.upstream.calls import Principal
from taskgate.upstream.credentials.tokens import Granted, Tokens
from unit.admission.live_rules import live
from unit.auth.identities import identity
from unit.gateway.modern.test_lines import mount, peer
from unit.lifecycle.asked import Asked
from unit.lifecycle.recorded_events import RecordedEvents

FEW, MANY, KEPT = 1_000, 10_000, 500
SLACK = 48 * 1024
"""Bytes: tables grow in leaps, and others allocate, too. A caller's entry takes some hundred."""

Visit = Callable[[int], None]


def rates() -> Visit:
    store, limit = MemoryRateStore(KEPT), RateLimit(every=0.1, burst=3)
    policy = RatePolicy(name="calls", scope=RateScope.CONTEXT, limit=limit)
    return lambda n: cast("None", store.take((Demand(f"calls\ncaller {n}", limit, 1, policy),), now=n / 100))


def checks() -> Visit:
    limit = RateLimit(every=0.1, burst=3)
    calls = RatePolicy(name="calls", scope=RateScope.CONTEXT, limit=limit)
    arrivals = RatePolicy(name="ip", scope=RateScope.IP, limit=limit, before_auth=True)
    present, clock = live(rates=RatePolicies((arrivals, calls))), ManualClock()
    limiter = RateLimiter(
        live=present,
        subjects=QuotaSubjects(present),
        store=MemoryRateStore(KEPT),
        event_sink=cast("Any", Nobody()),
        clock=clock,
        max_checks=KEPT,
    )

    def visited(n: int) -> None:
        clock.advance(timedelta(seconds=1))
        host = Asked(where=f"192.0.{n // 256}.{n % 256}")
        limiter.admits_connection(host, "reports", clock.elapsed())
        caller = AuthContext(key=f"caller {n}", identity=identity(number=n))
        limiter.admits(caller, host, "reports", "tools/call", f"tool {n}", clock.elapsed())

    return visited


def penalties() -> Visit:
    box = PenaltyBox(threshold=2, size=KEPT)

    def visited(n: int) -> None:
        for _ in range(1 + n % 4):
            box.add_failure(f"caller {n}", n / 100)

    return visited


def suspicions() -> Visit:
    told = SecurityAlerts(cast("Any", Nobody()), ManualClock(), size=KEPT)
    return lambda n: told.raise_once("enumeration", f"caller {n}", "reports")


def standings() -> Visit:
    known = QuotaSubjects(live(), size=KEPT)
    return lambda n: cast("None", known.of(AuthContext(key="one", identity=replace(identity(), tenant=f"tenant {n}"))))


def permits() -> Visit:
    shared: FairQueue[str] = FairQueue(8, 64, share=2, reserved=1)

    def visited(n: int) -> None:
        context = f"caller {n}"
        assert shared.acquire(context)
        assert shared.enqueue(context, context)
        shared.withdraw(context)
        shared.release(context)

    return visited


def streams() -> Visit:
    open_ones = OpenStreams(live=live(), event_sink=RecordedEvents())

    def visited(n: int) -> None:
        with (
            open_ones.acquire_stream(AuthContext(key=f"caller {n}")),
            open_ones.acquire_wait(AuthContext(key=f"caller {n}")),
        ):
            pass

    return visited


class Nobody:
    """Hears events, and keeps none."""

    def emit(self, event: object) -> None:
        pass


@pytest.fixture
def traced() -> Iterator[None]:
    """Allocations are traced."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.thorough
@covers("T45")
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("place", [rates, checks, penalties, suspicions, standings, permits, streams])
def test_callers_are_remembered_in_no_more_memory_for_ten_times_as_many(place: Callable[[], Visit]) -> None:
    visited, number = place(), count()
    for _ in range(FEW):
        visited(next(number))
    before = traced_bytes()
    for _ in range(MANY - FEW):
        visited(next(number))
    assert traced_bytes() - before < SLACK


@pytest.mark.thorough
@covers("T45")
async def test_tokens_of_callers_are_kept_of_those_who_came_last() -> None:
    async def ask(principal: Principal) -> Granted:
        return Granted(principal.context, 3600.0)

    tokens = Tokens(ask, clock=ManualClock(), most=KEPT)
    asked = 0

    async def visited(n: int) -> None:
        nonlocal asked
        asked += 1
        assert await tokens.get(f"caller {n}", Principal(context=f"token {n}")) == f"token {n}"

    tracemalloc.start()
    try:
        for n in range(FEW):
            await visited(n)
        before = traced_bytes()
        for n in range(FEW, MANY):
            await visited(n)
        assert traced_bytes() - before < SLACK
    finally:
        tracemalloc.stop()
    await tokens.close()


@covers("T45")
async def test_lines_of_callers_are_kept_of_those_who_came_last_and_of_those_who_use_them() -> None:
    server = RecordingUpstream()
    there, all_lines = (
        mount(server),
        SessionPool(
            clock=ManualClock(), idle=timedelta(minutes=10), report_host=DeniedExtensions(RecordedEvents()).of_host
        ),
    )

    def still_open() -> int:
        return sum(not session.closes for session in server.sessions)

    busy = all_lines.take(there, AuthContext(key="busy"), peer())
    with busy:
        for n in range(MAX_OWNERS + 500):
            with all_lines.take(there, AuthContext(key=f"caller {n}"), peer()):
                await asyncio.sleep(0)
        await eventually(lambda: still_open() == MAX_OWNERS)
        assert all_lines.take(there, AuthContext(key="busy"), peer()) is busy
    async with bounded():
        await all_lines.close()
    assert still_open() == 0
