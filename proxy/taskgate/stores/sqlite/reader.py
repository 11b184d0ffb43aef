"""The reads of a SQLite store: `SqliteReader` runs small ones on the event loop and long ones on a
thread.

The class knows connections and threads, and nothing about records. Every failure is raised as
StoreUnavailable. The queries below it read large records, owners, pages and counts: each runs one
statement on a connection and decodes its rows, a page two. `page_query` writes the SQL of a page, one
text for each shape of a filter, always led by an index. A list omits unreadable records.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar

from taskgate.domain.listing import STATES, OrderBy, Page, Position, TaskFilter, TaskOrder
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord, TaskStatus, Transition, transitions_of
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import MOST_SCANNED, Scan, StoreCensus
from taskgate.stores.codec import (
    RETRIEVED_IN_HEAD,
    has_texts,
    pack_name,
    pack_numbers,
    pack_time,
    unpack_bodies,
    unpack_head,
    unpack_place,
    unpack_time,
    unpack_transitions,
)
from taskgate.stores.sqlite import statements as sql
from taskgate.stores.sqlite import writes
from taskgate.stores.sqlite.file import unavailable
from taskgate.stores.sqlite.statements import names, owner_digest

_FEW_STEPS: Final = 20_000
"""Instructions of SQLite's virtual machine that a read may take on the loop: about a millisecond."""

_STEPS: Final = 1_000

UNREADABLE: Final = "The store could not read"

_Value = TypeVar("_Value")
_Row = tuple[Any, ...]

Query = Callable[[sqlite3.Connection], _Value]
"""A read on a connection that decodes its rows."""


class SqliteReader:
    """Two read-only connections, which it owns and closes.

    `near` is for the event loop (`row`, `glance`), `far` for the reading thread (`look`).
    """

    def __init__(self, near: sqlite3.Connection, far: sqlite3.Connection) -> None:
        self._near = near
        self._far = far
        # One thread: a connection serves one statement at a time.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="taskgate-store-reader")
        self._closed = False

    def row(self, statement: str, values: _Row) -> _Row | None:
        """The only row of a statement that uses an index; None if there is none.

        Blocks the loop.
        """
        if self._closed:
            raise StoreUnavailable("The store is closed")
        try:
            # Fetch all, so that the statement ends and holds no snapshot.
            rows = self._near.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise unavailable(UNREADABLE, error) from error
        return rows[0] if rows else None

    async def glance(self, query: Query[_Value]) -> _Value:
        """Run a query on the loop; if it takes too many steps, run it again on the reading thread."""
        self._check()
        steps = count(1)
        self._near.set_progress_handler(lambda: next(steps) > _FEW_STEPS // _STEPS, _STEPS)
        try:
            return query(self._near)
        except (sqlite3.Error, ValueError):
            # Too long, or a lock: the thread has the time. A real fault occurs there again.
            pass
        finally:
            self._near.set_progress_handler(None, 0)
        return await self.look(query)

    async def look(self, query: Query[_Value]) -> _Value:
        """Run a query on the reading thread."""
        self._check()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, query, self._far)
        except (sqlite3.Error, ValueError) as error:
            raise unavailable(UNREADABLE, error) from error

    async def close(self) -> None:
        """Finish running reads, close both connections and end the thread."""
        self._closed = True
        self._near.close()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._far.close)
        self._thread.shutdown()

    def _check(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed")


NamedValues = dict[str, Any]
"""Values by parameter name."""


class PageQuery(NamedTuple):
    """The SQL of a page: `statement` finds heads, their expiry, times and ids. `last` finds the time and
    id of the last row that it may look at, if the list is that long. Both have the same values.
    """

    statement: str
    last: str
    values: NamedValues


# --- queries ---------------------------------------------------------------------------------------------------------


def load_large(connection: sqlite3.Connection, values: sql.Values) -> TaskRecord | None:
    """One record with its bodies. A large outcome is read as a blob: a row would be a second copy."""
    # One snapshot for both steps.
    connection.execute("BEGIN")
    try:
        row = connection.execute(sql.LOAD_LARGE, values).fetchone()
        if row is None:
            return None
        seq, packed, holder, until, expires, caller, params, kind, outcome, large_kind = row
        if kind is None and large_kind is not None:
            kind = large_kind
            with connection.blobopen("outcomes", "body", seq, readonly=True) as blob:
                outcome = blob.read()
    finally:
        connection.execute("COMMIT")
    head = unpack_head(packed, writes.unpack_lease(holder, until), expires, caller)
    return unpack_bodies(head, params, kind, outcome)


def find_owner(connection: sqlite3.Connection, values: sql.Values) -> OwnerKey | None:
    """The owner of a record, from its head: the columns have only digests."""
    row = connection.execute(sql.FIND_HEAD, values).fetchone()
    return None if row is None else unpack_head(row[0], None).owner


def find_reference(connection: sqlite3.Connection, number: int) -> TaskId | None:
    """The id of the record whose reference has this number."""
    row = connection.execute(sql.REFERRED, (number,)).fetchone()
    return None if row is None else str(row[0])


def load_transitions(connection: sqlite3.Connection, values: sql.Values) -> tuple[Transition, ...]:
    """The transitions of a record; none if there is no record."""
    row = connection.execute(sql.FIND_HEAD, values).fetchone()
    if row is None:
        return ()
    head, packed = row
    return transitions_of(unpack_head(head, None), unpack_transitions(packed or ""))


def scan(
    unfinished: bool,
    wants: Callable[[TaskRecord], bool],
    texts: Collection[bytes],
    after: str | None,
    limit: int,
    now: int,
    connection: sqlite3.Connection,
) -> Scan:
    """A part of the records of all owners, by their rows; `now` is packed."""
    statement = sql.SCAN_UNFINISHED if unfinished else sql.SCAN
    last = unpack_place(after)
    if last is None:
        return Scan((), None)
    # One more than a part may look at: is there a next one?
    rows = connection.execute(statement, (last, MOST_SCANNED + 1))
    heads: list[TaskRecord] = []
    for scanned, (seq, packed, holder, until, expires, caller) in enumerate(rows):
        if len(heads) == limit or scanned == MOST_SCANNED:
            rows.close()
            return Scan(tuple(heads), str(last))
        last = seq
        may_match = expires > now and has_texts(texts, packed, caller or b"")
        head = writes.read_head(packed, holder, until, expires, caller) if may_match else None
        if head is not None and wants(head):
            heads.append(head)
    return Scan(tuple(heads), None)


def load_page(connection: sqlite3.Connection, query: PageQuery, limit: int) -> Page:
    """A page of the rows of a query, which finds up to one row more than `limit`."""
    # One snapshot for both steps.
    connection.execute("BEGIN")
    try:
        rows = connection.execute(query.statement, query.values).fetchall()
        # Fewer than a page: either the list has ended, or enough rows of others were skipped.
        last = connection.execute(query.last, query.values).fetchone() if len(rows) <= limit else rows[limit - 1][2:]
    finally:
        connection.rollback()
    read = (writes.read_listed(head, expires) for head, expires, _, _ in rows[:limit])
    found = tuple(task for task in read if task is not None)
    # From the row, not the head: the last head may be unreadable.
    return Page(tasks=found, next=None if last is None else Position(unpack_time(last[0]), last[1]))


def census(connection: sqlite3.Connection, statuses: Counter[str]) -> StoreCensus:
    """The number of tasks in each status, and the size of the file's pages that are in use."""
    counts = {TaskStatus(status): number for status, number in statuses.items() if number}
    ((size,),) = connection.execute(sql.SIZE).fetchall()
    return StoreCensus(tasks=dict.fromkeys(TaskStatus, 0) | counts, size=size)


# --- the SQL of a page -----------------------------------------------------------------------------------------------


_NOTHING: Final = "SELECT NULL, NULL, NULL, NULL WHERE 0"
_COLUMNS: Final = {OrderBy.CREATED: "created", OrderBy.UPDATED: "updated"}
_OWNED: Final = "owner = :owner"
_UNFETCHED: Final = f"""
    unfinished = 1 OR NOT CASE WHEN json_valid(CAST(head AS TEXT))
    THEN coalesce(json_extract(CAST(head AS TEXT), '{RETRIEVED_IN_HEAD}'), 0) ELSE 0 END
"""
_NAMED: Final = "id IN (SELECT value FROM json_each(:ids))"
_BY_UPDATE: Final = {
    True: f"tasks_ended WHERE unfinished = 0 AND {_OWNED}",
    False: f"tasks_unfinished WHERE unfinished = 1 AND {_OWNED}",
}
"""Where the rows are in the order of their last change, by whether they have ended."""

# The SQL text contains only names from this module; values of hosts are always bound as parameters.


def page_query(
    owner: OwnerKey,
    where: TaskFilter,
    order: TaskOrder,
    after: Position | None,
    limit: int,
    now: datetime,
    number_of: Callable[[TaskId], int],
) -> PageQuery:
    """The query of a page; `limit` is the LIMIT of its statement, and `number_of` as in StoreState."""
    if where.states is not None and not where.states:
        return PageQuery(_NOTHING, _NOTHING, {})
    column, direction = _COLUMNS[order.by], "DESC" if order.descending else "ASC"
    leading, rest, values = _bounds(where, order, after)
    values |= {"owner": owner_digest(owner), "now": pack_time(now), "limit": limit}
    rest.append("expires > :now")
    if where.states is not None:
        states = sorted(where.states)
        rest.append(" OR ".join(f"status = :status{at} AND tool_error = :error{at}" for at in range(len(states))))
        for at, state in enumerate(states):
            values |= {f"status{at}": state.status.value, f"error{at}": state.tool_error}
    if where.unfetched:
        rest.append(_UNFETCHED)
    in_order = f"ORDER BY {column} {direction}, id {direction} LIMIT"
    checks = " AND ".join(f"({term})" for term in rest)
    if where.ids is not None:
        # A few ids, looked up one by one; SQLite sorts the found rows. CROSS JOIN fixes the order of
        # the tables: SQLite must not scan all records of the owner for unknown ids.
        statement = (
            f"SELECT head, expires, {column}, id FROM (SELECT value FROM json_each(:references)) "  # noqa: S608
            f"CROSS JOIN tasks ON reference = value WHERE {' AND '.join([_OWNED, _NAMED, *leading, checks])} "
            f"{in_order} :limit"
        )
        references = pack_numbers(map(number_of, where.ids))
        return PageQuery(statement, _NOTHING, values | {"ids": names(where.ids), "references": references})
    # INDEXED BY, or SQLite might use another index and sort the result. These have all that the order
    # needs, so that a row is looked up for the checks alone.
    listed = " UNION ALL ".join(
        f"SELECT {' AND '.join([f'seq, {column}, id FROM tasks INDEXED BY {source}', *leading])}"  # noqa: S608
        for source in _sources(where, order)
    )
    listed = f"{listed} {in_order} {MOST_SCANNED}"
    return PageQuery(
        # The rows come in the order of the inner query, which CROSS JOIN keeps: to sort them, all
        # would have to be looked at.
        f"SELECT head, expires, listed.{column}, listed.id FROM ({listed}) AS listed "  # noqa: S608
        f"CROSS JOIN tasks ON tasks.seq = listed.seq WHERE {checks} LIMIT :limit",
        f"SELECT {column}, id FROM ({listed}) LIMIT 1 OFFSET {MOST_SCANNED - 1}",  # noqa: S608
        values,
    )


def _sources(where: TaskFilter, order: TaskOrder) -> list[str]:
    """The indexes that have the rows of a list, each with the terms that lead into it."""
    if order.by is OrderBy.CREATED:
        return [f"tasks_created WHERE {_OWNED}"]
    are_ended = {state.status.is_terminal for state in (STATES if where.states is None else where.states)}
    return [_BY_UPDATE[is_ended] for is_ended in sorted(are_ended)]


def _bounds(where: TaskFilter, order: TaskOrder, after: Position | None) -> tuple[list[str], list[str], NamedValues]:
    """The terms of the ordering time, which lead into an index by the tightest bound on each side, and
    those of the other time.
    """
    created, updated = (where.created_after, where.created_before), (where.updated_after, where.updated_before)
    # No record was updated before its creation, so a bound of one time may bound the other too.
    if order.by is OrderBy.CREATED:
        column, other, rest = "created", "updated", updated
        least, most = created[0], min(filter(None, (created[1], updated[1])), default=None)
    else:
        column, other, rest = "updated", "created", created
        least, most = max(filter(None, (created[0], updated[0])), default=None), updated[1]
    terms: list[str] = []
    values: NamedValues = {}
    # SQLite uses one bound per side: a position that is tighter than a bound replaces it.
    if after is not None and order.descending and (most is None or after.time < most):
        terms, most = [f"({column}, id) < (:time, :id)"], None
    elif after is not None and not order.descending and (least is None or after.time > least):
        terms, least = [f"({column}, id) > (:time, :id)"], None
    if terms and after is not None:
        values = {"time": pack_time(after.time), "id": pack_name(after.id)}
    checks: list[str] = []
    for found, term, key, bound in (
        (terms, f"{column} > :least", "least", least),
        (terms, f"{column} < :most", "most", most),
        (checks, f"{other} > :after", "after", rest[0]),
        (checks, f"{other} < :before", "before", rest[1]),
    ):
        if bound is not None:
            found.append(term)
            values[key] = pack_time(bound)
    return terms, checks, values
