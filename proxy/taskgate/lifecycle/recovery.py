"""The recovery of tasks whose process is gone, and of tasks that a store lost: `Takeovers` and
`RecordCopies`.

The sweeper finds tasks whose lease has lapsed; the store has given their leases to this process.
`Runner` passes each to `Takeovers.taken`, which decides which calls run here, and ends the other
tasks. A call that was never sent, or may be sent again, runs here. A call with a checkpoint is
resumed here. Any other task ends as lost. If replicas share the store, the earlier process may
still be alive and slow. So the takeover is first written as a new revision. After that every write
of the earlier process fails.

A shared store may lose data itself, for example after a failover. So a replica has a copy of the
whole record of each task that it runs (`RecordCopies`), and restores from it what the store lost.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from logging import getLogger
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.events import TakenOver
from taskgate.domain.listing import NEWEST_FIRST, TaskFilter, TaskState
from taskgate.domain.record import FaultReason, Lease, OwnerKey, TaskId, TaskRecord, TaskStatus, evolve
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.checkpoints import UNSEALED, CallCheckpoint, CheckpointSeals
from taskgate.lifecycle.transitions import Hold, Transitions
from taskgate.protocol.faults import call_ended
from taskgate.stores.base import TaskStore
from taskgate.stores.capacity import stored_size
from taskgate.stores.shared import LeaseStore
from taskgate.telemetry.events import EventSink, TaskRecovered

OUTCOME_UNKNOWN: Final = "The gateway stopped while the call was running; it may or may not have completed"
_UNFINISHED: Final = frozenset(TaskState(status) for status in TaskStatus if not status.is_terminal)
MAX_LOOKED_AT: Final = 50
"""The limit of tasks of one owner that `is_last_in` reads. With more at once the answer is unknown,
and the session stays open until the server itself ends it."""
NEVER_SENT: Final = "The gateway stopped before the call was sent, and its server is no longer configured"
MAX_ENDED: Final = 16 * 1024 * 1024
"""Bytes of the copies of ended tasks. A copy beyond that is dropped."""

log = getLogger("taskgate.leases")


class Takeovers:
    """The takeovers of one process.

    `hold` are the leases of this process, given if replicas share the store. Without it this
    process is alone, and takes over the tasks of the process before it.
    """

    def __init__(
        self,
        *,
        store: TaskStore,
        transitions: Transitions,
        event_sink: EventSink,
        clock: Clock,
        hold: Hold | None = None,
        checkpoints: CheckpointSeals = UNSEALED,
    ) -> None:
        self._store = store
        self._transitions = transitions
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
            taken = await self._transitions.apply(found, TakenOver(), self._clock.now())
            if taken is not None:
                return taken
            found = await self.read(found.owner, found.id, found.lease)
        if found is not None:
            await self._end(found)
        return None

    async def was_taken(self, owner: OwnerKey, task: TaskId, revision: int) -> bool:
        """Return whether another process has, or had, a task whose run ended here without a write.

        `revision` is that of the run's own last write. Returns False if that is unknown.
        """
        if self._hold is None:
            return False
        try:
            found = await self._store.load(owner, task, now=self._clock.now())
        except StoreUnavailable:
            return False
        if found is None or not found.status.is_terminal:
            return found is not None and not self._hold.holds(found)
        # Hosts cannot fail a task. So a failure that this run did not write is of another process,
        # which had taken the task over.
        return found.status is TaskStatus.FAILED and found.revision != revision

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

    async def read(self, owner: OwnerKey, task: TaskId, lease: Lease | None) -> TaskRecord | None:
        """Read the record of a task of this process, with its bodies. May raise StoreUnavailable.

        None if the task has ended or another process has it. `lease` is that of this process.
        """
        found = await self._store.load(owner, task, now=self._clock.now(), bodies=True)
        if found is None or found.status.is_terminal or (self._hold is not None and not self._hold.holds(found)):
            return None
        # Alone, a host's request may have loaded the record before it got its new lease, and have
        # written the old lease back. This process has the task all the same.
        return found if self._hold is not None else evolve(found, lease=lease)

    async def _end(self, record: TaskRecord) -> None:
        """End a task as lost, or as never sent."""
        text = OUTCOME_UNKNOWN if record.dispatched else NEVER_SENT
        lost = call_ended(FaultReason.CALL_LOST, text, dispatched=record.dispatched)
        await self._transitions.settle(record.owner, record.id, lost)
        self._event_sink.emit(TaskRecovered(record, "failed"))


class RecordCopies:
    """The copies of the records that the process `holder` runs, and of tasks that have just ended.

    `Leasing` owns the object. A copy begins with the run (`begin`) and follows each write (`put`).
    It is dropped at the end of the run (`end`). If the task has ended, it stays until the store
    still has the final state after `patience` seconds (`found`).

    The reply to a heartbeat says that the store is *behind* with some tasks: they are missing, or
    have an older revision. Then `forgotten` says which of them are to be restored, and which the store
    refused at the last attempt. `restore` writes a copy back.

    For one event loop, except `revisions`, which any thread may call. Times are those of the
    monotonic clock. `_ended` has the time at which a final state was stored, by task. `_refused`
    are the tasks that were not restored since the last heartbeat's reply.
    """

    def __init__(self, leases: LeaseStore, *, holder: str, length: timedelta, patience: float, clock: Clock) -> None:
        self._leases = leases
        self._holder = holder
        self._length = length
        self._patience = patience
        self._clock = clock
        self._records: dict[TaskId, TaskRecord] = {}
        self._revisions: dict[TaskId, int] = {}
        self._ended: dict[TaskId, float] = {}
        self._bytes = 0
        self._refused: set[TaskId] = set()

    def revisions(self) -> dict[TaskId, int]:
        """Return the newest known revision of each task."""
        # Atomic in the interpreter: no other thread changes it meanwhile.
        return self._revisions.copy()

    def revision(self, task: TaskId) -> int | None:
        """Return the newest known revision of one task; None without a copy."""
        return self._revisions.get(task)

    def records(self) -> Iterable[TaskRecord]:
        """Return the copies."""
        return self._records.values()

    def begin(self, record: TaskRecord) -> None:
        """Add the whole record of a task."""
        self.end(record.id, forget=True)
        self._set(record)

    def put(self, record: TaskRecord) -> None:
        """Update a copy with a record, or its head, that was stored just now.

        Ignored without a copy, and for a revision that is not newer.
        """
        known = self._records.get(record.id)
        if known is None or known.revision >= record.revision or known.status.is_terminal:
            return
        whole = evolve(record, call=known.call)
        self._set(whole)
        if whole.status.is_terminal:
            # Of the copy, as `end` subtracts it: a head has no parameters of the call.
            size = _size(whole)
            if self._bytes + size > MAX_ENDED:
                self.end(record.id, forget=True)
            else:
                self._bytes += size
                self._ended[record.id] = self._clock.elapsed()

    def end(self, task: TaskId, *, forget: bool = False) -> None:
        """Drop the copy of a task, because its run has ended.

        The copy of an ended task stays until `found` drops it. With `forget` any copy is dropped
        now: another process has the task, or the store needs no copy.
        """
        if forget or task not in self._ended:
            record = self._records.pop(task, None)
            self._revisions.pop(task, None)
            if self._ended.pop(task, None) is not None and record is not None:
                self._bytes -= _size(record)

    def found(self, revisions: Mapping[TaskId, int], *, asked: float) -> None:
        """Handle that a heartbeat, sent at the time `asked`, found these revisions in the store.

        The store may have newer ones.
        """
        for task, revision in revisions.items():
            # A heartbeat with an older revision says nothing about the final state.
            since = self._ended.get(task) if revision == self._revisions.get(task) else None
            # By time, not by number of heartbeats: a store's failover may take a while to lose the
            # record.
            if since is not None and asked - since >= self._patience:
                self.end(task, forget=True)

    def _set(self, record: TaskRecord) -> None:
        self._records[record.id] = record
        self._revisions[record.id] = record.revision

    # --- restoration --------------------------------------------------------------------------------------------------

    def forgotten(self, behind: Iterable[TaskId]) -> tuple[set[TaskId], set[TaskId]]:
        """Return those of `behind` that are to be restored, and those that the store refused.

        Only a task with a copy that has not expired is restored; the copies of the others are
        dropped. A store refuses a record that another process has, so the caller gives the refused
        ones up.
        """
        now, forgotten = self._clock.now(), set()
        for task in behind:
            record = self._records.get(task)
            if record is not None and record.expires_at > now:
                forgotten.add(task)
            else:
                self.end(task, forget=True)
        refused = self._refused & forgotten
        self._refused.clear()
        if refused:
            log.warning(
                "lost tasks were not restored to the store: other replicas have them", extra={"tasks": len(refused)}
            )
        return forgotten - refused, refused

    async def restore_all(self, tasks: Iterable[TaskId]) -> None:
        """Restore tasks. If the store fails meanwhile, the next reply names the rest again."""
        count = 0
        with suppress(StoreUnavailable):
            for task in tasks:
                if await self.restore(task):
                    count += 1
                else:
                    self._refused.add(task)
        if count:
            log.warning("the store had lost tasks; they were restored", extra={"tasks": count})

    async def restore(self, task: TaskId) -> bool:
        """Restore one task, and return whether the store accepted it. Raises StoreUnavailable.

        An unfinished one gets a new lease.
        """
        now, record = self._clock.now(), self._records.get(task)
        if record is None or record.expires_at <= now:
            return False
        if not record.status.is_terminal:
            record = evolve(record, lease=Lease(holder=self._holder, until=now + self._length))
        if not await self._leases.restore(record):
            return False
        if task in self._ended:
            self._ended[task] = self._clock.elapsed()
        return True


def _size(record: TaskRecord) -> int:
    return stored_size(record.call.params, record.outcome)
