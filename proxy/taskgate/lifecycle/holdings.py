"""The copies of this process's task records: `Holdings`. From them lost tasks are restored.

A shared store may lose data, for example after a failover. So a replica has a copy of the whole
record of each task that it runs. It also has the copy of a task that has just ended, until that
state is sure to stay stored.

`Leasing` owns the object. A copy begins with the run (`begin`) and follows each write (`put`). It is
dropped at the end of the run (`end`). If the task has ended, it stays until the store still has the
final state after a while (`found`). `Restoring` writes copies back.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from taskgate.domain.record import Lease, TaskId, TaskRecord, evolve
from taskgate.stores.capacity import stored_size

BEATS: Final = 2
"""The number of heartbeats for which a final state must have been stored before its copy is
dropped."""
MAX_ENDED: Final = 16 * 1024 * 1024
"""Bytes of the copies of ended tasks. A copy beyond that is dropped."""


class Holdings:
    """The copies of one process. It belongs to one event loop, except `revisions`, which any thread
    may call.

    The copy of an ended task is dropped when a heartbeat finds it in the store `patience` seconds
    or more after it was stored there. `_ended` has the time of that, by task. Times are those of the
    monotonic clock.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._records: dict[TaskId, TaskRecord] = {}
        self._revisions: dict[TaskId, int] = {}
        self._ended: dict[TaskId, float] = {}
        self._bytes = 0

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

    def whole(self, task: TaskId, lease: Lease) -> TaskRecord | None:
        """Return the copy of a task for restoration, with that lease if it is unfinished."""
        record = self._records.get(task)
        return record if record is None or record.status.is_terminal else evolve(record, lease=lease)

    def begin(self, record: TaskRecord) -> None:
        """Add the whole record of a task."""
        self.end(record.id, forget=True)
        self._set(record)

    def put(self, record: TaskRecord, *, at: float) -> None:
        """Update a copy with a record, or its head, that was stored at the time `at`.

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
                self._ended[record.id] = at

    def put_back(self, task: TaskId, *, at: float) -> None:
        """Handle that a copy was restored to the store at the time `at`."""
        if task in self._ended:
            self._ended[task] = at

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


def _size(record: TaskRecord) -> int:
    return stored_size(record.call.params, record.outcome)
