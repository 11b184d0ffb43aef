"""The watcher of tasks for a `subscriptions/listen` stream: `TaskWatcher`.

`Subscriptions` begins one for each owner that the caller's tasks may have, for each stream. The
steps of its life are `begin`, `add` for each task, and `watch`. `begin` remembers the position in
the store's change feed. It comes before the tasks are looked up, so that no change is lost. `watch`
sends the state of each task once, then each change that a host can see. A task that has ended is
sent with its result, and is then no longer watched.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from typing import Final

from taskgate.admission.lookups import with_parsed_outcome
from taskgate.clock import Clock
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.stores.base import OwnerWatch, TaskStore

PATIENCE: Final = timedelta(seconds=30)
"""The longest wait for changes, after which the next wait starts."""

RETRY: Final = timedelta(seconds=1)
"""The delay before a store that failed is asked again."""

SendTask = Callable[[TaskRecord], Awaitable[None]]
"""Sends the state of a task to the host; an ended record has its result."""


class TaskWatcher:
    """A watcher of some tasks of one owner.

    `_position` is how far the change feed was read. `_last_sent` has the watched tasks with the
    state that was last sent, None before the first.
    """

    def __init__(
        self, owner: OwnerKey, position: int, *, store: TaskStore, dialect: ModernDownstream, clock: Clock
    ) -> None:
        self._owner = owner
        self._position = position
        self._store = store
        self._dialect = dialect
        self._clock = clock
        self._last_sent: dict[TaskId, Hashable] = {}

    @classmethod
    async def begin(
        cls, owner: OwnerKey, *, store: TaskStore, dialect: ModernDownstream, clock: Clock
    ) -> "TaskWatcher":
        """Start at the current position, without tasks. Raises StoreUnavailable."""
        now = await store.changed(OwnerWatch(owner=owner), timeout=timedelta())
        return cls(owner, now.place, store=store, dialect=dialect, clock=clock)

    def add(self, task: TaskId) -> None:
        """Watch one more task; only before `watch`."""
        self._last_sent[task] = None

    async def watch(self, send: SendTask) -> None:
        """Send each task's state and its changes with `send`; return when all have ended (M-NOTIF-4).

        If the store fails it is asked again. A record that cannot be read does not delay the
        others.
        """
        to_load = dict.fromkeys(self._last_sent)
        while True:
            # What could not be read stays for the next turn.
            to_load = {task: None for task in to_load if not await self._send_if_changed(task, send)}
            if not self._last_sent:
                return
            try:
                news = await self._store.changed(
                    OwnerWatch(owner=self._owner, since=self._position), timeout=RETRY if to_load else PATIENCE
                )
            except StoreUnavailable:
                await asyncio.sleep(RETRY.total_seconds())
                continue
            self._position = news.place
            # Without a complete list of changes, any task may have changed.
            changed = [change.id for change in news.changes] if news.complete else [*self._last_sent]
            to_load.update((task, None) for task in changed if task in self._last_sent)

    async def _send_if_changed(self, task: TaskId, send: SendTask) -> bool:
        """Send a task's state if it has visibly changed since it was last sent.

        Returns False if the record could not be read, so that nothing is known.
        """
        try:
            record = await self._store.load(self._owner, task, now=self._clock.now())
            if record is not None and record.status.is_terminal:
                record = await with_parsed_outcome(
                    await self._store.load(self._owner, task, now=self._clock.now(), bodies=True)
                )
        except StoreUnavailable:
            return False
        if record is None or record.status.is_terminal:
            # Expired, or sent below for the last time.
            del self._last_sent[task]
        elif self._last_sent[task] == (visible := self._visible_state(record)):
            return True
        else:
            self._last_sent[task] = visible
        if record is not None:
            await send(record)
        return True

    def _visible_state(self, record: TaskRecord) -> Hashable:
        """Return what a host can see of a running task.

        A record also changes when a process claims a question to deliver it, which no host sees.
        """
        return record.status, record.updated_at, record.status_message, tuple(self._dialect.open_inputs(record))
