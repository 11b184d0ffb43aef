"""Records in one SQLite file that one process holds.

Writes share commits, which one thread waits for; a write is acknowledged after its commit. What is small is read and
written on the event loop, up to the commit; what may be long (large bodies, counts, purges) runs on threads, and so
does a page that takes more than a few steps to find. Nothing about a task is decided here: SQL compares revisions and
times, and knows no status but by its name.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from taskgate.domain.caps import Cap
from taskgate.domain.listing import Page, Position, TaskFilter, TaskOrder
from taskgate.domain.record import Lease, Outcome, OwnerKey, TaskId, TaskRecord, altered, text_of
from taskgate.errors import StoreFault, StoreUnavailable
from taskgate.stores.base import ChangeBatch, SessionRecord, Store, StoreCensus, Watch
from taskgate.stores.capacity import CapKeys, record_size
from taskgate.stores.change_feed import GONE, ChangeFeed
from taskgate.stores.codec import LARGE, as_head, pack_peer, pack_time, unpack_head, unpack_peer, unpack_time
from taskgate.stores.sqlite import queries, writes
from taskgate.stores.sqlite import statements as sql
from taskgate.stores.sqlite.file import OpenFile
from taskgate.stores.sqlite.queries import page_statement
from taskgate.stores.sqlite.reader import SqliteReader
from taskgate.stores.sqlite.writer import SqliteWriter

# --- idempotency keys of inserts -------------------------------------------------------------------------------------


class PendingKeys:
    """The names of what is on its way."""

    def __init__(self) -> None:
        self._settling: dict[bytes, asyncio.Future[None]] = {}

    def begin(self, name: bytes | None) -> None:
        """A record is on its way; one without a name is passed over, here and below."""
        if name is not None:
            self._settling[name] = asyncio.get_running_loop().create_future()

    def end(self, name: bytes | None) -> None:
        """It is kept, or will not be."""
        if name is not None:
            self._settling.pop(name).set_result(None)

    async def wait(self, name: bytes) -> None:
        """Wait until nothing of that name is on its way; with no other step between that and the return."""
        while (settling := self._settling.get(name)) is not None:
            # Others wait for it, too.
            await asyncio.shield(settling)


# --- the store -------------------------------------------------------------------------------------------------------


BRIEF: Final = 8 * 1024
"""Bodies up to this size are written on the event loop, up to their commit."""

SEEN: Final = 4096
"""How many heads are kept in memory: of tasks that run here, and for who polls a task that does not change."""

log = logging.getLogger("taskgate.stores")


class SqliteStore:
    """A store in an open file, which it owns from here on. Belongs to the event loop it is made on."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._writer = SqliteWriter(file.writer, asyncio.get_running_loop())
        self._reader = SqliteReader(file.near, file.far)
        self._changes = ChangeFeed()
        self._usage = file.usage
        self._pending_keys = PendingKeys()
        # Heads as they were read or written, each until its record changes: nobody but this process writes the file.
        self._seen: dict[TaskId, TaskRecord] = {}
        self._is_gone = False
        self._closing: asyncio.Task[None] | None = None

    # --- tasks ---------------------------------------------------------------------------------------------------

    async def insert(self, record: TaskRecord, *, caps: tuple[Cap, ...]) -> TaskId:
        """See TaskStore.insert.

        A record that is being written takes room already, and one that is being ended does so until it has ended.
        """
        now, repeat = pack_time(record.created_at), None
        if record.repeat_key is not None:
            repeat = sql.repeat_digest(record.owner, record.repeat_key)
            earlier = await self._earlier(repeat, now)
            if earlier is not None:
                return earlier
        if self._is_gone:
            raise _gone()
        # Nothing is awaited from here until the record is on its way.
        keys = writes.cap_keys_of(record)
        refusal = self._usage.refusal(keys, caps, now)
        if refusal is not None:
            raise refusal
        await self._write(record, keys, repeat)
        return record.id

    async def repeated(self, owner: OwnerKey, key: str, *, now: datetime) -> TaskId | None:
        """See TaskStore.repeated."""
        return await self._earlier(sql.repeat_digest(owner, key), pack_time(now))

    async def load(self, owner: OwnerKey, id: TaskId, *, now: datetime, bodies: bool = False) -> TaskRecord | None:
        """See TaskStore.load."""
        # Of somebody else's it is not told sooner than of none that it is not there.
        if not bodies and (seen := self._seen.get(id)) is not None and seen.owner == owner:
            return seen if seen.expires_at > now else None
        values = (sql.name(id), sql.owner_digest(owner), pack_time(now))
        row = self._reader.row(sql.LOAD_HEAD, values)
        if row is None:
            return None
        head, holder, until, size = row
        if not bodies:
            return self._see(id, unpack_head(head, writes.unpack_lease(holder, until)))
        # Again with the head: what was looked up first is not the same moment.
        if size > LARGE:
            return await self._reader.look(partial(queries.load_large, values=values))
        row = self._reader.row(sql.LOAD_WHOLE, values)
        return None if row is None else writes.unpack_whole(row)

    async def owner_of(self, id: TaskId) -> OwnerKey | None:
        """See TaskStore.owner_of."""
        return await self._reader.look(partial(queries.find_owner, id=id))

    async def swap(self, record: TaskRecord, *, expected: int) -> bool:
        """See TaskStore.swap."""

        def tell(swapped: writes.SwapResult | None) -> None:
            if swapped is not None:
                self._moved(record, swapped)
                if swapped.was_unfinished:
                    self._changes.add_committed(record, held_by=swapped.held_by)

        swapping = self._writer.submit(writes.swap(record, expected), tell, is_brief=_is_brief(record.outcome))
        return await swapping is not None

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
        """See TaskStore.page."""
        # One more than asked for tells whether there is a next page.
        statement, values = page_statement(owner, where, order, after, limit + 1, now)
        return await self._reader.glance(partial(queries.load_page, statement=statement, values=values, limit=limit))

    async def changed(self, watch: Watch, *, timeout: timedelta) -> ChangeBatch:
        """See TaskStore.changed."""
        return await self._changes.changed(watch, timeout=timeout, look=self._revision)

    async def renew(self, holder: str, ids: frozenset[TaskId], until: datetime) -> None:
        """See TaskStore.renew."""
        values = (pack_time(until), holder, sql.names(ids))
        await self._writer.submit(writes.count_changed(sql.RENEW, values), lambda _: self._forget(ids))

    async def lapsed(self, *, holder: str, until: datetime, now: datetime, limit: int) -> tuple[TaskRecord, ...]:
        """See TaskStore.lapsed. A record that nobody holds counts as lapsed."""

        taking = writes.take_lapsed(Lease(holder=holder, until=until), now, limit)
        met = await self._writer.submit(taking, lambda met: self._forget(one.id for one in met))
        return _readable(met, "taken over")

    async def purge(self, *, now: datetime, limit: int) -> tuple[TaskRecord, ...]:
        """See TaskStore.purge."""

        def tell(removed: tuple[writes.PurgedRow, ...]) -> None:
            self._forget(one.id for one in removed)
            for id, holder, head, keys, size, expires in removed:
                self._usage.add_bytes(keys.context, -size)
                if expires is not None:
                    self._usage.remove_task(keys, expires)
                self._changes.add_removed(id, owner=head.owner if head else None, holder=holder)

        removed = await self._writer.submit(writes.purge(now, limit), tell)
        return _readable(removed, "removed")

    # --- host sessions -------------------------------------------------------------------------------------------

    async def put(self, record: SessionRecord) -> None:
        """See SessionStore.put."""
        values = (record.id, sql.owner_digest(record.owner), pack_time(record.expires_at), pack_peer(record.peer))
        await self._writer.submit(writes.count_changed(sql.PUT_SESSION, values), is_brief=True)

    async def find(self, owner: OwnerKey, id: str, *, now: datetime) -> SessionRecord | None:
        """See SessionStore.find."""
        row = self._reader.row(sql.FIND_SESSION, (sql.name(id), sql.owner_digest(owner), pack_time(now)))
        if row is None:
            return None
        peer, expires = row
        return SessionRecord(id=id, owner=owner, peer=unpack_peer(peer), expires_at=unpack_time(expires))

    async def touch(self, ids: frozenset[str], *, until: datetime) -> None:
        """See SessionStore.touch."""
        await self._writer.submit(writes.count_changed(sql.TOUCH_SESSIONS, (pack_time(until), sql.names(ids))))

    async def drop(self, owner: OwnerKey, id: str) -> bool:
        """See SessionStore.drop."""
        values = (sql.name(id), sql.owner_digest(owner))
        return await self._writer.submit(writes.count_changed(sql.DROP_SESSION, values), is_brief=True) > 0

    async def purge_sessions(self, *, now: datetime) -> int:
        """See SessionStore.purge_sessions."""
        return await self._writer.submit(writes.count_changed(sql.PURGE_SESSIONS, (pack_time(now),)))

    # --- the whole -----------------------------------------------------------------------------------------------

    async def census(self) -> StoreCensus:
        """See Store.census; the size is the file's, without what its log holds."""
        return await self._reader.look(queries.count)

    async def check(self) -> None:
        """See Store.check; in two commits, since SQLite does not write what a transaction has removed again."""
        await self.verify()
        for statement in (sql.PUT_CHECK, sql.DROP_CHECK):
            await self._writer.submit(writes.count_changed(statement, ()))

    async def verify(self) -> None:
        """See Store.verify.

        While the file is gone no task is made. What runs may end: hosts that are there can fetch it until a restart.
        """
        # A folder that cannot be looked at tells nothing of what is in it.
        with suppress(OSError):
            self._is_gone = await self._reader.look(lambda _: self._file.is_gone())
        if self._is_gone:
            raise _gone()

    async def close(self) -> None:
        """See Store.close."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._changes.close()
        self._seen.clear()
        # The writer last: whoever closes the last connection folds the log into the file.
        await self._reader.close()
        await self._writer.close()
        self._file.unlock()

    def _write(self, record: TaskRecord, keys: CapKeys, repeat: bytes | None) -> "asyncio.Future[None]":
        """Send a record on its way, with room that is given back should it not arrive."""
        size = record_size(record)
        expires = None if record.status.is_terminal else pack_time(record.expires_at)

        def told(_: None) -> None:
            self._pending_keys.end(repeat)
            self._changes.add_committed(record)

        def undone() -> None:
            self._pending_keys.end(repeat)
            self._usage.add_bytes(keys.context, -size)
            if expires is not None:
                self._usage.remove_task(keys, expires)

        is_brief = _is_small(record.call.params) and _is_brief(record.outcome)
        inserted = self._writer.submit(writes.insert(record, keys, size), told, undone=undone, is_brief=is_brief)
        self._usage.add_bytes(keys.context, size)
        if expires is not None:
            self._usage.add_task(keys, expires)
        self._pending_keys.begin(repeat)
        return inserted

    async def _earlier(self, repeat: bytes, now: int) -> TaskId | None:
        await self._pending_keys.wait(repeat)
        row = self._reader.row(sql.REPEATED, (repeat, now))
        return None if row is None else str(row[0])

    def _moved(self, record: TaskRecord, swapped: writes.SwapResult) -> None:
        """Remember a record that was swapped, as it lies in the file now."""
        is_unfinished = not record.status.is_terminal
        if swapped.size:
            self._usage.add_bytes(sql.context_digest(record.owner.context), swapped.size)
        if is_unfinished is not swapped.was_unfinished:
            (self._usage.add_task if is_unfinished else self._usage.remove_task)(
                writes.cap_keys_of(record), pack_time(record.expires_at)
            )
        if is_unfinished:
            # It is looked at again before it is moved again, if only to be ended.
            head = as_head(record)
            self._see(record.id, head if swapped.lease is head.lease else altered(head, lease=swapped.lease))
        else:
            self._seen.pop(record.id, None)

    def _see(self, id: TaskId, head: TaskRecord) -> TaskRecord:
        if id not in self._seen and len(self._seen) >= SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[id] = head
        return head

    def _forget(self, ids: Iterable[TaskId]) -> None:
        for id in ids:
            self._seen.pop(id, None)

    def _revision(self, id: TaskId) -> int:
        # As `load` would answer: a commit that this loop has not heard of yet is no news, or who waits for news would
        # be sent to look at the old head again and again, and the loop would never come to hear of it.
        if (seen := self._seen.get(id)) is not None:
            return seen.revision
        row = self._reader.row(sql.REVISION, (sql.name(id),))
        return GONE if row is None else int(row[0])


def _gone() -> StoreUnavailable:
    return StoreUnavailable("The store's file was removed or replaced", fault=StoreFault.FILE_GONE)


def _is_small(body: str | None) -> bool:
    return body is None or len(body) <= BRIEF


def _is_brief(outcome: Outcome | None) -> bool:
    return outcome is None or len(text_of(outcome)) <= BRIEF


def _readable(met: tuple[writes.TakenRow, ...] | tuple[writes.PurgedRow, ...], done: str) -> tuple[TaskRecord, ...]:
    records = tuple(one.record for one in met if one.record is not None)
    if len(records) < len(met):
        log.warning("%d stored tasks that cannot be read were %s", len(met) - len(records), done)
    return records


_: type[Store] = SqliteStore
