"""The two writes of every task: `InsertTask` stores a record, and `SwapTask` replaces it.

Each knows its statements, and what its commit or failure changes in the memory of the store
(`StoreState`). It compares revisions and times; of a status it knows only whether it is terminal.
Owner, caller, parameters and creation of a record never change after its insert. Its expiry changes when it ends.

The driver takes a bytearray, a str and an int as they are. For any other type, None among them, it
first searches an adapter, which takes as long as to bind ten of these.
"""

import sqlite3
from functools import lru_cache
from typing import Final, NamedTuple

from taskgate.domain.record import Lease, OwnerKey, TaskRecord, evolve
from taskgate.stores.capacity import CapKeys, peer_size
from taskgate.stores.codec import (
    MICROSECOND,
    PACKED_TRANSITIONS,
    as_head,
    longer_lease,
    pack_caller,
    pack_head,
    pack_outcome,
    pack_text,
    pack_time,
    pack_transition,
)
from taskgate.stores.sqlite import statements as sql
from taskgate.stores.sqlite.state import KnownRow, StoreState
from taskgate.stores.sqlite.writer import Write
from taskgate.stores.sqlite.writes import NO_LEASE, pack_lease, unpack_lease

BRIEF: Final = 8 * 1024
"""Bytes up to which a body is written on the event loop. Larger ones are written on the thread."""

SMALL: Final = 1024
"""Bytes up to which a body is stored in the row of its task: that still fits on a page. A larger one has
a row of its own, which no later change of the task rewrites.
"""

_EMPTY: Final = bytearray()
"""In place of None: the insert stores NULL for an empty digest or body."""

_PackedOutcome = tuple[str, bytes | bytearray]
"""The kind of an outcome, and its body."""


class RecordKeys(NamedTuple):
    """The digests that a record counts under, and the same ones as the columns of its row."""

    caps: CapKeys
    columns: tuple[bytearray, ...]


@lru_cache(maxsize=1024)
def keys_of(owner: OwnerKey, subject: str | None, tenant: str | None, tool: str) -> RecordKeys:
    """The digests of the records of an owner, a person, a tenant and a tool."""
    context, mount = owner
    digests = (
        sql.context_digest(context),
        None if subject is None else sql.subject_digest(subject),
        None if tenant is None else sql.tenant_digest(tenant),
        sql.tool_digest(mount, tool),
        sql.upstream_digest(mount),
    )
    columns = (sql.owner_digest(owner), *digests)
    return RecordKeys(CapKeys(*digests), tuple(_EMPTY if each is None else bytearray(each) for each in columns))


class InsertTask(Write[int]):
    """The insert of a record; its value is the number of its row.

    `created` is when it was created, as stored, and `repeat` the digest of its owner's idempotency key.
    The record counts against caps from `begin`; a write that fails takes that back.
    """

    __slots__ = (
        "_created", "_expires", "_is_unfinished", "_keys", "_large_params", "_outcome", "_record", "_repeat", "_row",
        "_size", "_state",
    )  # fmt: skip

    def __init__(
        self, state: StoreState, record: TaskRecord, keys: RecordKeys, created: int, repeat: bytes | None
    ) -> None:
        call, outcome, status, lease = record.call, record.outcome, record.status, record.lease
        # A difference of times takes no call.
        expires, size = created + (record.expires_at - record.created_at) // MICROSECOND, 0
        self._large_params = self._outcome = None
        small_params, self.is_brief = _EMPTY, True
        if call.params is not None:
            params = bytearray(pack_text(call.params))
            size = len(params)
            self.is_brief = size <= BRIEF
            if 0 < size <= SMALL:
                small_params = params
            else:
                self._large_params = params
        if outcome is not None:
            self._outcome = _, body = pack_outcome(outcome)
            size += len(body)
            self.is_brief = self.is_brief and len(body) <= BRIEF
        if call.peer.capabilities:
            size += peer_size(call.peer)
        updated = created if record.updated_at == record.created_at else pack_time(record.updated_at)
        holder, until = ("", NO_LEASE) if lease is None else (lease.holder, pack_time(lease.until))
        self._state = state
        self._record = record
        self._keys = keys.caps
        self._created = created
        self._expires = expires
        self._repeat = repeat
        self._size = size
        self._is_unfinished = is_unfinished = not status.is_terminal
        self._row = (
            record.id,
            state.number_of(record.id),
            *keys.columns,
            _EMPTY if repeat is None else bytearray(repeat),
            created,
            updated,
            expires,
            1 if is_unfinished else 0,
            status._value_,
            1 if record.tool_error else 0,
            record.revision,
            holder,
            until,
            size,
            bytearray(pack_head(record, (created, updated))),
            small_params,
            "" if record.caller is None else pack_caller(record.caller),
        )

    def begin(self) -> None:
        """Count the record, and note its key, while it is on its way."""
        state = self._state
        state.usage.add_bytes(self._keys, self._size)
        if self._is_unfinished:
            state.usage.add_task(self._keys, self._expires)
        if self._repeat is not None:
            state.pending_keys.begin(self._repeat)

    def run(self, cursor: sqlite3.Cursor) -> int:
        seq = cursor.execute(sql.INSERT_TASK, self._row).lastrowid
        assert seq is not None, "a row was inserted"
        if self._large_params is not None:
            cursor.execute(sql.INSERT_PARAMS, (seq, self._large_params))
        if self._outcome is not None:
            _put_outcome(cursor, seq, self._outcome)
        return seq

    def committed(self, seq: int) -> None:
        state, record = self._state, self._record
        state.statuses[record.status._value_] += 1
        if self._repeat is not None:
            state.pending_keys.end(self._repeat)
        if record.dispatched and self._is_unfinished:
            # Its call is sent now, and it is read again when that has ended.
            state.cache(record.id, KnownRow(as_head(record), seq, self._keys, self._created, self._expires))
        lease = record.lease
        holder = None if lease is None else lease.holder
        state.changes.add(record.id, record.revision, owner=record.owner, holder=holder)

    def failed(self) -> None:
        state = self._state
        if self._repeat is not None:
            state.pending_keys.end(self._repeat)
        state.usage.add_bytes(self._keys, -self._size)
        if self._is_unfinished:
            state.usage.remove_task(self._keys, self._expires)


class SwapTask(Write[bool]):
    """The swap of a record for the one at revision `expected`; its value is False if there is none.

    One statement is enough for the end of a task whose row is cached. So it is for a swap that changes
    no indexed column, as at dispatch. It changes nothing if the row is not as expected. Then the row
    is searched: a write that waited before this one may have changed it.

    - `_known`: the row before, if that is cached
    - `_statement`, `_values`: the one statement, or None
    - `_size`: the number of body bytes that it adds
    - `_old_status`, `_was_unfinished`, `_held_by`, `_lease`: what the record was, the holder of its
      lease before, and the lease after the swap
    - `_found`: whether the row was searched, and then when it would have expired, `_expired`, and the
      digest of its person, `_subject`
    """

    __slots__ = (
        "_expected", "_expired", "_found", "_head", "_held_by", "_known", "_lease", "_old_status", "_outcome",
        "_record", "_size", "_state", "_statement", "_subject", "_updated", "_values", "_was_unfinished",
    )  # fmt: skip

    def __init__(self, state: StoreState, record: TaskRecord, expected: int) -> None:
        self.is_brief = True
        self._state = state
        self._record = record
        self._expected = expected
        known = self._known = state.rows.get(record.id)
        created = pack_time(record.created_at) if known is None or not known.seq else known.created
        updated = self._updated = created if record.updated_at == record.created_at else pack_time(record.updated_at)
        head = self._head = bytearray(pack_head(record, (created, updated)))
        outcome, size = record.outcome, 0
        self._outcome: _PackedOutcome | None = None
        if outcome is not None:
            kind, body = pack_outcome(outcome)
            size = len(body)
            self.is_brief = size <= BRIEF
            self._outcome = kind, bytearray(body) if self.is_brief else body
        self._size = size
        self._old_status = ""
        self._expired = 0
        self._was_unfinished = False
        self._held_by: str | None = None
        self._lease: Lease | None = None
        self._found = False
        self._subject: bytes | None = None
        self._statement: str | None = None
        status, tool_error = record.status, 1 if record.tool_error else 0
        if status.is_terminal:
            if known is not None and _tells_all(known, record, expected):
                assert known.head.lease is not None
                self._statement = sql.END_KNOWN
                in_row = self._outcome if self._outcome is not None and size <= SMALL else (None, None)
                expires = created + (record.expires_at - record.created_at) // MICROSECOND
                self._values: sql.Values = (
                    updated, expires, status._value_, tool_error, record.revision, size, head,
                    *in_row, known.seq, record.id, expected, known.head.lease.holder,
                )  # fmt: skip
        elif outcome is None and updated == created:
            holder, until = pack_lease(record.lease)
            self._statement = sql.UPDATE_UNCHANGED
            self._values = (
                record.revision, head, state.number_of(record.id), record.id, expected, status._value_, tool_error,
                updated, holder, until,
            )  # fmt: skip

    def run(self, cursor: sqlite3.Cursor) -> bool:
        if self._statement is None or not cursor.execute(self._statement, self._values).rowcount:
            return self._replace(cursor)
        known, lease = self._known, self._record.lease
        if self._statement is sql.END_KNOWN:
            assert known is not None
            lease = known.head.lease
            self._old_status = known.head.status._value_
            if self._outcome is not None and self._size > SMALL:
                cursor.execute(sql.PUT_OUTCOME, (*self._outcome, known.seq))
        else:
            self._old_status = self._record.status._value_
        self._was_unfinished = True
        self._held_by = None if lease is None else lease.holder
        self._lease = self._record.lease
        return True

    def _replace(self, cursor: sqlite3.Cursor) -> bool:
        """Search the row, and replace it."""
        record, size = self._record, self._size
        where = self._state.number_of(record.id), record.id, self._expected
        row = cursor.execute(sql.FIND_SWAPPED, where).fetchone()
        if row is None:
            return False
        self._found = True
        seq, is_named, self._subject, held_by, until, expires, *old_indexed = row
        lease = None if record.lease is None else longer_lease(unpack_lease(held_by, until), record.lease)
        holder, lease_until = pack_lease(lease)
        unfinished, tool_error = 0 if record.status.is_terminal else 1, 1 if record.tool_error else 0
        indexed = self._updated, unfinished, record.status._value_, tool_error
        if [until, *old_indexed] == [lease_until, *indexed]:
            cursor.execute(sql.UPDATE_HEAD, (record.revision, holder, size, self._head, seq))
        else:
            cursor.execute(sql.UPDATE_TASK, (*indexed, record.revision, holder, lease_until, size, self._head, seq))
        self._expired, now_expires = expires, pack_time(record.expires_at)
        if expires != now_expires:
            cursor.execute(sql.SET_EXPIRY, (now_expires, seq))
        if self._outcome is not None:
            _put_outcome(cursor, seq, self._outcome)
        if unfinished and old_indexed[2] != record.status._value_:
            # The newest ones stay.
            cursor.execute(sql.ADD_TRANSITION, (pack_transition(record), -PACKED_TRANSITIONS, seq))
        if is_named and record.idempotency_digest is None:
            cursor.execute(sql.FORGET_REPEAT, (seq,))
        _, was_unfinished, self._old_status, _ = old_indexed
        self._was_unfinished, self._held_by, self._lease = bool(was_unfinished), held_by, lease
        return True

    def committed(self, was_swapped: bool) -> None:
        """Cache the record as it is in the file now, update the counts for caps, and notify the
        watches.
        """
        if not was_swapped:
            # Another swap was first.
            return
        state, record, known = self._state, self._record, self._known
        is_unfinished, was_unfinished = not record.status.is_terminal, self._was_unfinished
        keys: CapKeys | None = None
        if known is not None and known.keys is not None:
            seq, keys, created, expires = known.seq, known.keys, known.created, known.expires
        else:
            seq, created, expires = 0, 0, self._expired
            if self._found:
                keys = keys_of(record.owner, None, record.tenant, record.call.tool).caps
                keys = keys._replace(subject=self._subject)
        if keys is not None and self._size:
            state.usage.add_bytes(keys, self._size)
        state.statuses[self._old_status] -= 1
        state.statuses[record.status._value_] += 1
        # A row that was not searched changes no count.
        if keys is not None and is_unfinished is not was_unfinished:
            (state.usage.add_task if is_unfinished else state.usage.remove_task)(keys, expires)
        if is_unfinished:
            # It is read again before its next swap, if only to end it.
            head, lease = as_head(record), self._lease
            head = head if lease is head.lease else evolve(head, lease=lease)
            state.cache(record.id, KnownRow(head, seq, keys, created, expires))
        elif record.id in state.changes.by_task:
            # The request that waits for the end reads the head next.
            state.cache(record.id, KnownRow(as_head(record)))
        else:
            state.rows.pop(record.id, None)
        if was_unfinished:
            # The last change removes the lease.
            holder = self._held_by
            if holder is None and record.lease is not None:
                holder = record.lease.holder
            state.changes.add(record.id, record.revision, owner=record.owner, holder=holder)


def _put_outcome(cursor: sqlite3.Cursor, seq: int, outcome: _PackedOutcome) -> None:
    """Store an outcome in the row of its task, or in one of its own if it is large."""
    _, body = outcome
    is_small = len(body) <= SMALL
    cursor.execute(sql.SET_OUTCOME, (*(outcome if is_small else (None, None)), seq))
    if not is_small:
        cursor.execute(sql.PUT_OUTCOME, (*outcome, seq))


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
