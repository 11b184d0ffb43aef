"""Waits of tests end: with what they wait for, or as failures."""

import asyncio

import pytest

from helpers.waiting import bounded, eventually


async def test_a_wait_returns_as_soon_as_it_is_true() -> None:
    turns = iter(range(500))
    await eventually(lambda: next(turns) == 300)
    assert next(turns) == 301


async def test_what_is_true_already_is_not_waited_for() -> None:
    await eventually(lambda: "yes", within=0.0)


async def test_a_wait_for_what_never_happens_fails_and_says_for_what() -> None:
    def never() -> bool:
        return False

    with pytest.raises(AssertionError, match="never"):
        await eventually(never, within=0.01)


async def test_a_mistake_in_what_is_asked_is_not_taken_for_false() -> None:
    with pytest.raises(ZeroDivisionError):
        await eventually(lambda: 1 / 0)


async def test_a_block_that_takes_too_long_is_ended() -> None:
    with pytest.raises(TimeoutError):
        async with bounded(0.01):
            await asyncio.Event().wait()
