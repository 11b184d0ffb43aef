"""The removal of records whose insert got no answer: `Withdrawals`.

Their callers got an error. A record that was stored all the same would look like a lost call when
its lease lapses, and run. So it is removed, as long as no other change was made to it.
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

_ATTEMPTS: Final = 10
"""Attempts to remove a missing task: the insert may still be on its way to the server."""

_MOST: Final = 4096
"""Records that are remembered; further ones are taken over when their leases lapse."""


class Withdrawals:
    """The records to remove, each with the mark of its insert and the attempts that are left.

    It belongs to one event loop.
    """

    def __init__(self, client: RedisClient, root: str, changes: ChangeSubscriber) -> None:
        self._client = client
        self._root = root
        self._changes = changes
        self._pending: dict[TaskId, tuple[str, int]] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, id: TaskId, mark: str) -> None:
        """Remove the task that was inserted with `mark`, as soon as the store answers."""
        if self._closed or len(self._pending) >= _MOST:
            return
        self._pending[id] = (mark, _ATTEMPTS)
        if self._task is None:
            # An empty context: the task serves all records, not only the first request.
            self._task = asyncio.create_task(self._withdraw(), name="taskgate-store-withdrawals", context=Context())

    async def close(self) -> None:
        """Stop removing."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _withdraw(self) -> None:
        while self._pending and not self._closed:
            await asyncio.sleep(_PAUSE)
            try:
                for id in tuple(self._pending):
                    await self._withdraw_one(id)
            except StoreUnavailable:
                continue
        self._task = None

    async def _withdraw_one(self, id: TaskId) -> None:
        mark, attempts = self._pending[id]
        task = f"{self._root}task:{id}"
        was_found = await self._client.run(
            rows.WITHDRAW, (task,), (self._root, self._changes.mark(), id, mark), durable=True
        )
        if was_found or attempts == 1:
            del self._pending[id]
        else:
            self._pending[id] = (mark, attempts - 1)
