"""Outcomes that were given to the owners of their tasks: told each time, and kept with the record the first time.

What must not live here: how an outcome is asked for (`following`, `task_requests`, `subscriptions`). What holds: nobody
who is given one waits for its record, nor fails with it.
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
"""Records that are written at once; one too many is written when its outcome is asked for again."""

REMEMBERED: Final = 4096
"""Tasks that are known to have been told of, should their record not say so yet; the oldest is forgotten first."""


class Retrievals:
    """Keeps account of them, for all tasks."""

    def __init__(self, *, store: TaskStore, event_sink: EventSink, clock: Clock) -> None:
        self._store = store
        self._event_sink = event_sink
        self._clock = clock
        self._told: dict[TaskId, None] = {}
        self._writing = 0
        self.background = Background()
        """What is still being written."""
        self.unfetched = Unfetched(clock)

    def note(self, record: TaskRecord) -> None:
        """The owner of a task was given what it came to, if it came to anything: `record` is whole.

        Where the store does not take it, that is lost, until the outcome is given again.
        """
        if record.outcome is None:
            return
        self.unfetched.given(record.id)
        if record.retrieved:
            self._event_sink.emit(TaskRetrieved(record, None))
            return
        now, is_first = self._clock.now(), record.id not in self._told
        self._event_sink.emit(
            TaskRetrieved(record, max(now, record.updated_at) - record.updated_at if is_first else None)
        )
        if is_first:
            self._remember(record.id)
        if self._writing < AT_ONCE:
            self._writing += 1
            # Its outcome is in the store already, and is not written again.
            marked = advance(evolve(record, outcome=None), ResultRetrieved(), now)
            with no_request():
                self.background.run(partial(self._keep, marked, record.revision))

    async def _keep(self, marked: TaskRecord, expected: int) -> None:
        try:
            # Whoever was quicker has written the same.
            await self._store.swap(marked, expected=expected)
        except StoreUnavailable:
            pass
        finally:
            self._writing -= 1

    def _remember(self, task: TaskId) -> None:
        if len(self._told) >= REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told[task] = None
