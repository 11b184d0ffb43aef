"""What waits for its turn at a rate: in order, of a bounded number and size, refused at once beyond that."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self

import pytest

from helpers.waiting import bounded
from taskgate.admission.rate_queue import MAX_WAITING, MAX_WAITING_OF_CALLER, QueuedRequest, RateQueue
from taskgate.admission.rates import QuotaSubjects
from taskgate.domain.rates import RateLimit, RatePolicy, RateScope
from taskgate.errors import RateLimited
from taskgate.system.cancel_scope import CancelScope, ScopeCancelled
from taskgate.telemetry.events import RateLimitChecked
from unit.admission.limiter_desk import ALICE, BOB, HERE, LimiterDesk
from unit.lifecycle.asked import Asked

KIB = 1024


class Leaving(Asked):
    """A request whose host leaves when it is told to."""

    left: Callable[[], None] | None = None

    def on_disconnect(self, forget: Callable[[], None]) -> None:
        self.left = forget


class Session:
    """A session that counts what uses it."""

    def __init__(self) -> None:
        self.calls: dict[CancelScope, str | int] = {}
        self.uses = 0

    def __enter__(self) -> Self:
        self.uses += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.uses -= 1


def fast(every: float = 0.001, ahead: float = 3.0, burst: int = 1, **more: Any) -> RatePolicy:
    """A policy at which many may wait."""
    limit = RateLimit(every=every, burst=burst, ahead=ahead)
    return RatePolicy(name="calls", scope=RateScope.CONTEXT, limit=limit, **more)


async def admitted(desk: LimiterDesk, times: int) -> list[QueuedRequest | timedelta | None]:
    """What becomes of so many requests: a place in the queue, None at once, or the time that a refusal names."""
    found: list[QueuedRequest | timedelta | None] = []
    for _ in range(times):
        try:
            found.append((await desk.limiter.on_request(ALICE, HERE, "reports", "tools/call"))[1])
        except RateLimited as refused:
            found.append(refused.retry_after)
    return found


async def test_no_more_of_a_caller_wait_than_there_may_and_each_further_one_takes_nothing() -> None:
    desk = LimiterDesk(fast())
    first, *others = await admitted(desk, MAX_WAITING_OF_CALLER + 1)
    assert first is None
    assert all(isinstance(each, QueuedRequest) for each in others)
    # Beyond that each is refused with the same time: what is refused takes nothing.
    refused = await admitted(desk, 50)
    assert refused == [timedelta(seconds=0.001 * (MAX_WAITING_OF_CALLER + 1))] * 50
    assert desk.emitted.all[-50:] == [RateLimitChecked("calls", "context", "rejected")] * 50
    # Another caller has a line of its own.
    assert (await desk.limiter.on_request(BOB, HERE, "reports", "tools/call"))[1] is None
    assert (await desk.limiter.on_request(BOB, HERE, "reports", "tools/call"))[1] is not None


async def test_at_the_bound_what_needs_no_wait_still_passes() -> None:
    desk = LimiterDesk(fast(methods=("tools/call",)))
    await admitted(desk, MAX_WAITING_OF_CALLER + 1)
    assert await desk.limiter.on_request(ALICE, HERE, "reports", "tools/list") == ((), None)


async def test_there_is_a_bound_over_all_callers() -> None:
    queue = RateQueue()
    callers = -(-MAX_WAITING // MAX_WAITING_OF_CALLER)
    for caller in range(callers):
        for _ in range(MAX_WAITING_OF_CALLER):
            assert not queue.is_full(str(caller))
            queue.enter(str(caller), 3.0)
    assert len(queue) == MAX_WAITING
    assert queue.is_full("another")


async def test_a_flood_beyond_the_wait_is_refused_with_the_time_at_which_it_passes() -> None:
    desk = LimiterDesk(fast(every=1.0))
    assert [type(each) for each in await admitted(desk, 4)] == [type(None), *[QueuedRequest] * 3]
    assert await admitted(desk, 30) == [timedelta(seconds=4)] * 30
    desk.clock.advance(timedelta(seconds=4))
    assert await admitted(desk, 1) == [None]


async def test_what_is_left_of_a_rate_shows_what_was_taken_ahead_as_nothing_left() -> None:
    desk = LimiterDesk(fast(every=1.0, burst=2), exposes_quota=True)
    await admitted(desk, 2)
    quota, queued = await desk.limiter.on_request(ALICE, HERE, "reports", "tools/call")
    assert queued is not None
    assert dict(quota)["RateLimit"] == '"calls";r=0;t=3'
    [usage] = await desk.limiter.usage("alice", ALICE.subject, QuotaSubjects(desk.live).of(ALICE))
    assert (usage.used, usage.most) == (2, 2)
    # To look changed nothing: two more turns follow, and the third would be too late.
    assert [type(each) for each in await admitted(desk, 2)] == [QueuedRequest] * 2
    assert await admitted(desk, 1) == [timedelta(seconds=4)]


async def test_turns_come_in_order() -> None:
    queue, order = RateQueue(), []

    async def take(number: int, queued: QueuedRequest) -> None:
        await queued.wait(HERE, None, None)
        order.append(number)

    async with bounded():
        await asyncio.gather(*(take(number, queue.enter("a", 0.01 * number)) for number in range(5)))
    assert order == list(range(5))
    assert (len(queue), queue.count("a")) == (0, 0)


@pytest.mark.parametrize("how", ["the host leaves", "the host cancels"])
async def test_a_wait_ends_at_once_with_its_host_and_counts_no_more(how: str) -> None:
    queue, exchange, session = RateQueue(), Leaving(), Session()
    task = asyncio.create_task(queue.enter("a", 3600.0).wait(exchange, session, 7))
    await asyncio.sleep(0)
    assert (session.uses, list(session.calls.values()), queue.count("a")) == (1, [7], 1)
    if how == "the host leaves":
        assert exchange.left is not None
        exchange.left()
    else:
        next(iter(session.calls)).cancel()
    with pytest.raises(ScopeCancelled):
        async with bounded():
            await task
    assert (session.uses, session.calls, queue.count("a"), len(queue)) == (0, {}, 0, 0)


async def test_a_drain_ends_all_waits_and_lets_nothing_wait_after_it() -> None:
    queue = RateQueue()
    tasks = [asyncio.create_task(queue.enter(name, 3600.0).wait(HERE, None, None)) for name in "ab"]
    await asyncio.sleep(0)
    queue.drain()
    tasks.append(asyncio.create_task(queue.enter("c", 3600.0).wait(HERE, None, None)))
    async with bounded():
        await asyncio.gather(*tasks)
    assert len(queue) == 0


async def test_waiting_takes_four_kibibytes_at_most_for_each_however_many_wait() -> None:
    queue = RateQueue()
    gc.collect()
    tracemalloc.start()
    try:
        tasks = [asyncio.create_task(queue.enter("a", 3600.0).wait(HERE, None, None)) for _ in range(256)]
        await asyncio.sleep(0)
        assert tracemalloc.get_traced_memory()[0] <= 256 * 4 * KIB
    finally:
        tracemalloc.stop()
    queue.drain()
    await asyncio.gather(*tasks)
