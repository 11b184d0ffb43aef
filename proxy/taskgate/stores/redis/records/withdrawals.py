"""The removal of records whose insert got no answer: `Withdrawals`.

Their callers got an error. A record that was stored all the same would look like a lost call when
its lease lapses, and run. So it is removed, as long as no other change was made to it.

Each change of a record has a *mark*, unique to it, and a row has the mark of its last change. So a
row with the mark of the insert is unchanged since. `RedisStore` calls `add`. One background task
then tries each record until it is removed, or its attempts are used up.
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
"""Answers of the server that a record is missing or changed, before it is given up. The insert may
still be on its way to the server, so one such answer is not enough."""

_MOST: Final = 4096
"""Records that are remembered. Further ones are not removed, and run when their leases lapse."""


class Withdrawals:
    """The records to remove, each with the mark of its insert and the attempts that are left.

    `_task` is the background task; None while there is nothing to remove. For one event loop.
    """

    def __init__(self, client: RedisClient, root: str, changes: ChangeSubscriber) -> None:
        self._client = client
        self._root = root
        self._changes = changes
        self._pending: dict[TaskId, tuple[str, int]] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, id: TaskId, mark: str) -> None:
        """Remove the task that was inserted with `mark`, in the background, once the store answers."""
        if self._closed or len(self._pending) >= _MOST:
            return
        self._pending[id] = (mark, _ATTEMPTS)
        if self._task is None:
            # An empty context: the task serves all records, not only the first request.
            self._task = asyncio.create_task(self._withdraw(), name="taskgate-store-withdrawals", context=Context())

    async def close(self) -> None:
        """Stop removing; what is left stays in the store."""
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
                # No attempt is used up: the server has not answered.
                continue
        self._task = None

    async def _withdraw_one(self, id: TaskId) -> None:
        inserted_as, attempts = self._pending[id]
        task = f"{self._root}task:{id}"
        # The removal is a change itself, with a mark of its own.
        was_removed = await self._client.run(
            rows.WITHDRAW, (task,), (self._root, self._changes.mark(), id, inserted_as), durable=True
        )
        if was_removed or attempts == 1:
            del self._pending[id]
        else:
            self._pending[id] = (inserted_as, attempts - 1)
