"""What a drain waits for once nothing runs: polls that fetch what ended, for two poll intervals at most."""

import asyncio
from datetime import timedelta

from helpers.loop_pace import LoopClock
from helpers.manual_clock import ManualClock
from helpers.waiting import bounded
from taskgate.domain.record import TaskId
from taskgate.lifecycle.retrievals import Unfetched

ONE, TWO = TaskId("one"), TaskId("two")


def long(_: TaskId) -> timedelta:
    return timedelta(minutes=1)


async def test_what_ended_before_is_not_waited_for() -> None:
    unfetched = Unfetched(ManualClock())
    unfetched.ended(ONE)
    unfetched.begin(long)
    async with bounded():
        await unfetched.fetched()


async def test_each_that_ended_is_waited_for_until_it_was_fetched() -> None:
    unfetched = Unfetched(ManualClock())
    unfetched.begin(long)
    unfetched.ended(ONE)
    unfetched.ended(TWO)
    waiting = asyncio.create_task(unfetched.fetched())
    for task in (ONE, TWO):
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        unfetched.given(task)
    async with bounded():
        await waiting


async def test_one_that_was_fetched_before_its_call_was_over_is_not_waited_for() -> None:
    unfetched = Unfetched(ManualClock())
    unfetched.begin(long)
    unfetched.given(ONE)
    unfetched.ended(ONE)
    async with bounded():
        await unfetched.fetched()


async def test_a_host_has_two_of_its_intervals_from_the_end_on() -> None:
    clock = ManualClock()
    unfetched = Unfetched(clock)
    unfetched.begin(lambda task: timedelta(seconds=10 if task == ONE else 30))
    unfetched.ended(ONE)
    unfetched.ended(TWO)
    clock.advance(timedelta(seconds=21))
    waiting = asyncio.create_task(unfetched.fetched())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    unfetched.given(TWO)
    async with bounded():
        await waiting


async def test_the_time_is_over_without_any_news() -> None:
    clock = LoopClock()
    unfetched = Unfetched(clock)
    unfetched.begin(lambda _: timedelta(seconds=10))
    unfetched.ended(ONE)
    async with bounded():
        await unfetched.fetched()
    assert clock.elapsed() >= 20
