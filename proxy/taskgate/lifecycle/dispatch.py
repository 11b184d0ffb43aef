"""How the call of a task comes to leave: it waits for its turn at the server, says so, and is marked before it goes.

What must not live here: the call itself (`runner`), whose turn it is (`admission/bulkhead`). What holds: a call leaves
once its record says so, and no sooner (decisions 3).
"""

from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final

from taskgate.admission.bulkhead import Ticket, queued
from taskgate.clock import Clock
from taskgate.domain.events import CallFaulted, Dispatched, Progressed
from taskgate.domain.machine import advance
from taskgate.domain.record import FaultReason, TaskRecord
from taskgate.errors import QueueFull, StoreUnavailable
from taskgate.lifecycle.changes import Changes, Hold
from taskgate.lifecycle.reports import report
from taskgate.lifecycle.task_runs import TaskRun
from taskgate.protocol.faults import call_ended
from taskgate.stores.base import TaskStore
from taskgate.system.interruption import Interrupted
from taskgate.telemetry.events import EventSink, TaskDispatched

SHUT_DOWN_UNSENT: Final = "The gateway shut down before the call was sent"
NO_STORE: Final = "The call was not sent: the task store was not available"


class Dispatcher:
    """Lets calls of tasks leave."""

    def __init__(
        self, *, store: TaskStore, changes: Changes, event_sink: EventSink, clock: Clock, hold: Hold | None = None
    ) -> None:
        self._store = store
        self._changes = changes
        self._event_sink = event_sink
        self._clock = clock
        self._hold = hold

    async def leave(self, run: TaskRun, record: TaskRecord, ticket: Ticket) -> CallFaulted | None:
        """Wait until the call may leave, which its record says from then on; else how the task is to end, unsent.

        Raises Interrupted where somebody else ended it, or runs it now.
        """
        # A call that is sent again may have run before.
        unsent = partial(call_ended, dispatched=record.dispatched)
        try:
            if not ticket.granted:
                await self._wait(run, record, ticket)
            if run.is_shut_down:
                if self._hold is not None and not record.dispatched:
                    # Another process sends it, once its lease has lapsed.
                    raise Interrupted
                return unsent(FaultReason.SHUTDOWN, SHUT_DOWN_UNSENT)
            since = self._clock.elapsed()
            if run.revision != record.revision or (marked := await self._mark_at_once(run, record)) is None:
                marked = await self._mark(run)
        except QueueFull as full:
            return unsent(FaultReason.QUEUE, str(full), retry_after=full.retry_after)
        except StoreUnavailable:
            return unsent(FaultReason.INTERNAL, NO_STORE)
        if self._hold is not None and self._hold.overslept(since):
            # The process stood still in between: another may have read the mark already, and said what it means.
            raise Interrupted
        self._event_sink.emit(TaskDispatched(marked, self._clock.now() - record.created_at))
        return None

    async def _wait(self, run: TaskRun, record: TaskRecord, ticket: Ticket) -> None:
        left = max(record.expires_at - self._clock.now(), timedelta())
        try:
            with run.scope:
                if run.stopped:
                    raise Interrupted
                if record.status_message != queued(ticket.ahead):
                    # Of an earlier process, or it moved while it was made.
                    await self._tell(run, ticket.ahead)
                await ticket.turn(min(ticket.max_wait, left), partial(self._tell, run))
        except Interrupted:
            if not run.is_shut_down:
                raise

    async def _tell(self, run: TaskRun, ahead: int) -> None:
        """Say how many are before it; where the store is not there, the next place is told or none.

        Raises Interrupted where somebody ended it: that may have been at the revision that this was to have, and then
        its news are taken for ours.
        """

        def place(record: TaskRecord) -> Progressed:
            run.wrote(record.revision + 1)
            return Progressed(message=queued(ahead))

        with suppress(StoreUnavailable):
            if await self._changes.make(run.owner, run.id, place) is None:
                raise Interrupted

    async def _mark_at_once(self, run: TaskRun, record: TaskRecord) -> TaskRecord | None:
        """As `_mark`, where nothing was done to the record since it was made, as is usual; else None."""
        leaving = Dispatched()
        marked = advance(record, leaving, self._clock.now())
        # Before it is written: its news comes first.
        run.wrote(marked.revision)
        if not await self._store.swap(marked, expected=record.revision):
            return None
        if self._hold is not None:
            self._hold.wrote(marked)
        report(self._event_sink, record, leaving, marked)
        return marked

    async def _mark(self, run: TaskRun) -> TaskRecord:
        """Say that the call leaves, whatever the record is now: from here on it counts as having run."""

        def leaving(found: TaskRecord) -> Dispatched:
            run.wrote(found.revision + 1)
            return Dispatched()

        # Its place was told meanwhile, a host answered what an earlier run asked, or somebody ended it.
        marked = await self._changes.make(run.owner, run.id, leaving)
        if marked is None:
            raise Interrupted
        return marked
