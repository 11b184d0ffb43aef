"""A running call of a task, `TaskRun`, and the watcher of changes that others make to the records
of running calls, `RecordWatcher`.

`Runner` has a `TaskRun` for each call, from the start of its execution until that has ended. A run
is stopped early in three ways:

- `stop`: the task was ended elsewhere, for example by a host's cancellation;
- `shut_down`: the gateway ends;
- `lose`: another process has taken the task over.

The watcher reads the store's change feed. It stops the run of a task that was ended, and passes
hosts' answers to the run's listener.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord, TaskStatus
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.task_listener import TaskListener
from taskgate.lifecycle.transitions import Hold
from taskgate.stores.base import HolderWatch, TaskStore
from taskgate.system.cancel_scope import CancelScope

PATIENCE: Final = timedelta(seconds=30)
RETRY_WATCH: Final = timedelta(seconds=1)
"""The delay before a task that could not be read is read again."""
_WITH_OUTCOME: Final = (TaskStatus.COMPLETED, TaskStatus.FAILED)


class TaskRun:
    """One call in this process.

    - `revision`: the revision of the run's own last write: creation, queue position, dispatch, end.
      It is set before the write, and the watcher ignores the notification of it.
    - `ran`: whether an earlier process may have sent the call.
    - `may_be_made_again`: whether it is sent again if its server no longer has it. `stand` sets it.
    - `scope`: the block in which the call is awaited; cancelling it cancels the call.
    - `stopped`: whether the run was stopped in any way. It is checked before the scope is entered.
    - `is_shut_down`: whether it was stopped because the gateway ends.
    - `is_left`: whether another process will resume the call. It goes on at its server, and this
      process writes no final state. `shut_down` sets it.
    - `is_lost`: whether another process has taken the task over; this one writes nothing more.
    - `task`: the asyncio task of the execution, None until `Runner` has started it.
    - `begun`: the start, in seconds of the monotonic clock; set if replicas share the store.
    """

    __slots__ = (
        "begun",
        "id",
        "is_left",
        "is_lost",
        "is_shut_down",
        "listener",
        "may_be_made_again",
        "owner",
        "ran",
        "revision",
        "scope",
        "stopped",
        "task",
    )

    def __init__(self, record: TaskRecord, listener: TaskListener, *, ran: bool = False) -> None:
        self.ran = ran
        self.may_be_made_again = False
        self.listener = listener
        self.id: TaskId = record.id
        self.owner: OwnerKey = record.owner
        self.revision = record.revision
        self.stopped = False
        self.is_shut_down = False
        self.is_left = False
        self.is_lost = False
        self.begun = 0.0
        self.scope = CancelScope()
        self.task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Cancel the call, now or before it is sent. Writes to the store that run are completed."""
        self.stopped = True
        self.scope.cancel()

    def shut_down(self) -> None:
        """Stop the run because the gateway ends.

        If another process can resume the call, it is not cancelled at its server.
        """
        self.is_left = self.listener.leave()
        self.is_shut_down = True
        self.stop()

    def lose(self) -> None:
        """Stop the run because another process has the task: nothing more is written."""
        self.listener.leave()
        self.is_lost = True
        self.stop()


class RecordWatcher:
    """The watcher of the tasks that run in the process `holder`. `runs` are those of `Runner`."""

    def __init__(
        self, *, holder: str, store: TaskStore, runs: Mapping[TaskId, TaskRun], clock: Clock, hold: Hold | None = None
    ) -> None:
        self._holder = holder
        self._store = store
        self._runs = runs
        self._clock = clock
        self._hold = hold

    async def watch(self) -> None:
        """Watch until cancelled."""
        since: int | None = None
        unread: list[TaskId] = []
        while True:
            try:
                patience = RETRY_WATCH if unread else PATIENCE
                watch = HolderWatch(holder=self._holder, since=since, is_news=self._is_news)
                news = await self._store.changed(watch, timeout=patience)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_WATCH.total_seconds())
                continue
            since = news.place
            # After a gap in the feed any task may have changed.
            ids = [change.id for change in news.changes] if news.complete else [*self._runs]
            unread = [task for task in dict.fromkeys((*unread, *ids)) if not await self._obeyed(task)]

    def _is_news(self, task: TaskId, revision: int) -> bool:
        """Return whether a change is of a task that runs here, and not the run's own last write.

        A change by others that arrives between the write which makes a task this process's and the
        start of its run is passed over. The run meets it when it writes next.
        """
        run = self._runs.get(task)
        return run is not None and run.revision != revision

    async def _obeyed(self, task: TaskId) -> bool:
        """Read a changed task and act on it; return False if it could not be read.

        The run of a task that was ended is stopped. Any other change goes to the listener.
        """
        run = self._runs.get(task)
        if run is None:
            return True
        try:
            record = await self._store.load(run.owner, task, now=self._clock.now())
            if self._hold is not None and await self._hold.healed(task, record):
                # The store had lost the record: what was read is outdated. The restored one is as
                # this process wrote it.
                return True
        except StoreUnavailable:
            return False
        # The copy for restoration must be whole, and this head lacks the outcome of an ended task.
        if self._hold is not None and record is not None and record.status not in _WITH_OUTCOME:
            self._hold.wrote(record)
        if record is None or record.status.is_terminal:
            run.stop()
        else:
            run.listener.obey(record)
        return True
