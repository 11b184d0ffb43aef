"""The rare writes of a SQLite store: each function returns the work that `SqliteWriter` runs in a
transaction. `task_writes` has the usual ones.

Work runs statements over a cursor; it knows no loop, no thread and no commit. The functions below
decode parts of a row.
"""

import sqlite3
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from taskgate.domain.listing import ListedTask
from taskgate.domain.record import Lease, TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.stores.capacity import CapKeys
from taskgate.stores.codec import pack_time, unpack_head, unpack_listed, unpack_text, unpack_time, with_bodies
from taskgate.stores.sqlite import statements as sql

NO_LEASE = 0
"""The `lease_until` of a record without a lease."""

_BEFORE_ALL = (-(2**63), 0)
"""A position before every record, by creation and row."""


class TakenRow(NamedTuple):
    """A row that was taken over, and the holder of its lease; the record is None if it is
    unreadable.
    """

    id: TaskId
    holder: str | None
    record: TaskRecord | None


class PurgedRow(NamedTuple):
    """A removed row, as TakenRow, its status, and what it counted under caps; `expires` is None if it
    had ended.
    """

    id: TaskId
    holder: str | None
    record: TaskRecord | None
    status: str
    keys: CapKeys
    size: int
    expires: int | None


def take_lapsed(lease: Lease, now: datetime, limit: int) -> Callable[[sqlite3.Cursor], tuple[TakenRow, ...]]:
    """Put `lease` on the oldest unfinished records with a lapsed lease, until `limit` readable ones
    are taken.
    """

    def work(cursor: sqlite3.Cursor) -> tuple[TakenRow, ...]:
        rows_taken: list[TakenRow] = []
        place, missing = _BEFORE_ALL, limit
        while missing:
            created, seq = place
            values = {"now": pack_time(now), "created": created, "seq": seq, "limit": missing}
            rows = cursor.execute(sql.LAPSED, values).fetchall()
            cursor.executemany(sql.TAKE, [(*pack_lease(lease), seq) for _, seq in rows])
            taken = [_taken(cursor, seq, lease) for _, seq in rows]
            rows_taken += taken
            if len(rows) < missing:
                break
            place, missing = rows[-1], sum(one.record is None for one in taken)
        return tuple(rows_taken)

    return work


def purge(now: datetime, limit: int) -> Callable[[sqlite3.Cursor], tuple[PurgedRow, ...]]:
    """Remove expired records with their bodies, readable or not."""

    def work(cursor: sqlite3.Cursor) -> tuple[PurgedRow, ...]:
        rows = cursor.execute(sql.EXPIRED, (pack_time(now), limit)).fetchall()
        for delete in sql.DELETES:
            cursor.executemany(delete, [(seq,) for seq, *_ in rows])
        return tuple(_removed(*row) for row in rows)

    return work


def count_changed(statement: str, values: sql.Values) -> Callable[[sqlite3.Cursor], int]:
    """One statement; returns the number of changed rows."""

    def work(cursor: sqlite3.Cursor) -> int:
        return cursor.execute(statement, values).rowcount

    return work


def unpack_lease(holder: str | None, until: int) -> Lease | None:
    """Decode a lease from its two columns."""
    return None if holder is None else Lease(holder=holder, until=unpack_time(until))


def read_listed(head: bytes, expires: int) -> ListedTask | None:
    """Decode the listed fields of a row; None if it is unreadable, as with `read_head`."""
    try:
        return unpack_listed(head, expires)
    except StoreUnavailable:
        return None


def read_head(
    head: bytes, holder: str | None, until: int, expires: int | None = None, caller: bytes | None = None
) -> TaskRecord | None:
    """Decode the head of one row of many; None if it is unreadable, so that it does not hide the
    others.
    """
    try:
        return unpack_head(head, unpack_lease(holder, until), expires, caller)
    except StoreUnavailable:
        return None


def _removed(
    _: int, id: TaskId, head: bytes, holder: str | None, until: int, caller: bytes | None, status: str, *counted: Any
) -> PurgedRow:
    context, size, unfinished, subject, tenant, tool, upstream, expires = counted
    keys = CapKeys(context, subject, tenant, tool, upstream)
    record = read_head(head, holder, until, expires, caller)
    return PurgedRow(id, holder, record, status, keys, size, expires if unfinished else None)


def _taken(cursor: sqlite3.Cursor, seq: int, lease: Lease) -> TakenRow:
    ((id, packed, expires, caller),) = cursor.execute(sql.TAKEN, (seq,)).fetchall()
    try:
        head = unpack_head(packed, lease, expires, caller)
        # Parameters may be large, and only a call that runs needs them.
        ((params,),) = cursor.execute(sql.LOAD_PARAMS, (seq,)).fetchall() if head.is_resumable else ((None,),)
        return TakenRow(id, lease.holder, head if params is None else with_bodies(head, unpack_text(params), None))
    except StoreUnavailable:
        return TakenRow(id, lease.holder, None)


def pack_lease(lease: Lease | None) -> tuple[str | None, int]:
    """Encode a lease as its two columns."""
    return (None, NO_LEASE) if lease is None else (lease.holder, pack_time(lease.until))
