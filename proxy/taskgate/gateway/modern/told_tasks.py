"""The tasks that a stream of `subscriptions/listen` tells of: each as it is at first, then at each change, to its end.

What must not live here: which tasks those are, the stream itself (`subscriptions`). What holds: no change is lost that
comes after `begin`, though the news of it may come before anything was told.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from typing import Final

from taskgate.admission.outcomes import placed
from taskgate.clock import Clock
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.protocol.modern_requests import ModernDialect
from taskgate.stores.base import OwnerWatch, TaskStore

PATIENCE: Final = timedelta(seconds=30)
"""How long one wait for news lasts before the next begins."""

RETRY: Final = timedelta(seconds=1)
"""How soon a store that did not answer is asked again."""

Tell = Callable[[TaskRecord], Awaitable[None]]
"""Says what a task is now; a terminal record has its bodies."""


class ToldTasks:
    """Tells of some tasks of one owner, from a place in the store's sequence of changes."""

    def __init__(self, owner: OwnerKey, place: int, *, store: TaskStore, dialect: ModernDialect, clock: Clock) -> None:
        self._owner = owner
        self._place = place
        self._store = store
        self._dialect = dialect
        self._clock = clock
        self._told: dict[TaskId, Hashable] = {}

    @classmethod
    async def begin(cls, owner: OwnerKey, *, store: TaskStore, dialect: ModernDialect, clock: Clock) -> "ToldTasks":
        """From now on, of no task yet. Raises StoreUnavailable."""
        now = await store.changed(OwnerWatch(owner=owner), timeout=timedelta())
        return cls(owner, now.place, store=store, dialect=dialect, clock=clock)

    def add(self, task: TaskId) -> None:
        """Tell of that task, too; only before `tell`."""
        self._told[task] = None

    async def tell(self, tell: Tell) -> None:
        """Tell of every task once, and of what becomes of it; over when nothing more can become of any (M-NOTIF-4).

        A store that is not available is asked again, and one record that cannot be read keeps back no other.
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
        """Tell of a task if there is something to tell; False where it could not be read."""
        try:
            record = await self._store.load(self._owner, task, now=self._clock.now())
            if record is not None and record.status.is_terminal:
                record = await placed(await self._store.load(self._owner, task, now=self._clock.now(), bodies=True))
        except StoreUnavailable:
            return False
        if record is None or record.status.is_terminal:
            # Gone, or told of for the last time.
            del self._told[task]
        elif self._told[task] == (seen := self._seen(record)):
            return True
        else:
            self._told[task] = seen
        if record is not None:
            await tell(record)
        return True

    def _seen(self, record: TaskRecord) -> Hashable:
        """What a host can see of a task that goes on: who carries its questions is no news."""
        return record.status, record.updated_at, record.status_message, tuple(self._dialect.outstanding(record))
