"""Background tasks of a transport: `UnderWay` runs sends that no caller waits for.

`DuplexTransport` has one for its channels, and cancels the tasks when it closes.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any


class UnderWay:
    """The background tasks of one `DuplexTransport`."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the coroutine in the background, in an empty context; it must not raise."""
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel all that still run."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
