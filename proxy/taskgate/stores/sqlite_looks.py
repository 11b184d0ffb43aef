"""What the file is asked that may take long: one statement each, and what is made of its rows.

Knows no loop, no thread and no lock. What cannot be read is left out of lists.
"""

import sqlite3
from typing import Any

from taskgate.domain.listing import Page, Position
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord, TaskStatus
from taskgate.stores import sqlite_statements as sql
from taskgate.stores import sqlite_works as works
from taskgate.stores.base import Census
from taskgate.stores.codec import unpack_head, unpack_time


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
    return works.unpack_whole((*found, kind, outcome))


def find_owner(connection: sqlite3.Connection, id: TaskId) -> OwnerKey | None:
    """Whose a record is: no column tells, for those hold digests."""
    row = connection.execute(sql.FIND_HEAD, (sql.name(id),)).fetchone()
    return None if row is None else unpack_head(row[0], None).owner


def load_page(connection: sqlite3.Connection, statement: str, values: dict[str, Any], limit: int) -> Page:
    """A page of what the statement finds, which looks for one more than `limit`."""
    rows = connection.execute(statement, values).fetchall()
    read = (works.read_listed(head) for head, _, _ in rows[:limit])
    found = tuple(task for task in read if task is not None)
    if len(rows) <= limit:
        return Page(tasks=found, next=None)
    # Of the row, not of a head: the last one may be unreadable.
    _, time, id = rows[limit - 1]
    return Page(tasks=found, next=Position(unpack_time(time), id))


def count(connection: sqlite3.Connection) -> Census:
    """How many tasks there are of each status, and how large the file is."""
    counts = {TaskStatus(status): number for status, number in connection.execute(sql.CENSUS).fetchall()}
    ((size,),) = connection.execute(sql.SIZE).fetchall()
    return Census(tasks=dict.fromkeys(TaskStatus, 0) | counts, size=size)
