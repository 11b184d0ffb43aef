"""Tasks in Redis or Valkey, shared by several processes: the whole Store, of which sessions are handed on.

Each verb is one round trip, but for pages of which much is passed over. What this process changes it hears of at once;
of the others it hears through the news.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final

from taskgate.domain.caps import Cap, CapScope
from taskgate.domain.listing import STATES, Page, Position, TaskFilter, TaskOrder
from taskgate.domain.record import Lease, OwnerKey, TaskId, TaskRecord, TaskStatus, altered
from taskgate.errors import StoreUnavailable, TooManyBytes, TooManyTasks
from taskgate.stores.base import ChangeBatch, SessionRecord, SessionStore, Store, StoreCensus, Watch
from taskgate.stores.capacity import TOO_MANY
from taskgate.stores.change_feed import GONE
from taskgate.stores.codec import as_head, pack_head, pack_text, pack_time, unpack_head, unpack_text, with_bodies
from taskgate.stores.redis.client import RedisClient, Script, Value
from taskgate.stores.redis.keys import KeyNames
from taskgate.stores.redis.records import rows
from taskgate.stores.redis.records.change_subscriber import ChangeSubscriber
from taskgate.stores.redis.records.pages import PageReader
from taskgate.stores.redis.records.withdrawals import Withdrawals

# --- heads of rows ---------------------------------------------------------------------------------------------------


SEEN: Final = 4096
"""How many are kept: of tasks that run here, and for who polls a task that does not change."""

log = logging.getLogger("taskgate.stores")


class HeadCache:
    """Heads as they were seen last. They are never taken for the truth: what was read is compared with them."""

    def __init__(self) -> None:
        self._seen: dict[TaskId, tuple[bytes, TaskRecord]] = {}

    def unpack(self, id: TaskId, head: bytes, lease: Lease | None) -> TaskRecord:
        """The record whose head was read. Raises StoreUnavailable where it cannot be."""
        seen = self._seen.get(id)
        if seen is None or seen[0] != head:
            return self.see(id, head, unpack_head(head, lease))
        record = seen[1]
        return record if record.lease == lease else self.see(id, head, altered(record, lease=lease))

    def see(self, id: TaskId, head: bytes, record: TaskRecord) -> TaskRecord:
        """Remember a record as a head."""
        if id not in self._seen and len(self._seen) >= SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[id] = (head, record)
        return record

    def forget(self, id: TaskId) -> None:
        """It will hardly be asked for again."""
        self._seen.pop(id, None)

    def clear(self) -> None:
        """Forget all."""
        self._seen.clear()


def read_head(head: bytes | None, lease: Lease | None, params: bytes | None = None) -> TaskRecord | None:
    """A record that is one of many; None where it cannot be read, which must not hide the others."""
    try:
        record = None if head is None else unpack_head(head, lease)
        return record if record is None or params is None else with_bodies(record, unpack_text(params), None)
    except StoreUnavailable:
        return None


def readable_records(records: list[TaskRecord | None], done: str) -> list[TaskRecord]:
    """Those that could be read; the operator is told of the others, with what was done to them."""
    found = [record for record in records if record is not None]
    if len(found) < len(records):
        log.warning("%d stored tasks that cannot be read were %s", len(records) - len(found), done)
    return found


# --- the store -------------------------------------------------------------------------------------------------------


NOT_KNOWN: Final = GONE - 1
"""Older than every revision."""

CHECK_MS: Final = 1000
"""How long what a check writes stays."""

_REFUSED: Final = {-1: "A task of that id is stored already", -2: "The task came to the store too late"}


class RedisStore:
    """A store that other processes change as well. Belongs to the event loop it is made on.

    `let_go` is awaited once, last in the close: whoever opened the connection closes it there. `within` is for how long
    after it was made a record can be inserted; for records that are made by the server's time.
    """

    def __init__(
        self,
        client: RedisClient,
        keys: KeyNames,
        *,
        sessions: SessionStore,
        changes: ChangeSubscriber,
        on_close: Callable[[], Awaitable[None]],
        within: timedelta | None = None,
    ) -> None:
        self._client = client
        self._within = within
        self._root = keys.of("")
        self._sessions = sessions
        self._changes = changes
        self._let_go = on_close
        self._pages = PageReader(client, self._root)
        self._heads = HeadCache()
        self._withdrawals = Withdrawals(client, self._root, changes)
        self._closing: asyncio.Task[None] | None = None

    # --- tasks ---------------------------------------------------------------------------------------------------

    async def insert(self, record: TaskRecord, *, caps: tuple[Cap, ...]) -> TaskId:
        """See TaskStore.insert."""
        self._check()
        asked = tuple(cap for cap in caps if record.tenant is not None or cap.scope is not CapScope.TENANT)
        head, mark = pack_head(record), self._changes.mark()
        arguments = rows.inserted(self._root, mark, record, asked, head=head, within=self._within)
        try:
            end = await self._change(rows.INSERT, record, mark, arguments)
        except (StoreUnavailable, asyncio.CancelledError):
            # Who comes again with its name is to find it; nobody would find another, and yet it would be run.
            if record.repeat_key is None:
                self._withdrawals.add(record.id, mark)
            raise
        if isinstance(end, bytes):
            return unpack_text(end)
        if end < 0:
            raise StoreUnavailable(_REFUSED[end])
        if end:
            raise _refusal(asked[end - 1])
        self._heads.see(record.id, head, as_head(record))
        self._hear(record)
        return record.id

    async def repeated(self, owner: OwnerKey, key: str, *, now: datetime) -> TaskId | None:
        """See TaskStore.repeated."""
        self._check()
        value = await self._client.do("GET", f"{self._root}repeat:{rows.repeat_name(owner, key)}")
        if value is None:
            return None
        ends, _, id = value.partition(b" ")
        return unpack_text(id) if rows.unpack_moment(ends) > now else None

    async def load(self, owner: OwnerKey, id: TaskId, *, now: datetime, bodies: bool = False) -> TaskRecord | None:
        """See TaskStore.load."""
        values = await self._fields(id, rows.WHOLE if bodies else rows.HEAD)
        head, kept_owner, holder, until, *rest = values
        if head is None or kept_owner != rows.owner_name(owner).encode():
            return None
        record = self._heads.unpack(id, head, rows.unpack_lease(holder, until))
        if record.expires_at <= now:
            return None
        return rows.unpack_bodies(record, *rest) if bodies else record

    async def owner_of(self, id: TaskId) -> OwnerKey | None:
        """See TaskStore.owner_of."""
        (head,) = await self._fields(id, ("head",))
        return None if head is None else unpack_head(head, None).owner

    async def swap(self, record: TaskRecord, *, expected: int) -> bool:
        """See TaskStore.swap."""
        self._check()
        head, mark = pack_head(record), self._changes.mark()
        arguments = rows.swapped(self._root, mark, record, expected, head=head)
        end = await self._change(rows.SWAP, record, mark, arguments)
        if end is None:
            return False
        held_by, was_open = (b"", b"1") if end == 1 else end
        if record.status.is_terminal:
            self._heads.forget(record.id)
        else:
            # It is looked at again before it is moved again, if only to be ended.
            self._heads.see(record.id, head, as_head(record))
        if was_open:
            self._hear(record, held_by=held_by)
        return True

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
        self._check()
        return await self._pages.read(owner, where, order, after, limit, now)

    async def changed(self, watch: Watch, *, timeout: timedelta) -> ChangeBatch:
        """See TaskStore.changed."""
        self._check()
        return await self._changes.changed(watch, timeout=timeout, look=self._revision)

    async def renew(self, holder: str, ids: frozenset[TaskId], until: datetime) -> None:
        """See TaskStore.renew."""
        self._check()
        mine = [id for id in ids if id.isprintable()]
        if mine:
            await self._client.run(
                rows.RENEW, (self._root + "open",), (self._root, pack_text(holder), pack_time(until), *mine)
            )

    async def lapsed(self, *, holder: str, until: datetime, now: datetime, limit: int) -> tuple[TaskRecord, ...]:
        """See TaskStore.lapsed. A record that nobody holds counts as lapsed."""
        self._check()
        lease, found = Lease(holder=holder, until=until), list[TaskRecord]()
        while len(found) < limit:
            wanted = limit - len(found)
            arguments = (self._root, pack_text(holder), pack_time(until), pack_time(now), wanted)
            met = await self._client.run(rows.LAPSED, (self._root + "open",), arguments, durable=True)
            read = [read_head(head, lease, params) for _, head, params in met]
            found += readable_records(read, "taken over")
            if len(met) < wanted:
                break
        return tuple(found)

    async def purge(self, *, now: datetime, limit: int) -> tuple[TaskRecord, ...]:
        """See TaskStore.purge."""
        self._check()
        arguments: list[Value] = [self._root, self._changes.mark(), pack_time(now), limit, *rows.ALL_STATES]
        removed = await self._client.run(rows.PURGE, (self._root + "open",), arguments)
        return tuple(readable_records([self._removed(*row) for row in removed], "removed"))

    # --- host sessions -------------------------------------------------------------------------------------------

    async def put(self, record: SessionRecord) -> None:
        """See SessionStore.put."""
        self._check()
        await self._sessions.put(record)

    async def find(self, owner: OwnerKey, id: str, *, now: datetime) -> SessionRecord | None:
        """See SessionStore.find."""
        self._check()
        return await self._sessions.find(owner, id, now=now)

    async def touch(self, ids: frozenset[str], *, until: datetime) -> None:
        """See SessionStore.touch."""
        self._check()
        await self._sessions.touch(ids, until=until)

    async def drop(self, owner: OwnerKey, id: str) -> bool:
        """See SessionStore.drop."""
        self._check()
        return await self._sessions.drop(owner, id)

    async def purge_sessions(self, *, now: datetime) -> int:
        """See SessionStore.purge_sessions."""
        self._check()
        return await self._sessions.purge_sessions(now=now)

    # --- the whole -----------------------------------------------------------------------------------------------

    async def census(self) -> StoreCensus:
        """See Store.census; the size is not known: what else the server holds is nobody's here."""
        self._check()
        counts = await self._client.run(rows.COUNT, (self._root + "open",), (self._root, *rows.ALL_STATES))
        tasks = dict.fromkeys(TaskStatus, 0)
        for state, there in zip(STATES, counts, strict=True):
            tasks[state.status] += there
        return StoreCensus(tasks=tasks)

    async def check(self) -> None:
        """See Store.check."""
        self._check()
        await self._client.do("SET", self._root + "check", "", "PX", CHECK_MS, durable=True)

    async def verify(self) -> None:
        """See Store.verify; whether its server keeps what it is given is asked when it is opened."""

    async def close(self) -> None:
        """See Store.close."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._heads.clear()
        await self._withdrawals.close()
        await self._changes.close()
        await self._let_go()

    def _check(self) -> None:
        if self._closing is not None:
            raise StoreUnavailable("The store is closed")

    async def _change(self, script: Script, record: TaskRecord, mark: str, arguments: list[Value]) -> Any:
        """Run a script that changes one task, and again where that may have been done: its mark tells."""
        task = (self._task(record.id),)
        try:
            try:
                return await self._client.run(script, task, arguments, durable=True)
            except StoreUnavailable:
                return await self._client.run(script, task, arguments, durable=True)
        except (StoreUnavailable, asyncio.CancelledError):
            # Nobody knows now. Whoever waits looks again, and once more should it be told to have been done.
            self._changes.doubt(mark)
            self._hear(record)
            raise

    async def _fields(self, id: TaskId, names: tuple[str, ...]) -> list[Any]:
        """Fields of a task; None for each that it does not have."""
        self._check()
        if not id.isprintable():
            return [None] * len(names)
        fields: list[Any] = await self._client.do("HMGET", self._task(id), *names)
        return fields

    async def _revision(self, id: TaskId) -> int:
        try:
            (revision,) = await self._fields(id, ("rev",))
        except StoreUnavailable:
            if self._closing is None:
                raise
            # The wait has been ended, and there is nothing to tell.
            return NOT_KNOWN
        return GONE if revision is None else rows.unpack_number(revision)

    def _task(self, id: TaskId) -> str:
        return f"{self._root}task:{id}"

    def _removed(self, name: bytes, owner: bytes, head: bytes | None, holder: bytes, until: bytes) -> TaskRecord | None:
        id = unpack_text(name)
        self._heads.forget(id)
        try:
            lease = rows.unpack_lease(holder, until)
        except StoreUnavailable:
            head, lease = None, None
        # Whose it was may be damaged, too: then it is nobody's.
        self._changes.note(id, GONE, owner=owner.decode(errors="replace"), holder=lease.holder if lease else None)
        return read_head(head, lease)

    def _hear(self, record: TaskRecord, *, held_by: bytes = b"") -> None:
        """Tell those who wait here of a record, and who held it before: the last change takes the lease away."""
        holder = unpack_text(held_by) or (record.lease.holder if record.lease else None)
        self._changes.note(record.id, record.revision, owner=rows.owner_name(record.owner), holder=holder)


def _refusal(cap: Cap) -> TooManyTasks | TooManyBytes:
    if cap.bytes:
        return TooManyBytes(cap.limit, scope=cap.scope.value)
    return TooManyTasks(cap.limit, TOO_MANY[cap.scope], scope=cap.scope.value)


_: type[Store] = RedisStore
