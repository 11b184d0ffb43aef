"""The results that hosts have not fetched during a drain: `Unfetched`.

When the gateway drains, tasks that end still have a result to fetch. The shutdown calls `begin`,
and later waits in `fetched` until each result was fetched, or its host had the time for that.
`Runner` calls `ended`, `Retrievals` calls `given`. Before `begin` both do nothing.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.record import TaskId

POLLS: Final = 2
"""The number of poll intervals that a host gets: one may have begun just before the end."""


class Unfetched:
    """The tasks that ended here since `begin` and were not fetched."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._interval: Callable[[TaskId], timedelta] | None = None
        self._until: dict[TaskId, float] = {}
        self._fetched: set[TaskId] = set()
        self._change = asyncio.Event()

    def begin(self, interval: Callable[[TaskId], timedelta]) -> None:
        """Start to remember tasks; `interval` is the poll interval that a task's host was told."""
        self._interval = interval

    def ended(self, task: TaskId) -> None:
        """Handle that the call of a task is over here."""
        if self._interval is not None and task not in self._fetched:
            self._until[task] = self._clock.elapsed() + POLLS * self._interval(task).total_seconds()

    def given(self, task: TaskId) -> None:
        """Handle that the owner of a task got its result, possibly before the call is over here."""
        if self._interval is not None:
            self._fetched.add(task)
            if self._until.pop(task, None) is not None:
                self._change.set()

    async def fetched(self) -> None:
        """Wait until each result was fetched, or its host had the time for that."""
        while self._until:
            now = self._clock.elapsed()
            self._until = {task: until for task, until in self._until.items() if until > now}
            if self._until:
                self._change.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(self._until.values()) - now):
                        await self._change.wait()
