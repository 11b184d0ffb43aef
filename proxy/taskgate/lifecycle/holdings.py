"""What a store that several processes share is known to have of the tasks of this one: enough to put it back.

Kept are whole records, of what runs here and, until it is sure to stay stored, of what has just ended. What must not
live here: the store, and when something is put back (`leasing`).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from taskgate.domain.record import Lease, TaskId, TaskRecord, evolve
from taskgate.stores.capacity import stored_size

BEATS: Final = 2
"""For how many heartbeats an ending has to have been stored until it is believed to stay, once it is found again."""
MAX_ENDED: Final = 16 * 1024 * 1024
"""Bytes of endings that are kept for that; one too many is not."""


class Holdings:
    """Belongs to one event loop, but `revisions`, which may be asked for from any thread.

    An ending is kept until it is found `patience` seconds after it was stored: then it is believed to stay. Moments are
    of the stopwatch.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._records: dict[TaskId, TaskRecord] = {}
        self._revisions: dict[TaskId, int] = {}
        self._ended: dict[TaskId, float] = {}
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
        return record if record is None or record.status.is_terminal else evolve(record, lease=lease)

    def begin(self, record: TaskRecord) -> None:
        """Keep a task from now on; its record is whole."""
        self.end(record.id, forget=True)
        self._set(record)

    def put(self, record: TaskRecord, *, at: float) -> None:
        """What is stored, since `at`, of something that is kept; heads do."""
        known = self._records.get(record.id)
        if known is None or known.revision >= record.revision or known.status.is_terminal:
            return
        self._set(evolve(record, call=known.call))
        if record.status.is_terminal:
            size = _size(record)
            if self._bytes + size > MAX_ENDED:
                self.end(record.id, forget=True)
            else:
                self._bytes += size
                self._ended[record.id] = at

    def put_back(self, task: TaskId, *, at: float) -> None:
        """It is stored again: an ending is believed to stay as late as if it were a new one."""
        if task in self._ended:
            self._ended[task] = at

    def end(self, task: TaskId, *, forget: bool = False) -> None:
        """Keep it no longer; an ending is, until it was found, unless it is to be forgotten."""
        if forget or task not in self._ended:
            record = self._records.pop(task, None)
            self._revisions.pop(task, None)
            if self._ended.pop(task, None) is not None and record is not None:
                self._bytes -= _size(record)

    def found(self, revisions: Mapping[TaskId, int], *, asked: float) -> None:
        """A sign of life that left then found these in the store, at least at these revisions."""
        for task, revision in revisions.items():
            since = self._ended.get(task) if revision == self._revisions.get(task) else None
            # However many signs of life were given meanwhile: what takes over may take a while to be without it.
            if since is not None and asked - since >= self._patience:
                self.end(task, forget=True)

    def _set(self, record: TaskRecord) -> None:
        self._records[record.id] = record
        self._revisions[record.id] = record.revision


def _size(record: TaskRecord) -> int:
    return stored_size(record.call.params, record.outcome)
