"""Background tasks with one owner, who ends them all: `Background`, and `cancel_and_wait`."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from logging import getLogger
from typing import Any, TypeVar

log = getLogger("taskgate.background")

Result = TypeVar("Result")


class Background:
    """The runner of coroutines in tasks; an error of one is logged and does not affect others.

    `close` must be awaited before the event loop ends.
    """

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> "tuple[asyncio.Task[Any], ...]":
        """The tasks that have not ended."""
        return tuple(self._running)

    def run(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Start work without a waiting caller; its errors are logged.

        It may be cancelled before its first step.
        """
        self.start(lambda: _logged(work))

    def start(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> "asyncio.Task[Result]":
        """Start work whose task the caller awaits, with its result or error."""
        task = asyncio.get_running_loop().create_task(work())
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Cancel all tasks without waiting for their end."""
        for task in tuple(self._running):
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        while self._running:
            await cancel_and_wait(*self._running)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            # Retrieved here, so that asyncio does not complain if the caller is gone.
            task.exception()


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks, and wait until they have ended. Raises no error of theirs.

    A cancelled task has its CancelledError, and that the frames which it passed. If one of those
    refers to the owner of the task, only the collector of cycles would find both. So it is taken
    from the task.
    """
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if task.cancelled():
            with suppress(asyncio.CancelledError):
                task.exception()


async def _logged(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    try:
        await work()
    except Exception as error:
        log.error("Work in the background failed in a way that was not foreseen", exc_info=error)
