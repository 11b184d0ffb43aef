"""The changes of stored task records: `Changes`, by compare-and-swap.

Several processes may change a record at the same time. `make` loads it, asks a function for an
event, and applies the event (`domain.machine`). Then it swaps the record if its revision is
unchanged; else it starts again. Most modules of this folder change records with it. Final states
are written by `Completions`.

There are two variants. The one for hosts' requests changes any record. The one for running calls
(`of_runs`) has a `hold`, and changes only records whose lease this process has.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from taskgate.admission.security_alerts import SecurityAlerts
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
"""Seconds between attempts while the store fails, from the first to the longest pause."""

Choose = Callable[[TaskRecord], TaskEvent | None]
"""Returns the event that shall happen to the record; None for no change.

It is called again with the newer record each time that a swap fails."""


class Hold(Protocol):
    """The leases of this process in a store that replicas share. `Leasing` implements it.

    The gateway has no `Hold` if it is the only process of its store.
    """

    def holds(self, record: TaskRecord) -> bool:
        """Return whether this process has the lease of an unfinished record.

        False if the record names it as the holder, but a heartbeat found that it has lost the task.
        """
        ...

    def wrote(self, record: TaskRecord) -> None:
        """Update the copy from which the record is restored if the store loses it.

        Called with each record that was stored. It may be a head, unless it has just ended with a
        result.
        """
        ...

    def overslept(self, since: float) -> bool:
        """Return whether a whole lease has passed since then, so that another process may have it."""
        ...

    async def healed(self, task: TaskId, found: TaskRecord | None) -> bool:
        """Restore a task of this process that the store, which has `found`, has lost.

        Called after each load. Returns True if it was restored, so that the caller must load it
        again. Raises StoreUnavailable.
        """
        ...


class Changes:
    """The changes of stored records. With a `hold`, only records whose lease this process has."""

    def __init__(self, *, store: TaskStore, event_sink: EventSink, clock: Clock, hold: Hold | None = None) -> None:
        self._store = store
        self._event_sink = event_sink
        self._clock = clock
        self._hold = hold
        self._suspicions = SecurityAlerts(event_sink, clock)
        self.retrievals = Retrievals(store=store, event_sink=event_sink, clock=clock)
        """Marks fetched results in the background."""

    def of_runs(self, hold: Hold) -> "Changes":
        """Return the variant for running calls, which does not change tasks of other processes."""
        changes = Changes(store=self._store, event_sink=self._event_sink, clock=self._clock, hold=hold)
        changes._suspicions, changes.retrievals = self._suspicions, self.retrievals
        return changes

    async def make(self, owner: OwnerKey, task: TaskId, choose: Choose) -> TaskRecord | None:
        """Apply the event that `choose` returns, and return the changed record.

        Returns None if nothing was changed. Then there is no record or no event, the record's state
        does not allow it, or another process has the task. Raises StoreUnavailable: the change may
        have happened then.
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
        """Do the same as `make`, and retry while the store is unavailable.

        `choose` must accept that an earlier attempt has succeeded.
        """
        pause = RETRY_FIRST
        while True:
            try:
                return await self.make(owner, task, choose)
            except StoreUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_MOST)

    def unasked(self, owner: OwnerKey) -> None:
        """Report an answer to a question that was never asked, as a security event."""
        self._suspicions.raise_once("input_key_unknown", owner.context, owner.mount)
