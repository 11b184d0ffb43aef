"""Waits with an end. A test never sleeps: it awaits an event inside `bounded`, or asks `eventually`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from helpers.loop_pace import pace, timeout
from helpers.virtual_time import is_virtual

T = TypeVar("T")
PATIENCE = 45.0
"""Seconds after which whatever a test waits for is taken not to happen."""

_TURNS_BEFORE_YIELDING_THE_CPU = 200
_LONGEST_PAUSE = 0.1
"""Seconds of virtual time between two looks. The machine's are always as brief as the first."""


def bounded(seconds: float = PATIENCE) -> asyncio.Timeout:
    """`async with bounded():` ends the block with TimeoutError when it takes longer than any test may wait."""
    return timeout(seconds)


async def eventually(predicate: Callable[[], object], *, within: float = PATIENCE) -> None:
    """Return once `predicate()` is true, asked at every turn of the loop; AssertionError when it stays false.

    For what has no event to await: a counter, a log line, the state of another process. What has one is awaited in
    `bounded`.
    """
    turns, pause = 0, 0.002
    try:
        async with bounded(within):
            while not predicate():
                turns += 1
                # Other threads and processes may be what is waited for: leave them the core after a while.
                await asyncio.sleep(0 if turns < _TURNS_BEFORE_YIELDING_THE_CPU else pause * pace())
                pause = min(1.05 * pause, _LONGEST_PAUSE) if is_virtual() else pause
    except TimeoutError:
        # In virtual time it may have become true in the last moment.
        if not predicate():
            raise AssertionError(f"not true within {within} s: {predicate}") from None


async def until(look: Callable[[], Awaitable[T]], suits: Callable[[T], object] = bool) -> T:
    """What `look` finds, once that suits: for what a question has to be asked for, such as a page of metrics."""
    found: T | None = None
    try:
        async with bounded():
            while not suits(found := await look()):
                await asyncio.sleep(0.005 * pace())
    except TimeoutError:
        raise AssertionError(f"not found within {PATIENCE} s, but at last {found!r}") from None
    return found
