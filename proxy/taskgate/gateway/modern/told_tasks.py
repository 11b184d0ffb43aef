"""The watcher of tasks for a `subscriptions/listen` stream: `ToldTasks`, one for each owner.

`Subscriptions` starts it before it looks the tasks up, so that no change is lost in between. It
sends the state of each task once, then each change, until the task ends. Changes come from the
store's change feed, from the position at which `begin` was called.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from typing import Final

from taskgate.admission.lookups import with_parsed_outcome
from taskgate.clock import Clock
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.protocol.dialects import ModernDownstreamDialect
from taskgate.stores.base import OwnerWatch, TaskStore

PATIENCE: Final = timedelta(seconds=30)
"""The longest wait for changes, after which the next wait starts."""

RETRY: Final = timedelta(seconds=1)
"""The delay before a store that failed is asked again."""

Tell = Callable[[TaskRecord], Awaitable[None]]
"""Sends the state of a task; a finished record has its result."""


class ToldTasks:
    """A watcher of some tasks of one owner, from a position in the store's change feed."""

    def __init__(
        self, owner: OwnerKey, place: int, *, store: TaskStore, dialect: ModernDownstreamDialect, clock: Clock
    ) -> None:
        self._owner = owner
        self._place = place
        self._store = store
        self._dialect = dialect
        self._clock = clock
        self._told: dict[TaskId, Hashable] = {}

    @classmethod
    async def begin(
        cls, owner: OwnerKey, *, store: TaskStore, dialect: ModernDownstreamDialect, clock: Clock
    ) -> "ToldTasks":
        """Start at the current position, without tasks. Raises StoreUnavailable."""
        now = await store.changed(OwnerWatch(owner=owner), timeout=timedelta())
        return cls(owner, now.place, store=store, dialect=dialect, clock=clock)

    def add(self, task: TaskId) -> None:
        """Watch that task too; only before `tell`."""
        self._told[task] = None

    async def tell(self, tell: Tell) -> None:
        """Send each task's state and its changes; return when all tasks have ended (M-NOTIF-4).

        If the store fails it is asked again. A record that cannot be read does not delay the
        others.
        """
        unread = dict.fromkeys(self._told)
        while True:
            unread = {task: None for task in unread if not await self._is_told(task, tell)}
            if not self._told:
                return
            try:
                news = await self._store.changed(
                    OwnerWatch(owner=self._owner, since=self._place), timeout=RETRY if unread else PATIENCE
                )
            except StoreUnavailable:
                await asyncio.sleep(RETRY.total_seconds())
                continue
            self._place = news.place
            changed = [change.id for change in news.changes] if news.complete else [*self._told]
            unread.update((task, None) for task in changed if task in self._told)

    async def _is_told(self, task: TaskId, tell: Tell) -> bool:
        """Send a task's state if it has changed; return False if it could not be read."""
        try:
            record = await self._store.load(self._owner, task, now=self._clock.now())
            if record is not None and record.status.is_terminal:
                record = await with_parsed_outcome(
                    await self._store.load(self._owner, task, now=self._clock.now(), bodies=True)
                )
        except StoreUnavailable:
            return False
        if record is None or record.status.is_terminal:
            # Gone, or sent for the last time.
            del self._told[task]
        elif self._told[task] == (seen := self._seen(record)):
            return True
        else:
            self._told[task] = seen
        if record is not None:
            await tell(record)
        return True

    def _seen(self, record: TaskRecord) -> Hashable:
        """Return what a host can see of a running task; who delivers its questions is left out."""
        return record.status, record.updated_at, record.status_message, tuple(self._dialect.open_inputs(record))
