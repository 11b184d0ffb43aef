"""The writes of a SQLite store: each function returns the work that `SqliteWriter` runs in a
transaction.

Work runs statements over a cursor; it knows no loop, no thread and no commit. It compares revisions
and times; of a status it knows only whether it is terminal. Owner, parameters, creation and expiry
of a record never change after its insert.
"""

import sqlite3
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from taskgate.domain.listing import ListedTask
from taskgate.domain.record import Lease, OwnerKey, TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.stores.capacity import CapKeys
from taskgate.stores.codec import (
    longer_lease,
    pack_head,
    pack_outcome,
    pack_text,
    pack_time,
    pack_times,
    unpack_head,
    unpack_listed,
    unpack_text,
    unpack_time,
    with_bodies,
)
from taskgate.stores.sqlite import statements as sql

NO_LEASE = 0
"""The `lease_until` of a record without a lease."""

_BEFORE_ALL = (-(2**63), 0)
"""A position before every record, by creation and row."""


class SwapResult(NamedTuple):
    """A successful swap.

    `held_by` is the holder of the lease before it, `lease` the lease after it. `was_unfinished` is
    about the record before it. `size` is the number of body bytes that it added.
    """

    held_by: str | None
    lease: Lease | None
    was_unfinished: bool
    size: int


class TakenRow(NamedTuple):
    """A row that was taken over, and the holder of its lease; the record is None if it is
    unreadable.
    """

    id: TaskId
    holder: str | None
    record: TaskRecord | None


class PurgedRow(NamedTuple):
    """A removed row, as TakenRow, and what it counted under caps; `expires` is None if it had
    ended.
    """

    id: TaskId
    holder: str | None
    record: TaskRecord | None
    keys: CapKeys
    size: int
    expires: int | None


class RecordKeys(NamedTuple):
    """The digests that a record counts under, and the same ones as the columns of its row.

    The driver takes a bytearray, a str and an int as they are. For any other type it first searches
    an adapter, which takes as long as to bind ten of these.
    """

    caps: CapKeys
    columns: tuple[bytearray | None, ...]


@lru_cache(maxsize=1024)
def keys_of(owner: OwnerKey, tenant: str | None, tool: str) -> RecordKeys:
    """The digests of the records of an owner, a tenant and a tool."""
    context, mount = owner
    digests = (
        sql.context_digest(context),
        None if tenant is None else sql.tenant_digest(tenant),
        sql.tool_digest(mount, tool),
        sql.upstream_digest(mount),
    )
    columns = (sql.owner_digest(owner), *digests)
    return RecordKeys(CapKeys(*digests), tuple(None if each is None else bytearray(each) for each in columns))


class KnownRow:
    """A row that is known without a look into the file: a head, the number of its row, its keys, and
    its expiry.

    `seq` is 0 if only the head is known.
    """

    __slots__ = ("expires", "head", "keys", "seq")

    def __init__(self, head: TaskRecord, seq: int = 0, keys: CapKeys | None = None, expires: int = 0) -> None:
        self.head = head
        self.seq = seq
        self.keys = keys
        self.expires = expires


def insert(
    record: TaskRecord, keys: RecordKeys, size: int, created: int, expires: int
) -> Callable[[sqlite3.Cursor], int]:
    """Insert a record with its keys and size, and return the number of its row; `created` and
    `expires` are its times as stored.
    """
    params = None if record.call.params is None else bytearray(pack_text(record.call.params))
    outcome = None if record.outcome is None else pack_outcome(record.outcome)
    updated = created if record.updated_at == record.created_at else pack_time(record.updated_at)
    digest, status = record.idempotency_digest, record.status
    holder, until = _pack_lease(record.lease)
    row = (
        record.id,
        *keys.columns,
        None if digest is None else sql.repeat_digest(record.owner, digest),
        created,
        updated,
        expires,
        0 if status.is_terminal else 1,
        str(status),
        1 if record.tool_error else 0,
        record.revision,
        holder,
        until,
        size,
        bytearray(pack_head(record, (created, updated))),
    )

    def work(cursor: sqlite3.Cursor) -> int:
        seq = cursor.execute(sql.INSERT_TASK, row).lastrowid
        assert seq is not None, "a row was inserted"
        if params is not None:
            cursor.execute(sql.INSERT_PARAMS, (seq, params))
        if outcome is not None:
            cursor.execute(sql.PUT_OUTCOME, (seq, *outcome))
        return seq

    return work


def swap(
    record: TaskRecord, expected: int, known: KnownRow | None = None
) -> Callable[[sqlite3.Cursor], SwapResult | None]:
    """Replace the record at revision `expected`; None if there is none.

    `known` is its row before, if that is cached: then the end of a task need not search the row.
    """
    times = created, updated = pack_times(record)
    head = bytearray(pack_head(record, times))
    unfinished, status, tool_error = (
        0 if record.status.is_terminal else 1,
        str(record.status),
        1 if record.tool_error else 0,
    )
    outcome = None if record.outcome is None else pack_outcome(record.outcome)
    size = 0 if outcome is None else len(outcome[1])

    def work(cursor: sqlite3.Cursor) -> SwapResult | None:
        row = cursor.execute(sql.FIND_SWAPPED, (record.id, expected)).fetchone()
        if row is None:
            return None
        seq, is_named, held_by, until, *old_indexed = row
        lease = None if record.lease is None else longer_lease(unpack_lease(held_by, until), record.lease)
        holder, lease_until = _pack_lease(lease)
        indexed = updated, unfinished, status, tool_error
        if [until, *old_indexed] == [lease_until, *indexed]:
            cursor.execute(sql.UPDATE_HEAD, (record.revision, holder, size, head, seq))
        else:
            cursor.execute(sql.UPDATE_TASK, (*indexed, record.revision, holder, lease_until, size, head, seq))
        if outcome is not None:
            cursor.execute(sql.PUT_OUTCOME, (seq, *outcome))
        if is_named and record.idempotency_digest is None:
            cursor.execute(sql.FORGET_REPEAT, (seq,))
        return SwapResult(held_by, lease, bool(old_indexed[1]), size)

    if known is not None and not unfinished and _tells_all(known, record, expected):
        # A write that waits before this one may change the row: then it is searched.
        assert known.head.lease is not None
        held_by = known.head.lease.holder
        ended = (updated, status, tool_error, record.revision, size, head, known.seq, record.id, expected, held_by)

        def work_on_known(cursor: sqlite3.Cursor) -> SwapResult | None:
            if not cursor.execute(sql.END_KNOWN, ended).rowcount:
                return work(cursor)
            if outcome is not None:
                kind, body = outcome
                cursor.execute(sql.PUT_OUTCOME, (known.seq, kind, bytearray(body)))
            return SwapResult(held_by, None, True, size)

        return work_on_known
    if outcome is not None or updated != created:
        return work
    # No indexed column has changed since the insert, as at dispatch: one statement is enough,
    # unless the lease changed.
    holder, lease_until = _pack_lease(record.lease)
    unchanged = (record.revision, head, record.id, expected, status, tool_error, updated, holder, lease_until)

    def work_in_one_statement(cursor: sqlite3.Cursor) -> SwapResult | None:
        if cursor.execute(sql.UPDATE_UNCHANGED, unchanged).rowcount:
            return SwapResult(holder, record.lease, unfinished == 1, 0)
        return work(cursor)

    return work_in_one_statement


def _tells_all(known: KnownRow, ended: TaskRecord, expected: int) -> bool:
    """Whether a cached row says all that the end of its task needs: its number, its holder, and that
    it keeps its idempotency key.
    """
    head = known.head
    return (
        known.seq > 0
        and head.revision == expected
        and head.lease is not None
        and ended.lease is None
        and ended.idempotency_digest == head.idempotency_digest
    )


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
            cursor.executemany(sql.TAKE, [(*_pack_lease(lease), seq) for _, seq in rows])
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


def read_listed(head: bytes) -> ListedTask | None:
    """Decode the listed fields of a row; None if it is unreadable, as with `read_head`."""
    try:
        return unpack_listed(head)
    except StoreUnavailable:
        return None


def read_head(head: bytes, holder: str | None, until: int) -> TaskRecord | None:
    """Decode the head of one row of many; None if it is unreadable, so that it does not hide the
    others.
    """
    try:
        return unpack_head(head, unpack_lease(holder, until))
    except StoreUnavailable:
        return None


def _removed(
    _: int, id: TaskId, head: bytes, holder: str | None, until: int, context: bytes, size: int, *counted: Any
) -> PurgedRow:
    unfinished, tenant, tool, upstream, expires = counted
    keys = CapKeys(context, tenant, tool, upstream)
    return PurgedRow(id, holder, read_head(head, holder, until), keys, size, expires if unfinished else None)


def _taken(cursor: sqlite3.Cursor, seq: int, lease: Lease) -> TakenRow:
    ((id, packed),) = cursor.execute(sql.TAKEN, (seq,)).fetchall()
    try:
        head = unpack_head(packed, lease)
        # Parameters are large, and only a call that runs needs them.
        row = cursor.execute(sql.LOAD_PARAMS, (seq,)).fetchone() if head.is_resumable else None
        return TakenRow(id, lease.holder, head if row is None else with_bodies(head, unpack_text(row[0]), None))
    except StoreUnavailable:
        return TakenRow(id, lease.holder, None)


def _pack_lease(lease: Lease | None) -> tuple[str | None, int]:
    return (None, NO_LEASE) if lease is None else (lease.holder, pack_time(lease.until))
