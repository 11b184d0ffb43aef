"""What a store that several processes share is known to have of the tasks of this one: enough to put it back.

Kept are whole records, of what runs here and, until it is sure to stay stored, of what has just ended. What must not
live here: the store, and when something is put back (`leasing`).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from taskgate.stores.room import stored_size
from taskgate.tasks.record import Lease, TaskId, TaskRecord, altered

BEATS: Final = 2
"""How many signs of life have to find an ending stored until it is believed to stay."""
MAX_ENDED: Final = 16 * 1024 * 1024
"""Bytes of endings that are kept for that; one too many is not."""


class Holdings:
    """Belongs to one event loop, but `revisions`, which may be asked for from any thread."""

    def __init__(self) -> None:
        self._records: dict[TaskId, TaskRecord] = {}
        self._revisions: dict[TaskId, int] = {}
        self._ended: dict[TaskId, int] = {}
        self._bytes = 0

    def revisions(self) -> dict[TaskId, int]:
        """Of everything that is kept, the revision that the store has, or a newer one."""
        # One step for the interpreter: no other thread changes it meanwhile.
        return self._revisions.copy()

    def revision(self, task: TaskId) -> int | None:
        """The same of one task; None where it is not kept."""
        return self._revisions.get(task)

    def records(self) -> Iterable[TaskRecord]:
        """The newest that is known of everything that is kept."""
        return self._records.values()

    def whole(self, task: TaskId, lease: Lease) -> TaskRecord | None:
        """The newest that is known, under that lease while it is unfinished."""
        record = self._records.get(task)
        return record if record is None or record.status.is_terminal else altered(record, lease=lease)

    def begin(self, record: TaskRecord) -> None:
        """Keep a task from now on; its record is whole."""
        self.end(record.id, forget=True)
        self._set(record)

    def put(self, record: TaskRecord) -> None:
        """What is stored now of something that is kept; heads do."""
        known = self._records.get(record.id)
        if known is None or known.revision >= record.revision or known.status.is_terminal:
            return
        self._set(altered(record, call=known.call))
        if record.status.is_terminal:
            size = _size(record)
            if self._bytes + size > MAX_ENDED:
                self.end(record.id, forget=True)
            else:
                self._bytes += size
                self._ended[record.id] = BEATS

    def end(self, task: TaskId, *, forget: bool = False) -> None:
        """Keep it no longer; an ending is, until it was found, unless it is to be forgotten."""
        left = self._ended.get(task)
        if left is None or forget:
            record = self._records.pop(task, None)
            self._revisions.pop(task, None)
            if self._ended.pop(task, None) is not None and record is not None:
                self._bytes -= _size(record)

    def found(self, revisions: Mapping[TaskId, int]) -> None:
        """A sign of life found these in the store, at least at these revisions."""
        for task, revision in revisions.items():
            left = self._ended.get(task) if revision == self._revisions.get(task) else None
            if left is not None and left > 1:
                self._ended[task] = left - 1
            elif left is not None:
                self.end(task, forget=True)

    def _set(self, record: TaskRecord) -> None:
        self._records[record.id] = record
        self._revisions[record.id] = record.revision


def _size(record: TaskRecord) -> int:
    return stored_size(record.call.params, record.outcome)
