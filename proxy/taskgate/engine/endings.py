"""How the end of a task is written: once, however long the store takes to accept it.

What must not live here: calls (`runner`), what an event means (`tasks/machine`).
"""

import asyncio
from collections.abc import Callable

from taskgate.clock import Clock
from taskgate.engine.changes import RETRY_FIRST, RETRY_MOST
from taskgate.engine.reports import report
from taskgate.errors import IllegalTransition, StoreUnavailable
from taskgate.stores.base import TaskStore
from taskgate.tasks.events import CallFaulted, CallSucceeded, CancelRequested, TaskEvent
from taskgate.tasks.machine import advance
from taskgate.tasks.record import OwnerKey, Succeeded, TaskId, TaskRecord
from taskgate.telemetry.audit import Audit, LateAnswerDropped, TaskFinished

Written = Callable[[int], None]
"""Told the revision that is about to be written."""


class Endings:
    """Writes the ends of tasks."""

    def __init__(self, *, store: TaskStore, audit: Audit, clock: Clock) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock

    async def settle(
        self, owner: OwnerKey, task: TaskId, event: TaskEvent, *, written: Written = lambda _: None
    ) -> None:
        """Write the end of a task; one that ended before stays as it ended."""
        pause = RETRY_FIRST
        while True:
            try:
                if await self._try(owner, task, event, written):
                    return
            except StoreUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_MOST)

    async def _try(self, owner: OwnerKey, task: TaskId, event: TaskEvent, written: Written) -> bool:
        now = self._clock.now()
        record = await self._store.load(owner, task, now=now)
        if record is None:
            # Expired: the sweeper reports it when it removes the record.
            return True
        try:
            ended = advance(record, event, now)
        except IllegalTransition:
            self._audit.record(LateAnswerDropped(owner.mount))
            return True
        written(ended.revision)
        if not await self._store.swap(ended, expected=record.revision):
            return False
        report(self._audit, record, event, ended)
        self._audit.record(_finished(ended, event))
        return True


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
