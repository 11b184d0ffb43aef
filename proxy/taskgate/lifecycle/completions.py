"""The final states of tasks: `Completions` writes each once, however long the store takes to accept
it.

`TaskExecutor` calls `settle` with the event that ended a call, `Runner` and `Takeovers` with
cancellations and failures. The first final state in the record counts; every later one is dropped,
and reported as LateAnswerDropped. While the store is unavailable, results wait in memory, within a
limit.

Each attempt loads the record, checks that this process may end the task, and applies the event. Then
it swaps the record, if its revision is unchanged.
"""

import asyncio
from contextlib import suppress
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.events import CallFaulted, CallSucceeded, CancelRequested, TaskEvent
from taskgate.domain.machine import advance
from taskgate.domain.record import FaultReason, OwnerKey, Succeeded, TaskId, TaskRecord
from taskgate.errors import IllegalTransition, StoreUnavailable
from taskgate.lifecycle.reports import report
from taskgate.lifecycle.task_runs import TaskRun
from taskgate.lifecycle.transitions import RETRY_FIRST, RETRY_MOST, Hold
from taskgate.protocol.faults import call_ended
from taskgate.stores.base import TaskStore
from taskgate.telemetry.events import EventSink, LateAnswerDropped, TaskFinished

MAX_WAITING: Final = 64 * 1024 * 1024
"""Characters of all results that wait for the store."""
NOT_KEPT: Final = "The call ended, but its result could not be stored: the task store was not available"


class Completions:
    """The writer of final states.

    `hold` is given if replicas share the store: the leases of this process. Then a task whose lease
    another process has can only be cancelled from here. `_waiting_size` are the characters of the
    results that wait for the store now.
    """

    def __init__(self, *, store: TaskStore, event_sink: EventSink, clock: Clock, hold: Hold | None = None) -> None:
        self._store = store
        self._event_sink = event_sink
        self._clock = clock
        self._hold = hold
        self._waiting_size = 0

    async def settle(self, owner: OwnerKey, task: TaskId, event: TaskEvent, *, run: TaskRun | None = None) -> bool:
        """Write the final state of a task, however long the store takes; `run` is its run, if it
        runs here.

        Returns True if it was written, or the task has expired. Returns False if the task had ended
        before, or belongs to another process. It had also ended before if an attempt was stored
        although the store reported a failure.

        If the results that wait for the store are too large together, a failure is written in place
        of this one.
        """
        with suppress(StoreUnavailable):
            if (was_written := await self._try(owner, task, event, run)) is not None:
                return was_written
        size = len(event.result) if isinstance(event, CallSucceeded) else 0
        if self._waiting_size + size > MAX_WAITING:
            event, size = call_ended(FaultReason.INTERNAL, NOT_KEPT, dispatched=True), 0
        self._waiting_size += size
        try:
            return await self._insist(owner, task, event, run)
        finally:
            self._waiting_size -= size

    async def _insist(self, owner: OwnerKey, task: TaskId, event: TaskEvent, run: TaskRun | None) -> bool:
        """Try until there is an answer; only a failure of the store needs a pause."""
        pause = RETRY_FIRST
        while True:
            try:
                if (was_written := await self._try(owner, task, event, run)) is not None:
                    return was_written
            except StoreUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_MOST)

    async def _try(self, owner: OwnerKey, task: TaskId, event: TaskEvent, run: TaskRun | None) -> bool | None:
        """Try `settle` once; return None if it must be tried again.

        That is so if the record was changed meanwhile, or was just restored to the store.
        """
        now = self._clock.now()
        record = await self._store.load(owner, task, now=now)
        if self._hold is not None:
            if await self._hold.healed(task, record):
                # The store had lost the record, and has it again: load it anew.
                return None
            if record is not None and not _may_end(self._hold, record, event):
                self._event_sink.emit(LateAnswerDropped(owner.mount))
                return False
        if record is None:
            # Expired: the sweeper reports it when it removes the record.
            return True
        try:
            ended = advance(record, event, now)
        except IllegalTransition:
            self._event_sink.emit(LateAnswerDropped(owner.mount))
            return False
        if run is not None:
            # Before the write, because the change notification may arrive first.
            run.revision = ended.revision
        if not await self._store.swap(ended, expected=record.revision):
            return None
        if self._hold is not None:
            # The copy of the record, from which it is restored if the store loses it.
            self._hold.wrote(ended)
        report(self._event_sink, record, event, ended)
        self._event_sink.emit(_finished(ended, event))
        return True


def _may_end(hold: Hold, record: TaskRecord, event: TaskEvent) -> bool:
    """Whether this process may try to end the task. An ended one is refused later, by `advance`."""
    return record.status.is_terminal or isinstance(event, CancelRequested) or hold.holds(record)


def _finished(record: TaskRecord, event: TaskEvent) -> TaskFinished:
    """The report of the end, with its reason."""
    match event:
        case CallSucceeded(tool_error=True):
            reason = "tool_error"
        case CallFaulted(reason=fault):
            reason = fault.value
        case CancelRequested():
            reason = "client"
        case _:
            reason = "ok"
    size = len(record.outcome.result) if isinstance(record.outcome, Succeeded) else None
    return TaskFinished(record, record.status, reason, record.updated_at - record.created_at, size)
