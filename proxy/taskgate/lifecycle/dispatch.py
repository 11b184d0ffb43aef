"""The dispatch of a task's call: `Dispatcher`. It waits for the permit, writes the position in the
queue into the record, and marks the record as dispatched before the call is sent.

The mark says that the call may have been sent. It is stored before the first byte, so that no crash
can lead to a second sending. `TaskExecutor` calls `leave` once, and sends the call if that returns
None. The order of permits is decided by `admission.concurrency`.
"""

from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final

from taskgate.admission.concurrency import Permit, queue_status
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
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.telemetry.events import EventSink, TaskDispatched

SHUT_DOWN_UNSENT: Final = "The gateway shut down before the call was sent"
NO_STORE: Final = "The call was not sent: the task store was not available"


class Dispatcher:
    """The dispatcher of calls of tasks. `hold` is given if replicas share the store."""

    def __init__(
        self, *, store: TaskStore, changes: Changes, event_sink: EventSink, clock: Clock, hold: Hold | None = None
    ) -> None:
        self._store = store
        self._changes = changes
        self._event_sink = event_sink
        self._clock = clock
        self._hold = hold

    async def leave(self, run: TaskRun, record: TaskRecord, ticket: Permit) -> CallFaulted | None:
        """Wait for the permit and store the mark; return None if the call may be sent now.

        Otherwise returns the failure that ends the task unsent. Raises ScopeCancelled if nothing is
        to be sent or written: the task was ended, or another process has it or will send it. The
        permit stays with the caller in any case.
        """
        # A call that is sent again may have run before.
        unsent = partial(call_ended, dispatched=record.dispatched)
        try:
            if not ticket.is_granted:
                await self._wait(run, record, ticket)
            if run.is_shut_down:
                if self._hold is not None and not record.dispatched:
                    # Another replica sends it, after its lease has lapsed.
                    raise ScopeCancelled
                return unsent(FaultReason.SHUTDOWN, SHUT_DOWN_UNSENT)
            since = self._clock.elapsed()
            # A position in the queue may have been written: then the record is read again.
            if run.revision != record.revision or (marked := await self._mark_at_once(run, record)) is None:
                marked = await self._mark(run)
        except QueueFull as full:
            return unsent(FaultReason.QUEUE, str(full), retry_after=full.retry_after)
        except StoreUnavailable:
            return unsent(FaultReason.INTERNAL, NO_STORE)
        if self._hold is not None and self._hold.overslept(since):
            # The process was suspended for longer than a lease. Another may have read the mark and
            # declared the call lost, so it must not be sent.
            raise ScopeCancelled
        self._event_sink.emit(TaskDispatched(marked, self._clock.now() - record.created_at))
        return None

    async def _wait(self, run: TaskRun, record: TaskRecord, ticket: Permit) -> None:
        """Wait for the permit. Returns early at a shutdown; raises ScopeCancelled at another stop."""
        left = max(record.expires_at - self._clock.now(), timedelta())
        try:
            with run.scope:
                if run.stopped:
                    raise ScopeCancelled
                if record.status_message != queue_status(ticket.ahead):
                    # The message is of an earlier process, or the call moved up while the record
                    # was created.
                    await self._tell(run, ticket.ahead)
                await ticket.wait(min(ticket.max_wait, left), partial(self._tell, run))
        except ScopeCancelled:
            if not run.is_shut_down:
                raise

    async def _tell(self, run: TaskRun, ahead: int) -> None:
        """Write the number of calls ahead into the record. If the store fails, a later position is
        written.

        Raises ScopeCancelled if the task was ended. `RecordWatcher` may not notice that end: it can
        have the revision that `run.wrote` announced here, and then counts as this process's own.
        """

        def place(record: TaskRecord) -> Progressed:
            run.wrote(record.revision + 1)
            return Progressed(message=queue_status(ahead))

        with suppress(StoreUnavailable):
            if await self._changes.make(run.owner, run.id, place) is None:
                raise ScopeCancelled

    async def _mark_at_once(self, run: TaskRun, record: TaskRecord) -> TaskRecord | None:
        """Store the mark without a load first: usually the record is unchanged since it was created.

        Returns None if it has changed; then `_mark` must do it.
        """
        dispatched_event = Dispatched()
        marked = advance(record, dispatched_event, self._clock.now())
        # Before the write, because the change notification may arrive first.
        run.wrote(marked.revision)
        if not await self._store.swap(marked, expected=record.revision):
            return None
        if self._hold is not None:
            self._hold.wrote(marked)
        report(self._event_sink, record, dispatched_event, marked)
        return marked

    async def _mark(self, run: TaskRun) -> TaskRecord:
        """Load the record and mark it as dispatched. Raises ScopeCancelled if that is not possible."""

        def dispatched_event(found: TaskRecord) -> Dispatched:
            run.wrote(found.revision + 1)
            return Dispatched()

        # The record has changed since: its position was written, a host answered a question of an
        # earlier run, or it was ended. Only the last one prevents the mark.
        marked = await self._changes.make(run.owner, run.id, dispatched_event)
        if marked is None:
            raise ScopeCancelled
        return marked
