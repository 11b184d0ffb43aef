"""An interruption ends one block of work; a cancellation ends the task, whatever else happens to it."""

import asyncio

import pytest

from helpers.waiting import bounded
from taskgate.system.interruption import Interrupted, Interruptible


async def for_ever() -> None:
    """Wait for what does not come."""
    await asyncio.get_running_loop().create_future()


async def interrupting_itself(block: Interruptible) -> None:
    """A block that is interrupted from within, twice, with another block inside."""
    with block:
        block.interrupt()
        block.interrupt()
        with Interruptible():
            await for_ever()


async def test_a_block_that_interrupts_itself_and_ends_is_over() -> None:
    with Interruptible() as block:
        block.interrupt()
    await asyncio.sleep(0)


async def test_an_interrupted_block_raises_interrupted_and_the_task_goes_on() -> None:
    block = Interruptible()
    asyncio.get_running_loop().call_soon(block.interrupt)
    async with bounded():
        with pytest.raises(Interrupted), block:
            await for_ever()
        await asyncio.sleep(0)
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_a_block_that_is_not_interrupted_is_as_if_it_were_none() -> None:
    with Interruptible():
        await asyncio.sleep(0)
    with pytest.raises(ValueError, match="mine"), Interruptible():
        raise ValueError("mine")


async def test_to_interrupt_before_twice_or_after_does_no_more() -> None:
    block = Interruptible()
    block.interrupt()
    with block:
        await asyncio.sleep(0)
    block.interrupt()
    await asyncio.sleep(0)
    again = Interruptible()
    with pytest.raises(Interrupted):
        await interrupting_itself(again)
    await asyncio.sleep(0)


async def test_a_cancellation_of_the_task_passes() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        with Interruptible():
            begun.set()
            await for_ever()

    task = asyncio.create_task(work())
    async with bounded():
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_cancellation_of_the_task_wins_over_an_interruption() -> None:
    begun = asyncio.Event()
    block = Interruptible()

    async def work() -> None:
        with block:
            begun.set()
            await for_ever()

    task = asyncio.create_task(work())
    async with bounded():
        await begun.wait()
        block.interrupt()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_answer_that_came_before_the_interruption_took_effect_is_kept() -> None:
    block = Interruptible()
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        with block:
            try:
                return await done
            except asyncio.CancelledError:
                return 7

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    block.interrupt()
    async with bounded():
        assert await task == 7
    assert task.cancelling() == 0


async def test_blocks_nest() -> None:
    outer, inner = Interruptible(), Interruptible()
    asyncio.get_running_loop().call_soon(inner.interrupt)
    async with bounded():
        with outer:
            with pytest.raises(Interrupted), inner:
                await for_ever()
            await asyncio.sleep(0)
        with pytest.raises(Interrupted):
            await interrupting_itself(Interruptible())
