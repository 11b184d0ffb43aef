"""Lists of tasks: which of a caller's tasks one holds, in what order, where a page ends, and what a list tells of each.

Neutral words between the dialects, which read filters of hosts, and the stores, which serve them. What must not live
here: how a host spells a criterion, and how a store finds what meets it.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple

from taskgate.domain.record import TaskId, TaskRecord, TaskStatus


class OrderBy(StrEnum):
    """The times by which a list may be ordered; ties break by task id."""

    CREATED = "created_at"
    UPDATED = "updated_at"


class TaskState(NamedTuple):
    """What the eras call a status differs only in where a tool's error stands, so the two are asked for together."""

    status: TaskStatus
    tool_error: bool = False


STATES: Final = (*map(TaskState, TaskStatus), TaskState(TaskStatus.COMPLETED, True))
"""Every state that a record can be in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """Which records to list: criteria combine with AND, the values of one with OR; None means any. Bounds exclude.

    A set without members lets nothing through.
    """

    ids: frozenset[TaskId] | None = None
    states: frozenset[TaskState] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    updated_after: datetime | None = None
    updated_before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrder:
    """How to list records."""

    by: OrderBy = OrderBy.UPDATED
    descending: bool = True


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
EVERY: Final = TaskFilter()
NEWEST_FIRST: Final = TaskOrder()


class Position(NamedTuple):
    """A place between two records of an ordered list: it stays where it is when records come and go."""

    time: datetime
    id: TaskId


class ListedTask(NamedTuple):
    """What a list tells of a task: a small part of its head, with the same names."""

    id: TaskId
    tool: str
    status: TaskStatus
    status_message: str | None
    created_at: datetime
    updated_at: datetime
    ttl: timedelta
    poll_interval: timedelta
    tool_error: bool

    def place(self, by: OrderBy) -> Position:
        """Where the task stands in a list of that order."""
        return Position(self.created_at if by is OrderBy.CREATED else self.updated_at, self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Tasks in order, and where the next page starts; None when there is none, and only then.

    What cannot be read is left out, so a page may be short, or empty, and yet have a next one.
    """

    tasks: tuple[ListedTask, ...]
    next: Position | None


def listed(record: TaskRecord) -> ListedTask:
    """What a list tells of the record."""
    return ListedTask(
        record.id,
        record.call.tool,
        record.status,
        record.status_message,
        record.created_at,
        record.updated_at,
        record.ttl,
        record.poll_interval,
        record.tool_error,
    )


def merged(pages: Sequence[Page], order: TaskOrder, limit: int) -> Page:
    """One page of at most `limit` tasks out of those of several lists, each read with `limit` from the same place.

    A list that goes on is known only up to where its page ends, so the nearest such end is as far as all are known.
    """
    if len(pages) == 1:
        return pages[0]
    ends = [page.next for page in pages if page.next is not None]
    end = (max(ends) if order.descending else min(ends)) if ends else None
    tasks = [(task.place(order.by), task) for page in pages for task in page.tasks]
    tasks.sort(key=lambda placed: placed[0], reverse=order.descending)
    if end is not None:
        tasks = [placed for placed in tasks if (placed[0] >= end if order.descending else placed[0] <= end)]
    if len(tasks) > limit:
        end = tasks[limit - 1][0]
    return Page(tasks=tuple(task for _, task in tasks[:limit]), next=end)


def mark(where: TaskFilter, order: TaskOrder) -> str:
    """A short text that is the same for the same list and for no other; empty for the list of everything, newest first.

    It tells nothing of what was filtered for.
    """
    if where == EVERY and order == NEWEST_FIRST:
        return ""
    sets = (None if found is None else sorted(found) for found in (where.ids, where.states))
    bounds = (where.created_after, where.created_before, where.updated_after, where.updated_before)
    written = (*sets, *(None if bound is None else (bound - _EPOCH) // _TICK for bound in bounds), *astuple(order))
    return sha256(repr(written).encode("ascii", "backslashreplace")).hexdigest()
