"""The record of which results were fetched: `Retrievals`, and `Unfetched` for a drain.

Each time that an owner gets the result of a task, an event is emitted; the first time, the record
is marked too. The mark is written in the background: no host waits for it or fails with it. All
that deliver results call `note`: `result_wait`, `task_requests`, `subscriptions`.

When the gateway drains, tasks that end still have a result to fetch. The shutdown calls
`Unfetched.begin`, and later waits in `fetched` until each result was fetched, or its host had the time
for that. `Runner` calls `ended`, `Retrievals` calls `given`. Before `begin` both do nothing.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.events import ResultRetrieved
from taskgate.domain.record import TaskId, TaskRecord, evolve
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.transitions import Transitions
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

    def __init__(self, *, transitions: Transitions, event_sink: EventSink, clock: Clock) -> None:
        self._transitions = transitions
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
            unmarked = evolve(record, outcome=None)
            with no_request():
                self.background.run(partial(self._write_mark, unmarked, now))

    def was_reported(self, task: TaskId) -> bool:
        """Whether this process knows that a result was fetched, which its record may not say yet."""
        return task in self._reported

    async def _write_mark(self, unmarked: TaskRecord, now: datetime) -> None:
        try:
            # If the record has changed, a quicker process has written the same.
            await self._transitions.apply(unmarked, ResultRetrieved(), now)
        except StoreUnavailable:
            pass
        finally:
            self._writing -= 1

    def _remember(self, task: TaskId) -> None:
        if len(self._reported) >= REMEMBERED:
            del self._reported[next(iter(self._reported))]
        self._reported[task] = None


POLLS: Final = 2
"""The number of poll intervals that a host gets: one may have begun just before the end."""


class Unfetched:
    """The tasks that ended here since `begin` and were not fetched."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._interval: Callable[[TaskId], timedelta] | None = None
        self.has_begun = False
        """Whether `begin` was called. Until then there is nothing to note."""
        self.count = 0
        """The number of tasks whose calls are over here since `begin`, with those that were fetched."""
        self._until: dict[TaskId, float] = {}
        self._fetched: set[TaskId] = set()
        self._change = asyncio.Event()

    def begin(self, interval: Callable[[TaskId], timedelta]) -> None:
        """Start to remember tasks; `interval` is the poll interval that a task's host was told."""
        self._interval, self.has_begun = interval, True

    def ended(self, task: TaskId) -> None:
        """Handle that the call of a task is over here."""
        self.count += 1
        if self._interval is not None and task not in self._fetched:
            self._until[task] = self._clock.elapsed() + POLLS * self._interval(task).total_seconds()

    def given(self, task: TaskId) -> None:
        """Handle that the owner of a task got its result, possibly before the call is over here."""
        if self._interval is not None:
            self._fetched.add(task)
            if self._until.pop(task, None) is not None:
                self._change.set()

    async def fetched(self) -> None:
        """Wait until each result was fetched, or its host had the time for that."""
        while self._until:
            now = self._clock.elapsed()
            self._until = {task: until for task, until in self._until.items() if until > now}
            if self._until:
                self._change.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(self._until.values()) - now):
                        await self._change.wait()
