"""What the memory store lists by: the places of one owner's tasks, in order, apart by state.

The same shape as the indexes of lists.sql: whatever a list is of, it is a merge of ordered runs, and nothing is sorted
to show a page. Knows places alone; heads are the store's.
"""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from operator import attrgetter

from taskgate.domain.listing import STATES, OrderBy, Position, TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import TaskId, TaskRecord

_Run = list[Position]


class Lists:
    """The tasks of one owner."""

    def __init__(self) -> None:
        self._runs: dict[tuple[OrderBy, TaskState], _Run] = {}

    def __bool__(self) -> bool:
        return any(self._runs.values())

    def add(self, record: TaskRecord) -> None:
        """List a record."""
        for by in OrderBy:
            insort(self._runs.setdefault((by, _state(record)), []), _place(record, by))

    def remove(self, record: TaskRecord) -> None:
        """List a record no longer; it must be as it was when it was listed."""
        for by in OrderBy:
            run = self._runs[by, _state(record)]
            del run[bisect_left(run, _place(record, by))]

    def move(self, old: TaskRecord, new: TaskRecord) -> None:
        """List a record as it is now."""
        if (_state(old), old.updated_at) != (_state(new), new.updated_at):
            self.remove(old)
            self.add(new)

    def found(self, where: TaskFilter, order: TaskOrder, after: Position | None) -> Iterator[TaskId]:
        """The ids of what is in the states and within the bounds of the time that is ordered by, in order.

        What else the filter says is left to `is_wanted`.
        """
        states = STATES if where.states is None else where.states
        runs = (self._runs.get((order.by, state), []) for state in states)
        parts = (_within(run, where, order, after) for run in runs)
        return (id for _, id in heapq.merge(*parts, reverse=order.descending))


def in_order(records: list[TaskRecord], order: TaskOrder, after: Position | None) -> list[TaskId]:
    """The ids of a few records, those after a place, in order."""
    places = sorted((_place(record, order.by) for record in records), reverse=order.descending)
    return [place.id for place in places if after is None or (place < after if order.descending else place > after)]


def is_wanted(head: TaskRecord, where: TaskFilter) -> bool:
    """Whether the record meets the filter."""
    return (
        (where.ids is None or head.id in where.ids)
        and (where.states is None or _state(head) in where.states)
        and (where.created_after is None or head.created_at > where.created_after)
        and (where.created_before is None or head.created_at < where.created_before)
        and (where.updated_after is None or head.updated_at > where.updated_after)
        and (where.updated_before is None or head.updated_at < where.updated_before)
    )


def _within(run: _Run, where: TaskFilter, order: TaskOrder, after: Position | None) -> Iterator[Position]:
    by_creation = order.by is OrderBy.CREATED
    least, most = (
        (where.created_after, where.created_before) if by_creation else (where.updated_after, where.updated_before)
    )
    low = 0 if least is None else bisect_right(run, least, key=_time)
    high = len(run) if most is None else bisect_left(run, most, key=_time)
    if after is not None and order.descending:
        high = min(high, bisect_left(run, after))
    elif after is not None:
        low = max(low, bisect_right(run, after))
    return (run[at] for at in (range(high - 1, low - 1, -1) if order.descending else range(low, high)))


def _state(record: TaskRecord) -> TaskState:
    return TaskState(record.status, record.tool_error)


def _place(record: TaskRecord, by: OrderBy) -> Position:
    return Position(record.created_at if by is OrderBy.CREATED else record.updated_at, record.id)


_time = attrgetter("time")
