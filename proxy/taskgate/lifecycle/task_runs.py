"""The calls of tasks that run in this process, and the look-out for what others do to their records.

What must not live here: the calls themselves, and how they end (`runner`).
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
from taskgate.system.interruption import Interruptible
from taskgate.telemetry.request_context import RequestContext, current
from taskgate.telemetry.tracing import stored_span

PATIENCE: Final = timedelta(seconds=30)
RETRY_WATCH: Final = timedelta(seconds=1)
"""How soon a task is looked at again that could not be when it changed."""
_WITH_OUTCOME: Final = (TaskStatus.COMPLETED, TaskStatus.FAILED)


class TaskRun:
    """One call in this process. `revision` is the newest of the record that this process wrote.

    `ran` is whether an earlier process may have made the call. `may_be_made_again` is whether it is to be, should it
    not be at its server any more; `is_left` whether another process goes on with it. `trace` is where the request
    stands that made its task. `begun` is when it began, in seconds of the stopwatch, in a store that several processes
    share.
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
        self.scope = Interruptible()
        self.task: asyncio.Task[None] | None = None

    def request_context(self) -> RequestContext:
        """What its call belongs to: what is left of the request that makes it, or, where there is none, itself."""
        here = current()
        if here is not None:
            request_context = here.for_background()
        else:
            request_context = RequestContext("", "", "", "")
            request_context.span = stored_span(self.trace)
        request_context.mount, request_context.task, request_context.background = self.owner.mount, self.id, True
        return request_context

    def stop(self) -> None:
        """Give the call up, now or as soon as it would leave. What is being written is still written."""
        self.stopped = True
        self.scope.interrupt()

    def shut_down(self) -> None:
        """Give the call up because the gateway ends; where another can go on with it, it is left as it is."""
        self.is_left = self.listener.leave()
        self.is_shut_down = True
        self.stop()

    def lose(self) -> None:
        """Give the call up because another process has taken it over: nothing of it is written any more."""
        self.listener.leave()
        self.is_lost = True
        self.stop()

    def wrote(self, revision: int) -> None:
        """That revision is ours: news of it needs no look at the record."""
        self.revision = revision


class RecordWatcher:
    """Looks out for changes of the tasks that run in a process, `holder`, and lets their calls obey them."""

    def __init__(
        self, *, holder: str, store: TaskStore, runs: Mapping[TaskId, TaskRun], clock: Clock, hold: Hold | None = None
    ) -> None:
        self._holder = holder
        self._store = store
        self._runs = runs
        self._clock = clock
        self._hold = hold

    async def watch(self) -> None:
        """Look out until it is cancelled."""
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
        """Whether a change of a task that runs here was made by somebody else."""
        run = self._runs.get(change.id)
        return run is not None and run.revision != change.revision

    async def _obeyed(self, task: TaskId) -> bool:
        """Stop the call of a task that somebody ended; False where that could not be looked up."""
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
