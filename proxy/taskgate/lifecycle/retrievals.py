"""The record of which results were fetched: `Retrievals`.

Each time that an owner gets the result of a task, an event is emitted; the first time, the record
is marked too. The mark is written in the background: no host waits for it or fails with it. All
that deliver results call `note`: `following`, `task_requests`, `subscriptions`.
"""

from functools import partial
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.events import ResultRetrieved
from taskgate.domain.machine import advance
from taskgate.domain.record import TaskId, TaskRecord, evolve
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.unfetched import Unfetched
from taskgate.stores.base import TaskStore
from taskgate.system.background import Background
from taskgate.telemetry.events import EventSink, TaskRetrieved
from taskgate.telemetry.request_context import no_request

AT_ONCE: Final = 1024
"""The limit of marks written at once. A result beyond it is marked when it is fetched again."""

REMEMBERED: Final = 4096
"""The limit of tasks remembered as reported before their record is marked; the oldest is dropped."""


class Retrievals:
    """The marks of fetched results, for all tasks.

    `_reported` are the tasks whose first fetch was reported, until the mark in the record says it too.
    `_writing` is the number of marks being written.
    """

    def __init__(self, *, store: TaskStore, event_sink: EventSink, clock: Clock) -> None:
        self._store = store
        self._event_sink = event_sink
        self._clock = clock
        self._reported: dict[TaskId, None] = {}
        self._writing = 0
        self.background = Background()
        """The writes under way."""
        self.unfetched = Unfetched(clock)

    def note(self, record: TaskRecord) -> None:
        """Handle that an owner got the result of a task.

        `record` is whole; without a result nothing happens. If the store fails, the mark is missing
        until the result is fetched again.
        """
        if record.outcome is None:
            return
        self.unfetched.given(record.id)
        if record.retrieved:
            self._event_sink.emit(TaskRetrieved(record, None))
            return
        now, is_first = self._clock.now(), record.id not in self._reported
        self._event_sink.emit(
            TaskRetrieved(record, max(now, record.updated_at) - record.updated_at if is_first else None)
        )
        if is_first:
            self._remember(record.id)
        if self._writing < AT_ONCE:
            self._writing += 1
            # Without the result, which is in the store already.
            marked = advance(evolve(record, outcome=None), ResultRetrieved(), now)
            with no_request():
                self.background.run(partial(self._write_mark, marked, record.revision))

    async def _write_mark(self, marked: TaskRecord, expected: int) -> None:
        try:
            # If the swap fails, a quicker process has written the same.
            await self._store.swap(marked, expected=expected)
        except StoreUnavailable:
            pass
        finally:
            self._writing -= 1

    def _remember(self, task: TaskId) -> None:
        if len(self._reported) >= REMEMBERED:
            del self._reported[next(iter(self._reported))]
        self._reported[task] = None
