"""Tasks of processes that are gone: which of them this one is to run, and how the others end (decisions 2, 3).

What must not live here: finding them (`sweeper`), and their calls (`runner`). What holds, where several processes share
the store: who takes a task over writes that first, so that whatever its earlier holder still writes of it is refused.
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
"""Tasks of one owner: whoever has more at once keeps their server's sessions until it forgets them by itself."""
NEVER_SENT: Final = "The gateway stopped before the call was sent, and its server is no longer configured"


class Takeovers:
    """Takes tasks over; without a `hold` nobody else can have them."""

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
        """The record of a task whose call is to be sent, or to go on; None where it was ended, or is another's by now.

        The record is one that a store gave as lapsed; `is_served` is whether there is a server for its call. Raises
        StoreUnavailable: then it lapses again.
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
        """Whether another process has, or had, what was given up or dropped here; False where that cannot be seen."""
        if self._hold is None:
            return False
        try:
            found = await self._store.load(run.owner, run.id, now=self._clock.now())
        except StoreUnavailable:
            return False
        if found is None or not found.status.is_terminal:
            return found is not None and not self._hold.holds(found)
        # Its host can cancel it, but not have it fail.
        return found.status is TaskStatus.FAILED and found.revision != run.revision

    async def is_last_in(self, record: TaskRecord, session: str | None) -> bool:
        """Whether no other task of its owner has a call in that session at their server; False where nobody knows."""
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
        """What became of a record that somebody changed meanwhile; None where it is no more to be taken over."""
        found = await self._store.load(record.owner, record.id, now=self._clock.now(), bodies=True)
        if found is None or found.status.is_terminal or (self._hold is not None and not self._hold.holds(found)):
            return None
        # Where nobody else can have it, what is read may be older than the lease that it was given with.
        return found if self._hold is not None else evolve(found, lease=record.lease)

    async def _end(self, record: TaskRecord) -> None:
        text = OUTCOME_UNKNOWN if record.dispatched else NEVER_SENT
        lost = call_ended(FaultReason.CALL_LOST, text, dispatched=record.dispatched)
        await self._completions.settle(record.owner, record.id, lost)
        self._event_sink.emit(TaskRecovered(record, "failed"))
