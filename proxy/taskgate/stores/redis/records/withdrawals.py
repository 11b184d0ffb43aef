"""Inserts of which nobody knows whether they were done: their callers were told that they were not.

What was kept all the same would be taken for a lost call when its lease has lapsed, and be run. So it is removed again,
as long as nothing became of it. What must not live here: which inserts these are.
"""

import asyncio
from contextvars import Context
from typing import Final

from taskgate.domain.record import TaskId
from taskgate.errors import StoreUnavailable
from taskgate.stores.redis.client import RedisClient
from taskgate.stores.redis.records import rows
from taskgate.stores.redis.records.change_subscriber import ChangeSubscriber

_PAUSE: Final = 0.5
"""Seconds between two attempts."""

_LOOKS: Final = 10
"""How often a task is looked for that is not there: what was sent may still be on its way into the store."""

_MOST: Final = 4096
"""How many are remembered; what comes on top is left to the leases."""


class Withdrawals:
    """What is to be removed. Belongs to one event loop."""

    def __init__(self, client: RedisClient, root: str, changes: ChangeSubscriber) -> None:
        self._client = client
        self._root = root
        self._changes = changes
        self._left: dict[TaskId, tuple[str, int]] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, id: TaskId, mark: str) -> None:
        """Remove the task that was inserted with that mark, as soon as the store answers."""
        if self._closed or len(self._left) >= _MOST:
            return
        self._left[id] = (mark, _LOOKS)
        if self._task is None:
            # It is for all that are added, and not for the request of the first.
            self._task = asyncio.create_task(self._withdraw(), name="taskgate-store-withdrawals", context=Context())

    async def close(self) -> None:
        """Remove no more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _withdraw(self) -> None:
        while self._left and not self._closed:
            await asyncio.sleep(_PAUSE)
            try:
                for id in tuple(self._left):
                    await self._withdraw_one(id)
            except StoreUnavailable:
                continue
        self._task = None

    async def _withdraw_one(self, id: TaskId) -> None:
        mark, looks = self._left[id]
        task = f"{self._root}task:{id}"
        was_there = await self._client.run(
            rows.WITHDRAW, (task,), (self._root, self._changes.mark(), id, mark), durable=True
        )
        if was_there or looks == 1:
            del self._left[id]
        else:
            self._left[id] = (mark, looks - 1)
