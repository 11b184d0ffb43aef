"""What is sent in the background, by nobody who would wait for it. Knows neither lines nor messages."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any


class UnderWay:
    """The work that goes on by itself, until it is closed."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have it go on; it must not raise. Nothing that is ambient where it is begun is ambient in it."""
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Give up what still goes on."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
