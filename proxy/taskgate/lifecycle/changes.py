"""Changes of a record that somebody else may be changing at the same moment: read, advance, swap, and again.

What must not live here: what an event means (`domain/machine`), what is told of it (`reports`), and ends of tasks,
which have to be written however long that takes (`completions`).
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from taskgate.admission.suspicions import Suspicions
from taskgate.clock import Clock
from taskgate.domain.events import TaskEvent
from taskgate.domain.machine import advance
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord
from taskgate.errors import IllegalTransition, StoreUnavailable
from taskgate.lifecycle.reports import report
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.stores.base import TaskStore
from taskgate.telemetry.events import EventSink

RETRY_FIRST: Final = 0.1
RETRY_MOST: Final = 5.0
"""Seconds between tries while the store does not take it."""

Choose = Callable[[TaskRecord], TaskEvent | None]
"""From a record as it is now to what shall happen to it; None for nothing."""


class Hold(Protocol):
    """What a process holds in a store that others share: as who runs a task it writes only what is its own."""

    def holds(self, record: TaskRecord) -> bool:
        """Whether the lease of an unfinished record is this process's, and was not lost meanwhile."""
        ...

    def wrote(self, record: TaskRecord) -> None:
        """A record is stored as it is here; a head does, unless it has just ended with an outcome."""
        ...

    def overslept(self, since: float) -> bool:
        """Whether so much time has passed that a lease which was good then may be another's."""
        ...

    async def healed(self, task: TaskId, found: TaskRecord | None) -> bool:
        """Put a task that runs here back where the store, which has `found`, forgot it; whether to look again.

        Raises StoreUnavailable.
        """
        ...


class Changes:
    """Makes events happen to stored records."""

    def __init__(self, *, store: TaskStore, event_sink: EventSink, clock: Clock, hold: Hold | None = None) -> None:
        self._store = store
        self._event_sink = event_sink
        self._clock = clock
        self._hold = hold
        self._suspicions = Suspicions(event_sink, clock)
        self.retrievals = Retrievals(store=store, event_sink=event_sink, clock=clock)
        """The one change that nobody waits for."""

    def of_runs(self, hold: Hold) -> "Changes":
        """The same, for those that run the tasks: what another process holds, or took over, is not changed."""
        changes = Changes(store=self._store, event_sink=self._event_sink, clock=self._clock, hold=hold)
        changes._suspicions, changes.retrievals = self._suspicions, self.retrievals
        return changes

    async def make(self, owner: OwnerKey, task: TaskId, choose: Choose) -> TaskRecord | None:
        """The record after what `choose` wants; None where that cannot be, because of its state or for want of it.

        Raises StoreUnavailable: it may have happened then.
        """
        while True:
            now = self._clock.now()
            record = await self._store.load(owner, task, now=now)
            if self._hold is not None:
                if await self._hold.healed(task, record):
                    continue
                if record is not None and not self._hold.holds(record):
                    return None
            event = None if record is None else choose(record)
            if record is None or event is None:
                return None
            try:
                changed = advance(record, event, now)
            except IllegalTransition:
                return None
            if await self._store.swap(changed, expected=record.revision):
                if self._hold is not None:
                    self._hold.wrote(changed)
                report(self._event_sink, record, event, changed)
                return changed

    async def insist(self, owner: OwnerKey, task: TaskId, choose: Choose) -> TaskRecord | None:
        """As `make`, but again and again while the store is not available; `choose` must bear what has happened."""
        pause = RETRY_FIRST
        while True:
            try:
                return await self.make(owner, task, choose)
            except StoreUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_MOST)

    def unasked(self, owner: OwnerKey) -> None:
        """Somebody answered what a task of theirs was never asked: that is told of, and nothing else comes of it."""
        self._suspicions.raise_once("input_key_unknown", owner.context, owner.mount)
