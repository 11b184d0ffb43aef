"""The text of the tasks that hosts polled last, `PolledTasks`, kept for their next poll."""

from typing import Final

from taskgate.domain.record import TaskId, TaskRecord

MOST: Final = 1024
"""Tasks whose text is kept. Then all are forgotten."""

PolledTask = tuple[TaskRecord, str, str]
"""A record, and its text before and behind the poll interval."""


class PolledTasks(dict[TaskId, PolledTask]):
    """The tasks that were polled last, by id. Nearly every poll finds the record of the poll before.

    Only the same record has the same text: a changed one is another object.
    """

    def add(self, record: TaskRecord, text: str, key: str) -> PolledTask:
        """Keep the text of a task whose poll interval, behind `key`, is written as 0."""
        if len(self) >= MOST:
            self.clear()
        before, _, behind = text.partition(f"{key}0")
        polled = self[record.id] = (record, before + key, behind)
        return polled
