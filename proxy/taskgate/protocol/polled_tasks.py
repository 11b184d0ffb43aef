"""The text of the tasks that hosts polled last, `PolledTasks`, kept for their next poll."""

from typing import Final
from weakref import ReferenceType, ref

from taskgate.domain.record import TaskId, TaskRecord

MOST: Final = 1024
"""Tasks whose text is kept. Then all are forgotten."""

LONGEST: Final = 4096
"""Characters of a text that is kept. Nearly all have some 300."""

PolledTask = tuple[ReferenceType[TaskRecord], str, str]
"""A record, and its text before and behind the poll interval."""


class PolledTasks(dict[TaskId, PolledTask]):
    """The tasks that were polled last, by id. Nearly every poll finds the record of the poll before.

    Only the same record has the same text: a changed one is another object. A record is not kept by
    this, since it may have large questions, and what its host declared.
    """

    def add(self, record: TaskRecord, text: str, key: str) -> PolledTask:
        """Return the text of a task whose poll interval, behind `key`, is written as 0, and keep it if it is short."""
        before, _, behind = text.partition(f"{key}0")
        polled = (ref(record), before + key, behind)
        if len(text) <= LONGEST:
            if len(self) >= MOST:
                self.clear()
            self[record.id] = polled
        return polled
