"""Lists of tasks: filter, order and pages of `tasks/list`.

The protocol adapters turn a host's filter into a `TaskFilter` and a `TaskOrder`; the stores serve a
`Page` of `ListedTask`.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple

from taskgate.domain.record import TaskId, TaskRecord, TaskStatus, grown_ttl


class OrderBy(StrEnum):
    """The times by which a list can be ordered; ties break by task id."""

    CREATED = "created_at"
    UPDATED = "updated_at"


class TaskState(NamedTuple):
    """A status, and whether it is a tool's error: both eras' statuses can be made from the two."""

    status: TaskStatus
    tool_error: bool = False


STATES: Final = (*map(TaskState, TaskStatus), TaskState(TaskStatus.COMPLETED, True))
"""Every state of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """Criteria of a list, combined with AND; the values of one are combined with OR.

    None means any, an empty set matches no record. Time bounds are exclusive. With `unfetched`, only records
    match whose result no host has got.
    """

    ids: frozenset[TaskId] | None = None
    states: frozenset[TaskState] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    updated_after: datetime | None = None
    updated_before: datetime | None = None
    unfetched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrder:
    """The order of a list."""

    by: OrderBy = OrderBy.UPDATED
    descending: bool = True


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
ALL_TASKS: Final = TaskFilter()
NEWEST_FIRST: Final = TaskOrder()


class Position(NamedTuple):
    """A position between two records of an ordered list.

    It stays valid when records come and go.
    """

    time: datetime
    id: TaskId


class ListedTask(NamedTuple):
    """A task as lists show it: a small part of its head.

    `created`, `updated` and `expires` are the times in microseconds since 1970: a list shows hundreds of
    tasks, and hardly needs a datetime.
    """

    id: TaskId
    tool: str
    status: TaskStatus
    status_message: str | None
    created: int
    updated: int
    ttl: timedelta
    poll_interval: timedelta
    tool_error: bool
    expires: int

    @property
    def created_at(self) -> datetime:
        """When the task was created."""
        return _EPOCH + timedelta(0, 0, self.created)

    @property
    def updated_at(self) -> datetime:
        """When the task was changed last."""
        return _EPOCH + timedelta(0, 0, self.updated)

    def position(self, by: OrderBy) -> Position:
        """The position of the task in a list of that order."""
        return Position(self.created_at if by is OrderBy.CREATED else self.updated_at, self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Tasks in order, and where the next page starts; `next` is None only on the last page.

    Unreadable records are left out, so a page may be short or empty and still have a next one.
    """

    tasks: tuple[ListedTask, ...]
    next: Position | None


def listed_task(record: TaskRecord) -> ListedTask:
    """The part of a record that lists show."""
    return ListedTask(
        record.id,
        record.call.tool,
        record.status,
        record.status_message,
        (record.created_at - _EPOCH) // _TICK,
        (record.updated_at - _EPOCH) // _TICK,
        record.ttl,
        record.poll_interval,
        record.tool_error,
        (record.expires_at - _EPOCH) // _TICK,
    )


def with_grown_ttls(tasks: Sequence[ListedTask], now: datetime) -> tuple[ListedTask, ...]:
    """The tasks as hosts are shown them at that time: the ttl of an unfinished one grows."""
    moment = (now - _EPOCH) // _TICK
    return tuple(task if task.status.is_terminal else _with_grown_ttl(task, moment) for task in tasks)


def _with_grown_ttl(task: ListedTask, now: int) -> ListedTask:
    age, most = timedelta(0, 0, now - task.created), timedelta(0, 0, task.expires - task.created)
    ttl = grown_ttl(task.ttl, age, most)
    return task if ttl == task.ttl else task._replace(ttl=ttl)


def merge_pages(pages: Sequence[Page], order: TaskOrder, limit: int) -> Page:
    """Merge one page of each of several lists into one page of at most `limit` tasks.

    All pages are read with `limit` from the same position. A list with a next page is known up to
    the end of its page only. So the merged page ends at the nearest such end.
    """
    if len(pages) == 1:
        return pages[0]
    ends = [page.next for page in pages if page.next is not None]
    end = (max(ends) if order.descending else min(ends)) if ends else None
    tasks = [(task.position(order.by), task) for page in pages for task in page.tasks]
    tasks.sort(key=lambda placed: placed[0], reverse=order.descending)
    if end is not None:
        tasks = [placed for placed in tasks if (placed[0] >= end if order.descending else placed[0] <= end)]
    if len(tasks) > limit:
        end = tasks[limit - 1][0]
    return Page(tasks=tuple(task for _, task in tasks[:limit]), next=end)


def fingerprint(where: TaskFilter, order: TaskOrder) -> str:
    """A digest of a list's filter and order; empty for all tasks, newest first.

    Cursors are bound to it. It does not reveal the filter.
    """
    if where == ALL_TASKS and order == NEWEST_FIRST:
        return ""
    sets = (None if found is None else sorted(found) for found in (where.ids, where.states))
    bounds = (where.created_after, where.created_before, where.updated_after, where.updated_before)
    written = (*sets, *(None if bound is None else (bound - _EPOCH) // _TICK for bound in bounds), *astuple(order))
    if where.unfetched:
        written += (True,)
    return sha256(repr(written).encode("ascii", "backslashreplace")).hexdigest()
