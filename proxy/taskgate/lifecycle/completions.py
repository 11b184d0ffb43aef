"""How the end of a task is written: once, however long the store takes to accept it.

What must not live here: calls (`runner`), what an event means (`domain/machine`).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.events import CallFaulted, CallSucceeded, CancelRequested, TaskEvent
from taskgate.domain.machine import advance
from taskgate.domain.record import FaultReason, OwnerKey, Succeeded, TaskId, TaskRecord
from taskgate.errors import IllegalTransition, StoreUnavailable
from taskgate.lifecycle.changes import RETRY_FIRST, RETRY_MOST, Hold
from taskgate.lifecycle.reports import report
from taskgate.protocol.faults import call_ended
from taskgate.stores.base import TaskStore
from taskgate.telemetry.events import EventSink, LateAnswerDropped, TaskFinished

MAX_WAITING: Final = 64 * 1024 * 1024
"""Characters of results that may wait, all together, for a store that does not take them."""
NOT_KEPT: Final = "The call ended, but its result could not be stored: the task store was not available"

Written = Callable[[int], None]
"""Told the revision that is about to be written."""


class Completions:
    """Writes the ends of tasks. With a `hold`, only a cancel ends one that another process holds."""

    def __init__(self, *, store: TaskStore, event_sink: EventSink, clock: Clock, hold: Hold | None = None) -> None:
        self._store = store
        self._event_sink = event_sink
        self._clock = clock
        self._hold = hold
        self._waiting = 0

    async def settle(
        self, owner: OwnerKey, task: TaskId, event: TaskEvent, *, written: Written = lambda _: None
    ) -> bool:
        """Write the end of a task; False where it had ended before, and stays as it ended, or is another process's.

        While the store does not take it, it waits, but no more results than may: for one too many, its loss is written.
        """
        with suppress(StoreUnavailable):
            if (stands := await self._tried(owner, task, event, written)) is not None:
                return stands
        size = len(event.result) if isinstance(event, CallSucceeded) else 0
        if self._waiting + size > MAX_WAITING:
            event, size = call_ended(FaultReason.INTERNAL, NOT_KEPT, dispatched=True), 0
        self._waiting += size
        try:
            return await self._insist(owner, task, event, written)
        finally:
            self._waiting -= size

    async def _insist(self, owner: OwnerKey, task: TaskId, event: TaskEvent, written: Written) -> bool:
        pause = RETRY_FIRST
        while True:
            try:
                if (stands := await self._tried(owner, task, event, written)) is not None:
                    return stands
            except StoreUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_MOST)

    async def _tried(self, owner: OwnerKey, task: TaskId, event: TaskEvent, written: Written) -> bool | None:
        """See `settle`; None where somebody else changed the record meanwhile, and it is to be tried again."""
        now = self._clock.now()
        record = await self._store.load(owner, task, now=now)
        if self._hold is not None:
            if await self._hold.healed(task, record):
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
        written(ended.revision)
        if not await self._store.swap(ended, expected=record.revision):
            return None
        if self._hold is not None:
            self._hold.wrote(ended)
        report(self._event_sink, record, event, ended)
        self._event_sink.emit(_finished(ended, event))
        return True


def _may_end(hold: Hold, record: TaskRecord, event: TaskEvent) -> bool:
    return record.status.is_terminal or isinstance(event, CancelRequested) or hold.holds(record)


def _finished(record: TaskRecord, event: TaskEvent) -> TaskFinished:
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
