"""What is read of the file that may take long: one statement each, and what is made of its rows."""

import sqlite3
from datetime import datetime
from typing import Any, Final

from taskgate.domain.listing import STATES, OrderBy, Page, Position, TaskFilter, TaskOrder
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord, TaskStatus
from taskgate.stores.base import StoreCensus
from taskgate.stores.codec import pack_time, unpack_head, unpack_time
from taskgate.stores.sqlite import statements as sql
from taskgate.stores.sqlite import writes
from taskgate.stores.sqlite.statements import name, names, owner_digest

# --- queries ---------------------------------------------------------------------------------------------------------


def load_large(connection: sqlite3.Connection, values: sql.Values) -> TaskRecord | None:
    """One record with its bodies. The outcome is read into its own bytes: a row of it would be a second copy."""
    # One moment, though it takes two steps.
    connection.execute("BEGIN")
    try:
        row = connection.execute(sql.LOAD_LARGE, values).fetchone()
        if row is None:
            return None
        seq, *found, kind = row
        outcome = None
        if kind is not None:
            with connection.blobopen("outcomes", "body", seq, readonly=True) as blob:
                outcome = blob.read()
    finally:
        connection.execute("COMMIT")
    return writes.unpack_whole((*found, kind, outcome))


def find_owner(connection: sqlite3.Connection, id: TaskId) -> OwnerKey | None:
    """Whose a record is: no column tells, for those hold digests."""
    row = connection.execute(sql.FIND_HEAD, (sql.name(id),)).fetchone()
    return None if row is None else unpack_head(row[0], None).owner


def load_page(connection: sqlite3.Connection, statement: str, values: dict[str, Any], limit: int) -> Page:
    """A page of what the statement finds, which looks for one more than `limit`."""
    rows = connection.execute(statement, values).fetchall()
    read = (writes.read_listed(head) for head, _, _ in rows[:limit])
    found = tuple(task for task in read if task is not None)
    if len(rows) <= limit:
        return Page(tasks=found, next=None)
    # Of the row, not of a head: the last one may be unreadable.
    _, time, id = rows[limit - 1]
    return Page(tasks=found, next=Position(unpack_time(time), id))


def count(connection: sqlite3.Connection) -> StoreCensus:
    """How many tasks there are of each status, and how large the file is."""
    counts = {TaskStatus(status): number for status, number in connection.execute(sql.CENSUS).fetchall()}
    ((size,),) = connection.execute(sql.SIZE).fetchall()
    return StoreCensus(tasks=dict.fromkeys(TaskStatus, 0) | counts, size=size)


# --- the SQL of a page -----------------------------------------------------------------------------------------------


Named = dict[str, Any]
"""Values by the names of their places."""

_NOTHING: Final = "SELECT NULL, NULL, NULL WHERE 0"
_COLUMNS: Final = {OrderBy.CREATED: "created", OrderBy.UPDATED: "updated"}


def page_statement(
    owner: OwnerKey, where: TaskFilter, order: TaskOrder, after: Position | None, limit: int, now: datetime
) -> tuple[str, Named]:
    """The text and values that list heads, their times and their ids; `limit` is the statement's own."""
    column = _COLUMNS[order.by]
    terms, values = _bounds(where, order, after)
    values |= {"owner": owner_digest(owner), "now": pack_time(now), "limit": limit}
    states = sorted(STATES if where.states is None else where.states)
    for at, state in enumerate(states):
        values |= {f"status{at}": state.status.value, f"error{at}": state.tool_error}
    rest = " AND ".join(["owner = :owner", "expires > :now", *terms])
    if not states:
        return _NOTHING, {}
    if where.ids is not None:
        values["ids"] = names(where.ids)
        parts = [_by_ids(column, rest, len(states))]
    else:
        parts = [_by_state(column, rest, at) for at in range(len(states))]
    direction = "DESC" if order.descending else "ASC"
    return f"{' UNION ALL '.join(parts)} ORDER BY {column} {direction}, id {direction} LIMIT :limit", values


# Only names written in this module are put into a text; what a host says goes through the places.


def _by_state(column: str, rest: str, at: int) -> str:
    """A part for one state, read in the order of its index; SQLite merges such parts and sorts nothing."""
    # The index is named, or bounds of the other time would lead through that one's, and what they let pass be sorted.
    return (
        f"SELECT head, {column}, id FROM tasks INDEXED BY tasks_{column} "  # noqa: S608
        f"WHERE status = :status{at} AND tool_error = :error{at} AND {rest}"
    )


def _by_ids(column: str, rest: str, states: int) -> str:
    """Ids, which are few, are looked up one by one, and what they find is sorted."""
    # The order of the tables is fixed: never are ids that are not there looked for in all that is the owner's.
    wanted = ", ".join(f"(:status{at}, :error{at})" for at in range(states))
    return (
        f"SELECT head, {column}, id FROM (SELECT value FROM json_each(:ids)) CROSS JOIN tasks ON id = value "  # noqa: S608
        f"WHERE (status, tool_error) IN (VALUES {wanted}) AND {rest}"
    )


def _bounds(where: TaskFilter, order: TaskOrder, after: Position | None) -> tuple[list[str], Named]:
    """The terms of both times, of which an index serves the nearest on each side of the one that is ordered by."""
    created, updated = (where.created_after, where.created_before), (where.updated_after, where.updated_before)
    # No record was updated before it was created, so a bound of one time may be one of the other, too.
    if order.by is OrderBy.CREATED:
        column, other, rest = "created", "updated", updated
        least, most = created[0], min(filter(None, (created[1], updated[1])), default=None)
    else:
        column, other, rest = "updated", "created", created
        least, most = max(filter(None, (created[0], updated[0])), default=None), updated[1]
    terms: list[str] = []
    values: Named = {}
    # SQLite looks up one bound of a side: a place that is nearer than a bound stands for both.
    if after is not None and order.descending and (most is None or after.time < most):
        terms, most = [f"({column}, id) < (:time, :id)"], None
    elif after is not None and not order.descending and (least is None or after.time > least):
        terms, least = [f"({column}, id) > (:time, :id)"], None
    if terms and after is not None:
        values = {"time": pack_time(after.time), "id": name(after.id)}
    for term, key, bound in (
        (f"{column} > :least", "least", least),
        (f"{column} < :most", "most", most),
        (f"{other} > :after", "after", rest[0]),
        (f"{other} < :before", "before", rest[1]),
    ):
        if bound is not None:
            terms.append(term)
            values[key] = pack_time(bound)
    return terms, values
