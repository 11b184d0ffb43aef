"""The takeover of tasks whose process is gone: `Takeovers` decides which calls run here, and ends
the other tasks.

The sweeper finds tasks whose lease has lapsed; the store has given their leases to this process.
`Runner` passes each to `taken`. A call that was never sent, or may be sent again, runs here. A call
with a checkpoint is resumed here. Any other task ends as lost.

If replicas share the store, the earlier process may still be alive and slow. So the takeover is
first written as a new revision. After that every write of the earlier process fails.
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
"""The limit of tasks of one owner that `is_last_in` reads. With more at once the answer is unknown,
and the session stays open until the server itself ends it."""
NEVER_SENT: Final = "The gateway stopped before the call was sent, and its server is no longer configured"


class Takeovers:
    """The takeovers of one process.

    `hold` are the leases of this process, given if replicas share the store. Without it this
    process is alone, and takes over the tasks of the process before it.
    """

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
        """Take a task over, and return its record if the caller must send or resume the call.

        Returns None if nothing is left to do: the task was or is now ended, or another process has
        it. `record` is what the store returned for a lapsed lease. `is_served` is whether its
        server is configured. May raise StoreUnavailable. With replicas the lease then lapses, and
        the sweeper finds the task again.
        """
        found: TaskRecord | None = record
        while found is not None and is_served and (found.is_dispatchable or self._checkpoints.open(found) is not None):
            if self._hold is None and found.checkpoint is None:
                # No other process can write, and the dispatch of the call removes old questions.
                return found
            # With a checkpoint the questions stay: TakenOver removes the claims of lost streams.
            taken = advance(found, TakenOver(), self._clock.now())
            if await self._store.swap(taken, expected=found.revision):
                return taken
            found = await self._again(found)
        if found is not None:
            await self._end(found)
        return None

    async def was_taken(self, run: TaskRun) -> bool:
        """Return whether another process has, or had, a task whose run ended here without a write.

        Returns False if that is unknown.
        """
        if self._hold is None:
            return False
        try:
            found = await self._store.load(run.owner, run.id, now=self._clock.now())
        except StoreUnavailable:
            return False
        if found is None or not found.status.is_terminal:
            return found is not None and not self._hold.holds(found)
        # Hosts cannot fail a task. So a failure that this run did not write is of another process,
        # which had taken the task over.
        return found.status is TaskStatus.FAILED and found.revision != run.revision

    async def is_last_in(self, record: TaskRecord, session: str | None) -> bool:
        """Return whether no other task of the owner has a call in that upstream session.

        Asked when a resumed call is over: only then may its session be ended at the server. Returns
        False if that is unknown.
        """
        now, unfinished = self._clock.now(), TaskFilter(states=_UNFINISHED)
        try:
            page = await self._store.page(
                record.owner, where=unfinished, order=NEWEST_FIRST, after=None, limit=MAX_LOOKED_AT, now=now
            )
            # A page has no checkpoints, so the records are loaded.
            heads = [
                await self._store.load(record.owner, each.id, now=now) for each in page.tasks if each.id != record.id
            ]
        except StoreUnavailable:
            return False
        checkpoints = [None if head is None else self._checkpoints.open(head) for head in heads]
        in_use = [each.resume_point.session for each in checkpoints if isinstance(each, CallCheckpoint)]
        return page.next is None and session not in in_use

    async def _again(self, record: TaskRecord) -> TaskRecord | None:
        """Read a record again that was changed meanwhile; None if it need not be taken over now."""
        found = await self._store.load(record.owner, record.id, now=self._clock.now(), bodies=True)
        if found is None or found.status.is_terminal or (self._hold is not None and not self._hold.holds(found)):
            return None
        # Alone, a host's request may have loaded the record before it got its new lease, and have
        # written the old lease back. This process has the task all the same.
        return found if self._hold is not None else evolve(found, lease=record.lease)

    async def _end(self, record: TaskRecord) -> None:
        """End a task as lost, or as never sent."""
        text = OUTCOME_UNKNOWN if record.dispatched else NEVER_SENT
        lost = call_ended(FaultReason.CALL_LOST, text, dispatched=record.dispatched)
        await self._completions.settle(record.owner, record.id, lost)
        self._event_sink.emit(TaskRecovered(record, "failed"))
