"""Work that nobody waits for, and that must be over when its owner is."""

import asyncio
from collections.abc import Callable, Coroutine
from logging import getLogger
from typing import Any, TypeVar

log = getLogger("taskgate.background")

Done = TypeVar("Done")


class Background:
    """Runs coroutines beside everything else. What one raises is logged, and harms no other."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> "tuple[asyncio.Task[Any], ...]":
        """What has not ended."""
        return tuple(self._running)

    def run(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Begin some work; it may be given up before it has."""
        self.begin(lambda: _watched(work))

    def begin(self, work: Callable[[], Coroutine[Any, Any, Done]]) -> "asyncio.Task[Done]":
        """Begin some work that somebody does wait for; what it raises is theirs."""
        task = asyncio.get_running_loop().create_task(work())
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Give up what has not ended; it ends soon after."""
        for task in tuple(self._running):
            task.cancel()

    async def close(self) -> None:
        """Give up what has not ended, and wait until it has."""
        while self._running:
            self.cancel()
            await asyncio.wait(tuple(self._running))

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            # To look at the failure is to take note of it, even where nobody waits any more.
            task.exception()


async def _watched(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    try:
        await work()
    except Exception as error:
        log.error("Work in the background failed in a way that was not foreseen", exc_info=error)
