"""A cancelled scope ends one block; a cancelled task ends whatever else happens to it."""

import asyncio
from contextlib import suppress

import pytest

from helpers.waiting import bounded
from taskgate.system.cancel_scope import CancelScope, ScopeCancelled


async def for_ever() -> None:
    """Wait for what does not come."""
    await asyncio.get_running_loop().create_future()


async def cancelling_itself(block: CancelScope) -> None:
    """A block that is cancelled from within, twice, with another block inside."""
    with block:
        block.cancel()
        block.cancel()
        with CancelScope():
            await for_ever()


async def test_a_block_that_cancels_itself_and_ends_is_over() -> None:
    with CancelScope() as block:
        block.cancel()
    await asyncio.sleep(0)


async def test_an_end_is_awaited_until_the_block_has_cleaned_up() -> None:
    block, done = CancelScope(), list[str]()

    async def work() -> None:
        with suppress(ScopeCancelled), block:
            try:
                await for_ever()
            finally:
                await asyncio.sleep(0)
                done.append("cleaned up")

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    async with bounded():
        await asyncio.gather(block.end(), block.end())
        assert done == ["cleaned up"]
        await working
        await block.end()


async def test_the_wait_for_an_end_is_short_and_a_block_may_end_itself() -> None:
    block, free = CancelScope(), asyncio.Event()

    async def work() -> None:
        with suppress(ScopeCancelled), block:
            try:
                await block.end()
                await for_ever()
            finally:
                await free.wait()

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    async with bounded():
        await block.end()
        assert not working.done()
        free.set()
        await working


async def test_a_cancelled_block_raises_and_the_task_goes_on() -> None:
    block = CancelScope()
    asyncio.get_running_loop().call_soon(block.cancel)
    async with bounded():
        with pytest.raises(ScopeCancelled), block:
            await for_ever()
        await asyncio.sleep(0)
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_a_block_that_is_not_cancelled_is_as_if_it_were_none() -> None:
    with CancelScope():
        await asyncio.sleep(0)
    with pytest.raises(ValueError, match="mine"), CancelScope():
        raise ValueError("mine")


async def test_to_cancel_before_twice_or_after_does_no_more() -> None:
    block = CancelScope()
    block.cancel()
    with block:
        await asyncio.sleep(0)
    block.cancel()
    await asyncio.sleep(0)
    again = CancelScope()
    with pytest.raises(ScopeCancelled):
        await cancelling_itself(again)
    await asyncio.sleep(0)


async def test_a_cancellation_of_the_task_passes() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        with CancelScope():
            begun.set()
            await for_ever()

    task = asyncio.create_task(work())
    async with bounded():
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_cancellation_of_the_task_wins_over_that_of_a_block() -> None:
    begun = asyncio.Event()
    block = CancelScope()

    async def work() -> None:
        with block:
            begun.set()
            await for_ever()

    task = asyncio.create_task(work())
    async with bounded():
        await begun.wait()
        block.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_answer_that_came_before_the_cancellation_took_effect_is_kept() -> None:
    block = CancelScope()
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        with block:
            try:
                return await done
            except asyncio.CancelledError:
                return 7

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    block.cancel()
    async with bounded():
        assert await task == 7
    assert task.cancelling() == 0


async def test_blocks_nest() -> None:
    outer, inner = CancelScope(), CancelScope()
    asyncio.get_running_loop().call_soon(inner.cancel)
    async with bounded():
        with outer:
            with pytest.raises(ScopeCancelled), inner:
                await for_ever()
            await asyncio.sleep(0)
        with pytest.raises(ScopeCancelled):
            await cancelling_itself(CancelScope())
