"""How late the event loop comes to what it was asked to do: the first sign that something blocks it."""

import asyncio
from collections.abc import Callable
from typing import Final

PERIOD: Final = 0.25
"""Seconds between two looks: often enough to meet a stall, too seldom to be a load."""


class LoopLag:
    """A ticker on the running loop that tells `observe` by how many seconds each tick came late.

    It is a timer and no task: there is nothing to await, and nothing is left after `stop`.
    """

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to tick, on the loop that runs now; a second start changes nothing."""
        if self._timer is None:
            self._arm(asyncio.get_running_loop())

    def stop(self) -> None:
        """Tick no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + PERIOD
        self._timer = loop.call_at(due, self._tick, loop, due)

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        # Timers of one clock tick run together, so a loop may come a hair early.
        self._observe(max(0.0, loop.time() - due))
        self._arm(loop)
