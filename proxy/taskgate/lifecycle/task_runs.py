"""A running call of a task, `TaskRun`, and the watcher of changes that others make to the records
of running calls, `RecordWatcher`.

`Runner` has a `TaskRun` for each call. The watcher waits for the store's change feed: a task that
was ended stops its call, and answers to questions are passed to its listener.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord, TaskStatus
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.changes import Hold
from taskgate.lifecycle.hearing import TaskListener
from taskgate.stores.base import HolderWatch, RecordChange, TaskStore
from taskgate.system.cancel_scope import CancelScope
from taskgate.telemetry.request_context import RequestContext, current
from taskgate.telemetry.tracing import stored_span

PATIENCE: Final = timedelta(seconds=30)
RETRY_WATCH: Final = timedelta(seconds=1)
"""The delay before a task that could not be read is read again."""
_WITH_OUTCOME: Final = (TaskStatus.COMPLETED, TaskStatus.FAILED)


class TaskRun:
    """One call in this process.

    - `revision`: the newest revision of the record that this process wrote.
    - `ran`: whether an earlier process may have sent the call.
    - `may_be_made_again`: whether it is sent again if its server no longer has it.
    - `is_left`: whether another process resumes it.
    - `is_lost`: whether another process has taken the task over.
    - `trace`: the trace position of the request that created the task.
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
        "trace",
    )

    def __init__(self, record: TaskRecord, listener: TaskListener, *, ran: bool = False) -> None:
        self.ran = ran
        self.may_be_made_again = False
        self.listener = listener
        self.id: TaskId = record.id
        self.owner: OwnerKey = record.owner
        self.revision = record.revision
        self.trace = record.trace
        self.stopped = False
        self.is_shut_down = False
        self.is_left = False
        self.is_lost = False
        self.begun = 0.0
        self.scope = CancelScope()
        self.task: asyncio.Task[None] | None = None

    def request_context(self) -> RequestContext:
        """Return the context of the call: that of the present request without its message, or a new
        one.
        """
        here = current()
        if here is not None:
            request_context = here.for_background()
        else:
            request_context = RequestContext("", "", "", "")
            request_context.span = stored_span(self.trace)
        request_context.mount, request_context.task, request_context.background = self.owner.mount, self.id, True
        return request_context

    def stop(self) -> None:
        """Cancel the call, now or before it is sent. Writes under way are completed."""
        self.stopped = True
        self.scope.cancel()

    def shut_down(self) -> None:
        """Cancel the call because the gateway shuts down. If another process can resume it, it
        stays as it is.
        """
        self.is_left = self.listener.leave()
        self.is_shut_down = True
        self.stop()

    def lose(self) -> None:
        """Cancel the call because another process has the task: nothing more is written."""
        self.listener.leave()
        self.is_lost = True
        self.stop()

    def wrote(self, revision: int) -> None:
        """Store that this process wrote a revision: a change notification of it needs no read."""
        self.revision = revision


class RecordWatcher:
    """The watcher of the tasks that run in the process `holder`."""

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
                news = await self._store.changed(HolderWatch(holder=self._holder, since=since), timeout=patience)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_WATCH.total_seconds())
                continue
            since = news.place
            told = [change.id for change in news.changes if self._is_news(change)] if news.complete else [*self._runs]
            unread = [task for task in dict.fromkeys((*unread, *told)) if not await self._obeyed(task)]

    def _is_news(self, change: RecordChange) -> bool:
        """Return whether another party changed a task that runs here."""
        run = self._runs.get(change.id)
        return run is not None and run.revision != change.revision

    async def _obeyed(self, task: TaskId) -> bool:
        """Stop the call of a task that was ended; return False if the record could not be read."""
        run = self._runs.get(task)
        if run is None:
            return True
        try:
            record = await self._store.load(run.owner, task, now=self._clock.now())
            if self._hold is not None and await self._hold.healed(task, record):
                return True
        except StoreUnavailable:
            return False
        if self._hold is not None and record is not None and record.status not in _WITH_OUTCOME:
            self._hold.wrote(record)
        if record is None or record.status.is_terminal:
            run.stop()
        else:
            run.listener.obey(record)
        return True
