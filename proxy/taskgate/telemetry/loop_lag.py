"""The lag of the event loop, measured by a timer: `LoopLag`. A growing lag means blocking code."""

import asyncio
from collections.abc import Callable
from typing import Final

PERIOD: Final = 0.25
"""Seconds between two ticks: often enough to notice a stall, too seldom to be a load."""


class LoopLag:
    """A ticker on the running loop that calls `observe` with the seconds that each tick is late.

    It is a timer and not a task: there is nothing to await, and `stop` leaves nothing behind.
    """

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start ticking on the running loop; without effect when already started."""
        if self._timer is None:
            self._schedule(asyncio.get_running_loop())

    def stop(self) -> None:
        """Stop ticking; without effect when not started. `start` may be called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + PERIOD
        self._timer = loop.call_at(due, self._tick, loop, due)

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        # A loop runs all timers of one clock tick together, so a tick may come slightly early.
        self._observe(max(0.0, loop.time() - due))
        self._schedule(loop)
