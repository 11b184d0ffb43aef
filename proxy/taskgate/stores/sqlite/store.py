"""The store of records in one SQLite file that one process holds: `SqliteStore`.

`base` defines what the methods do, and what a head and bodies are. Writes share commits, which one
thread waits for; a write is acknowledged after its commit. Small reads run on the event loop, and so
do small writes, except their commit. Long ones (large bodies, counts, purges, a page that takes more
than a few steps to find) run on threads.

The store makes no decision about a task: SQL compares revisions and times, and a status is only a
name to it. Heads are cached, and counts for caps are in memory; both change when a write commits.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from taskgate.domain.limits import Cap
from taskgate.domain.listing import Page, Position, TaskFilter, TaskOrder
from taskgate.domain.record import Lease, OwnerKey, TaskId, TaskRecord, Transition
from taskgate.errors import StoreFault, StoreUnavailable
from taskgate.stores.base import ChangeBatch, Scan, SessionRecord, Store, StoreCensus, Watch
from taskgate.stores.change_feed import GONE
from taskgate.stores.codec import (
    LARGE,
    number_function,
    pack_name,
    pack_numbers,
    pack_peer,
    pack_reference,
    pack_time,
    unpack_bodies,
    unpack_head,
    unpack_peer,
    unpack_time,
)
from taskgate.stores.sqlite import statements as sql
from taskgate.stores.sqlite import writes
from taskgate.stores.sqlite.file import OpenFile
from taskgate.stores.sqlite.reader import (
    SqliteReader,
    census,
    find_owner,
    find_reference,
    load_large,
    load_page,
    load_transitions,
    page_query,
    scan,
)
from taskgate.stores.sqlite.state import KnownRow, StoreState
from taskgate.stores.sqlite.task_writes import InsertTask, SwapTask, keys_of
from taskgate.stores.sqlite.writer import SqliteWriter

log = logging.getLogger("taskgate.stores")


class SqliteStore:
    """A store in an open file, which it owns and closes.

    It belongs to the event loop that creates it.
    """

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._writer = SqliteWriter(file.writer, asyncio.get_running_loop())
        self._reader = SqliteReader(file.near, file.far)
        self._reference_of = file.reference_of
        self._number_of = number_function(file.reference_of)
        self._state = StoreState(file.usage, file.statuses, self._number_of)
        self._usage = self._state.usage
        self._changes = self._state.changes
        self._rows = self._state.rows
        self._is_gone = False
        self._closing: asyncio.Task[None] | None = None

    # --- tasks ---------------------------------------------------------------------------------------------------

    async def insert(self, record: TaskRecord, *, caps: tuple[Cap, ...], subject: str | None = None) -> TaskId:
        """Store a new record.

        A record counts against caps from the start of its write, and until the write that ends it
        is committed. A write that fails takes that back.
        """
        # `repeat` is the digest of the owner's idempotency key.
        created, repeat = pack_time(record.created_at), None
        if record.idempotency_digest is not None:
            repeat = sql.repeat_digest(record.owner, record.idempotency_digest)
            earlier = await self._id_of_key(repeat, created)
            if earlier is not None:
                return earlier
        if self._is_gone:
            raise _gone()
        # No await between here and `begin`, so that check and insert are one step.
        keys = keys_of(record.owner, subject, record.tenant, record.call.tool)
        refusal = self._usage.refusal(keys.caps, caps, created)
        if refusal is not None:
            raise refusal.copy()
        insert = InsertTask(self._state, record, keys, created, repeat)
        inserted = self._writer.add(insert)
        try:
            insert.begin()
            await inserted
        finally:
            del inserted
        return record.id

    async def repeated(self, owner: OwnerKey, key: str, *, now: datetime) -> TaskId | None:
        return await self._id_of_key(sql.repeat_digest(owner, key), pack_time(now))

    def recall(self, owner: OwnerKey, id: TaskId, *, now: datetime) -> TaskRecord | None:
        known = self._rows.get(id)
        # A foreign record must take as long as a missing one: timing must not reveal it.
        if known is not None and known.head.owner == owner:
            return known.head if known.head.expires_at > now else None
        # On the event loop.
        where = self._number_of(id), pack_name(id), sql.owner_value(owner), pack_time(now)
        row = self._reader.row(sql.LOAD_HEAD, where)
        if row is None:
            return None
        packed, holder, until, expires, caller = row
        head = unpack_head(packed, writes.unpack_lease(holder, until), expires, caller)
        self._state.cache(id, KnownRow(head))
        return head

    async def load(self, owner: OwnerKey, id: TaskId, *, now: datetime, bodies: bool = False) -> TaskRecord | None:
        if not bodies:
            return self.recall(owner, id, now=now)
        values = (self._number_of(id), pack_name(id), sql.owner_value(owner), pack_time(now))
        row = self._reader.row(sql.LOAD_WHOLE, (LARGE, LARGE, *values))
        if row is None:
            return None
        packed, holder, until, expires, caller, revision, size, params, kind, outcome = row
        if size > LARGE:
            # `look` reads on the thread.
            return await self._reader.look(partial(load_large, values=values))
        known = self._rows.get(id)
        if known is not None and known.head.revision == revision:
            head = known.head
        else:
            head = unpack_head(packed, writes.unpack_lease(holder, until), expires, caller)
        return unpack_bodies(head, params, kind, outcome)

    async def owner_of(self, id: TaskId) -> OwnerKey | None:
        return await self._reader.look(partial(find_owner, values=(self._number_of(id), pack_name(id))))

    async def referred(self, reference: str) -> TaskId | None:
        try:
            number = pack_reference(reference)
        except ValueError:
            return None
        id = await self._reader.look(partial(find_reference, number=number))
        return id if id is not None and self._reference_of(id) == reference else None

    async def transitions(self, id: TaskId) -> tuple[Transition, ...]:
        return await self._reader.look(partial(load_transitions, values=(self._number_of(id), pack_name(id))))

    async def scan(
        self,
        *,
        unfinished: bool,
        wants: Callable[[TaskRecord], bool],
        after: str | None,
        limit: int,
        now: datetime,
        texts: Collection[bytes] = (),
    ) -> Scan:
        return await self._reader.look(partial(scan, unfinished, wants, texts, after, limit, pack_time(now)))

    async def swap(self, record: TaskRecord, *, expected: int) -> bool:
        return await self._writer.add(SwapTask(self._state, record, expected))

    async def page(
        self,
        owner: OwnerKey,
        *,
        where: TaskFilter,
        order: TaskOrder,
        after: Position | None,
        limit: int,
        now: datetime,
    ) -> Page:
        # One more than the limit shows whether there is a next page.
        query = page_query(owner, where, order, after, limit + 1, now, self._number_of)
        return await self._reader.glance(partial(load_page, query=query, limit=limit))

    async def changed(self, watch: Watch, *, timeout: timedelta) -> ChangeBatch:
        return await self._changes.changed(watch, timeout=timeout, look=self._revision)

    async def renew(self, holder: str, ids: frozenset[TaskId], until: datetime) -> None:
        values = (pack_time(until), holder, pack_numbers(map(self._number_of, ids)))
        await self._writer.submit(writes.count_changed(sql.RENEW, values), lambda _: self._state.forget(ids))

    # A write: it puts a new lease on the records that it returns.
    async def lapsed(
        self, *, holder: str, until: datetime, now: datetime, limit: int, heard: datetime | None = None
    ) -> tuple[TaskRecord, ...]:
        taking = writes.take_lapsed(Lease(holder=holder, until=until), now, limit)
        rows = await self._writer.submit(taking, lambda rows: self._state.forget(one.id for one in rows))
        return _records_of(rows, "taken over")

    async def purge(self, *, now: datetime, limit: int) -> tuple[TaskRecord, ...]:

        def on_commit(removed: tuple[writes.PurgedRow, ...]) -> None:
            self._state.forget(one.id for one in removed)
            for id, holder, head, status, keys, size, expires in removed:
                self._state.statuses[status] -= 1
                self._usage.add_bytes(keys, -size)
                if expires is not None:
                    self._usage.remove_task(keys, expires)
                self._changes.add_removed(id, owner=head.owner if head else None, holder=holder)

        removed = await self._writer.submit(writes.purge(now, limit), on_commit)
        return _records_of(removed, "removed")

    # --- host sessions -------------------------------------------------------------------------------------------

    async def put(self, record: SessionRecord) -> None:
        values = (record.id, sql.owner_digest(record.owner), pack_time(record.expires_at), pack_peer(record.peer))
        await self._writer.submit(writes.count_changed(sql.PUT_SESSION, values), is_brief=True)

    async def find(self, owner: OwnerKey, id: str, *, now: datetime) -> SessionRecord | None:
        row = self._reader.row(sql.FIND_SESSION, (pack_name(id), sql.owner_digest(owner), pack_time(now)))
        if row is None:
            return None
        peer, expires = row
        return SessionRecord(id=id, owner=owner, peer=unpack_peer(peer), expires_at=unpack_time(expires))

    async def touch(self, ids: frozenset[str], *, until: datetime) -> None:
        await self._writer.submit(writes.count_changed(sql.TOUCH_SESSIONS, (pack_time(until), sql.names(ids))))

    async def drop(self, owner: OwnerKey, id: str) -> bool:
        values = (pack_name(id), sql.owner_digest(owner))
        return await self._writer.submit(writes.count_changed(sql.DROP_SESSION, values), is_brief=True) > 0

    async def purge_sessions(self, *, now: datetime) -> int:
        return await self._writer.submit(writes.count_changed(sql.PURGE_SESSIONS, (pack_time(now),)))

    # --- the whole -----------------------------------------------------------------------------------------------

    async def census(self) -> StoreCensus:
        return await self._reader.look(partial(census, statuses=self._state.statuses.copy()))

    async def check(self) -> None:
        await self.verify()
        # Two commits: SQLite does not write data that the same transaction removes.
        for statement in (sql.PUT_CHECK, sql.DROP_CHECK):
            await self._writer.submit(writes.count_changed(statement, ()))

    async def verify(self) -> None:
        # While the file is missing, inserts fail. Running tasks may end: hosts can fetch their
        # results until a restart. An unreadable folder does not show whether the file is there.
        with suppress(OSError):
            self._is_gone = await self._reader.look(lambda _: self._file.is_gone())
        if self._is_gone:
            raise _gone()

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._changes.close()
        self._rows.clear()
        # The writer last: closing the last connection folds the write-ahead log into the file.
        await self._reader.close()
        await self._writer.close()
        self._file.unlock()

    async def _id_of_key(self, repeat: bytes, now: int) -> TaskId | None:
        """The id of the record with that idempotency key, after any write under way of such a one."""
        await self._state.pending_keys.wait(repeat)
        row = self._reader.row(sql.REPEATED, (repeat, now))
        return None if row is None else str(row[0])

    def _revision(self, id: TaskId) -> int:
        # The revision that `load` would return. A commit that this loop does not know yet must not
        # count. Else the waiter would load the old head again and again, and the loop would never
        # process the commit.
        if (known := self._rows.get(id)) is not None:
            return known.head.revision
        row = self._reader.row(sql.REVISION, (self._number_of(id), pack_name(id)))
        return GONE if row is None else int(row[0])


def _gone() -> StoreUnavailable:
    return StoreUnavailable("The store's file was removed or replaced", fault=StoreFault.FILE_GONE)


# `done` says in the log what was done to the unreadable ones.
def _records_of(rows: tuple[writes.TakenRow, ...] | tuple[writes.PurgedRow, ...], done: str) -> tuple[TaskRecord, ...]:
    records = tuple(one.record for one in rows if one.record is not None)
    if len(records) < len(rows):
        log.warning("%d unreadable stored tasks were %s", len(rows) - len(records), done)
    return records


_: type[Store] = SqliteStore
