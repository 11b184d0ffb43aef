"""The waits of a shutdown: they end by themselves, in time, or a moment after somebody is in a hurry."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from helpers.waiting import bounded
from taskgate.wiring.shutdown import Closers, wait_or_abort

LONG = timedelta(minutes=1)
SHORT = timedelta(milliseconds=10)


def in_a_hurry() -> asyncio.Event:
    hurry = asyncio.Event()
    hurry.set()
    return hurry


async def heed() -> None:
    await asyncio.Event().wait()


async def heed_nothing(end: asyncio.Event) -> None:
    while not end.is_set():
        with suppress(asyncio.CancelledError):
            await end.wait()


async def test_work_that_takes_too_long_is_cancelled() -> None:
    async with bounded():
        await wait_or_abort(asyncio.Event(), heed(), within=SHORT)


async def test_work_that_ends_in_the_moment_after_a_hurry_is_not_cut() -> None:
    done: list[int] = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append(1)

    await wait_or_abort(in_a_hurry(), work(), moment=LONG)
    assert done == [1]


async def test_what_it_raises_is_told() -> None:
    async def work() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await wait_or_abort(asyncio.Event(), work())


async def test_whoever_gives_up_waiting_ends_the_work() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    waiting = asyncio.create_task(wait_or_abort(asyncio.Event(), work()))
    async with bounded():
        await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await cancelled.wait()


async def test_a_hurry_that_comes_later_passes_over_what_hangs_and_closes_the_rest() -> None:
    closed: list[str] = []
    end, closers = asyncio.Event(), Closers()

    async def close() -> None:
        closed.append("first")

    closers.add(close)
    closers.add(lambda: heed_nothing(end))
    closing = asyncio.create_task(closers.aclose())
    await asyncio.sleep(0)
    assert closed == []
    closers.hurry.set()
    async with bounded():
        await closing
    assert closed == ["first"]
    end.set()
