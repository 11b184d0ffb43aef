"""The takeover of tasks whose process is gone: `Takeovers` decides which calls run here, and ends
the other tasks.

The sweeper finds tasks whose lease has lapsed, and `Runner` asks `taken` for each. A call that was
never sent, or may be sent again, runs; a call with a checkpoint is resumed; any other task ends as
lost. If replicas share the store, the takeover is written first. After that every write of the
earlier process is refused.
"""

from typing import Final

from taskgate.clock import Clock
from taskgate.domain.events import TakenOver
from taskgate.domain.listing import NEWEST_FIRST, TaskFilter, TaskState
from taskgate.domain.machine import advance
from taskgate.domain.record import FaultReason, TaskRecord, TaskStatus, evolve
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.changes import Hold
from taskgate.lifecycle.checkpoints import UNSEALED, CallCheckpoint, CheckpointSeals
from taskgate.lifecycle.completions import Completions
from taskgate.lifecycle.task_runs import TaskRun
from taskgate.protocol.faults import call_ended
from taskgate.stores.base import TaskStore
from taskgate.telemetry.events import EventSink, TaskRecovered

OUTCOME_UNKNOWN: Final = "The gateway stopped while the call was running; it may or may not have completed"
_UNFINISHED: Final = frozenset(TaskState(status) for status in TaskStatus if not status.is_terminal)
MAX_LOOKED_AT: Final = 50
"""Tasks of one owner that are searched. With more at once, sessions stay open at the server until
it ends them."""
NEVER_SENT: Final = "The gateway stopped before the call was sent, and its server is no longer configured"


class Takeovers:
    """The takeovers of one process. Without a `hold`, no other process can have its tasks."""

    def __init__(
        self,
        *,
        store: TaskStore,
        completions: Completions,
        event_sink: EventSink,
        clock: Clock,
        hold: Hold | None = None,
        checkpoints: CheckpointSeals = UNSEALED,
    ) -> None:
        self._store = store
        self._completions = completions
        self._event_sink = event_sink
        self._clock = clock
        self._hold = hold
        self._checkpoints = checkpoints

    async def taken(self, record: TaskRecord, *, is_served: bool) -> TaskRecord | None:
        """Return the record of a task whose call is to be sent or resumed.

        Returns None if the task was ended, or another process has it. `record` is lapsed;
        `is_served` is whether its server is configured. Raises StoreUnavailable: then the task
        lapses again.
        """
        found: TaskRecord | None = record
        while found is not None and is_served and (found.is_dispatchable or self._checkpoints.open(found) is not None):
            if self._hold is None and found.checkpoint is None:
                return found
            taken = advance(found, TakenOver(), self._clock.now())
            if await self._store.swap(taken, expected=found.revision):
                return taken
            found = await self._again(found)
        if found is not None:
            await self._end(found)
        return None

    async def was_taken(self, run: TaskRun) -> bool:
        """Return whether another process has, or had, a task that was cancelled here; False if
        unknown.
        """
        if self._hold is None:
            return False
        try:
            found = await self._store.load(run.owner, run.id, now=self._clock.now())
        except StoreUnavailable:
            return False
        if found is None or not found.status.is_terminal:
            return found is not None and not self._hold.holds(found)
        # A host can cancel a task, but only a process can fail it.
        return found.status is TaskStatus.FAILED and found.revision != run.revision

    async def is_last_in(self, record: TaskRecord, session: str | None) -> bool:
        """Return whether no other task of the owner has a call in that session; False if unknown."""
        now, unfinished = self._clock.now(), TaskFilter(states=_UNFINISHED)
        try:
            page = await self._store.page(
                record.owner, where=unfinished, order=NEWEST_FIRST, after=None, limit=MAX_LOOKED_AT, now=now
            )
            heads = [
                await self._store.load(record.owner, each.id, now=now) for each in page.tasks if each.id != record.id
            ]
        except StoreUnavailable:
            return False
        kept = [None if head is None else self._checkpoints.open(head) for head in heads]
        there = [each.resume_point.session for each in kept if isinstance(each, CallCheckpoint)]
        return page.next is None and session not in there

    async def _again(self, record: TaskRecord) -> TaskRecord | None:
        """Read a record that was changed meanwhile; return None if it need not be taken over any
        more.
        """
        found = await self._store.load(record.owner, record.id, now=self._clock.now(), bodies=True)
        if found is None or found.status.is_terminal or (self._hold is not None and not self._hold.holds(found)):
            return None
        # Without other processes the record may be older than the lease that it was found with.
        return found if self._hold is not None else evolve(found, lease=record.lease)

    async def _end(self, record: TaskRecord) -> None:
        text = OUTCOME_UNKNOWN if record.dispatched else NEVER_SENT
        lost = call_ended(FaultReason.CALL_LOST, text, dispatched=record.dispatched)
        await self._completions.settle(record.owner, record.id, lost)
        self._event_sink.emit(TaskRecovered(record, "failed"))
