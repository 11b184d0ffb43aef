"""Under load slots are never more than there are, are always given back, and go round between who waits for one."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from helpers.waiting import bounded, eventually
from taskgate.admission.concurrency import Bulkhead, BulkheadSettings
from taskgate.errors import QueueFull
from unit.lifecycle.recorded_events import RecordedEvents

LONG = timedelta(seconds=60)


def settings(concurrency: int, queue: int) -> BulkheadSettings:
    return BulkheadSettings(concurrency=concurrency, queue=queue, max_wait=LONG)


@pytest.fixture
async def bulkhead() -> AsyncIterator[Bulkhead]:
    bulkhead = Bulkhead("reports", settings(1, 8), event_sink=RecordedEvents())
    yield bulkhead
    assert (bulkhead.in_use, bulkhead.queued) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_is_cancelled_when_no_slot_is_lost_and_none_is_granted_twice(
    bulkhead: Bulkhead, seed: int
) -> None:
    """Seeded schedules: callers that wait, run for some turns of the loop, are cancelled at any await, or reloads."""
    chance = random.Random(seed)
    most, running, served = 3, 0, Counter[str]()
    bulkhead.adjust(settings(most, queue=1000))

    async def call(context: str) -> None:
        nonlocal running
        ticket = bulkhead.acquire(context)
        try:
            await ticket.wait(timedelta(seconds=chance.choice((0, 0.001, 60))))
            running += 1
            try:
                assert running <= most
                served[context] += 1
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                running -= 1
        except QueueFull:
            pass
        finally:
            ticket.release()

    calls: list[asyncio.Task[None]] = []
    async with bounded():
        for _ in range(300):
            calls.append(asyncio.create_task(call(chance.choice("aaaaaab"))))
            if chance.random() < 0.3:
                chance.choice(calls).cancel()
            if chance.random() < 0.05:
                # Never fewer than before, for what runs may go on.
                most += 1
                bulkhead.adjust(settings(most, queue=1000))
            if chance.random() < 0.7:
                await asyncio.sleep(0)
        ended = await asyncio.gather(*calls, return_exceptions=True)
    assert all(each is None or isinstance(each, asyncio.CancelledError) for each in ended), ended
    assert (bulkhead.in_use, bulkhead.queued, running) == (0, 0, 0)
    assert set(served) == {"a", "b"}


async def test_under_load_a_context_that_asks_for_little_waits_for_one_turn_of_each_other(bulkhead: Bulkhead) -> None:
    bulkhead.adjust(settings(2, queue=10_000))
    order: list[str] = []

    async def call(context: str) -> None:
        ticket = bulkhead.acquire(context)
        try:
            await ticket.wait(LONG)
            order.append(context)
            await asyncio.sleep(0)
        finally:
            ticket.release()

    async with bounded():
        calls = [asyncio.create_task(call(context)) for context in "abc" for _ in range(200)]
        await eventually(lambda: len(order) > 50)
        begun = len(order)
        calls += [asyncio.create_task(call("z")) for _ in range(3)]
        await asyncio.gather(*calls)
    # Two at once, and each round has one turn of each of the four.
    assert [context for context in order[begun : begun + 16] if context == "z"] == ["z"] * 3
