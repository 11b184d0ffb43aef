"""Tasks in Redis or Valkey, shared by several processes: the whole Store, of which sessions are handed on.

Each verb is one round trip, but for pages of which much is passed over. What this process changes it hears of at once;
of the others it hears through the news. What must not live here: how a task lies there (`rows`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final

from taskgate.domain.caps import Cap, CapScope
from taskgate.domain.listing import STATES, Page, Position, TaskFilter, TaskOrder
from taskgate.domain.record import Lease, OwnerKey, TaskId, TaskRecord, TaskStatus
from taskgate.errors import StoreUnavailable, TooManyBytes, TooManyTasks
from taskgate.stores.base import (
    Census,
    News,
    SessionRecord,
    SessionStore,
    Store,
    Watch,
)
from taskgate.stores.codec import as_head, pack_head, pack_text, pack_time, unpack_head, unpack_text
from taskgate.stores.journal import GONE
from taskgate.stores.redis.connection import RedisConnection, Script, Value
from taskgate.stores.redis.keys import KeyNames
from taskgate.stores.redis.records import heads, rows
from taskgate.stores.redis.records.heads import Heads
from taskgate.stores.redis.records.news import Newsfeed
from taskgate.stores.redis.records.pages import Pages
from taskgate.stores.redis.records.withdrawals import Withdrawals
from taskgate.stores.room import TOO_MANY

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
        connection: RedisConnection,
        keys: KeyNames,
        *,
        sessions: SessionStore,
        news: Newsfeed,
        let_go: Callable[[], Awaitable[None]],
        within: timedelta | None = None,
    ) -> None:
        self._connection = connection
        self._within = within
        self._root = keys.of("")
        self._sessions = sessions
        self._news = news
        self._let_go = let_go
        self._pages = Pages(connection, self._root)
        self._heads = Heads()
        self._withdrawals = Withdrawals(connection, self._root, news)
        self._closing: asyncio.Task[None] | None = None

    # --- tasks ---------------------------------------------------------------------------------------------------

    async def insert(self, record: TaskRecord, *, caps: tuple[Cap, ...]) -> TaskId:
        """See TaskStore.insert."""
        self._check()
        asked = tuple(cap for cap in caps if record.tenant is not None or cap.scope is not CapScope.TENANT)
        head, mark = pack_head(record), self._news.mark()
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
        value = await self._connection.do("GET", f"{self._root}repeat:{rows.repeat_name(owner, key)}")
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
        head, mark = pack_head(record), self._news.mark()
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

    async def changed(self, watch: Watch, *, timeout: timedelta) -> News:
        """See TaskStore.changed."""
        self._check()
        return await self._news.changed(watch, timeout=timeout, look=self._revision)

    async def renew(self, holder: str, ids: frozenset[TaskId], until: datetime) -> None:
        """See TaskStore.renew."""
        self._check()
        mine = [id for id in ids if id.isprintable()]
        if mine:
            await self._connection.run(
                rows.RENEW, (self._root + "open",), (self._root, pack_text(holder), pack_time(until), *mine)
            )

    async def lapsed(self, *, holder: str, until: datetime, now: datetime, limit: int) -> tuple[TaskRecord, ...]:
        """See TaskStore.lapsed. A record that nobody holds counts as lapsed."""
        self._check()
        lease, found = Lease(holder=holder, until=until), list[TaskRecord]()
        while len(found) < limit:
            wanted = limit - len(found)
            arguments = (self._root, pack_text(holder), pack_time(until), pack_time(now), wanted)
            met = await self._connection.run(rows.LAPSED, (self._root + "open",), arguments, durable=True)
            read = [heads.read(head, lease, params) for _, head, params in met]
            found += heads.readable(read, "taken over")
            if len(met) < wanted:
                break
        return tuple(found)

    async def purge(self, *, now: datetime, limit: int) -> tuple[TaskRecord, ...]:
        """See TaskStore.purge."""
        self._check()
        arguments: list[Value] = [self._root, self._news.mark(), pack_time(now), limit, *rows.ALL_STATES]
        removed = await self._connection.run(rows.PURGE, (self._root + "open",), arguments)
        return tuple(heads.readable([self._removed(*row) for row in removed], "removed"))

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

    async def census(self) -> Census:
        """See Store.census; the size is not known: what else the server holds is nobody's here."""
        self._check()
        counts = await self._connection.run(rows.COUNT, (self._root + "open",), (self._root, *rows.ALL_STATES))
        tasks = dict.fromkeys(TaskStatus, 0)
        for state, there in zip(STATES, counts, strict=True):
            tasks[state.status] += there
        return Census(tasks=tasks)

    async def check(self) -> None:
        """See Store.check."""
        self._check()
        await self._connection.do("SET", self._root + "check", "", "PX", CHECK_MS, durable=True)

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
        await self._news.close()
        await self._let_go()

    def _check(self) -> None:
        if self._closing is not None:
            raise StoreUnavailable("The store is closed")

    async def _change(self, script: Script, record: TaskRecord, mark: str, arguments: list[Value]) -> Any:
        """Run a script that changes one task, and again where that may have been done: its mark tells."""
        task = (self._task(record.id),)
        try:
            try:
                return await self._connection.run(script, task, arguments, durable=True)
            except StoreUnavailable:
                return await self._connection.run(script, task, arguments, durable=True)
        except (StoreUnavailable, asyncio.CancelledError):
            # Nobody knows now. Whoever waits looks again, and once more should it be told to have been done.
            self._news.doubt(mark)
            self._hear(record)
            raise

    async def _fields(self, id: TaskId, names: tuple[str, ...]) -> list[Any]:
        """Fields of a task; None for each that it does not have."""
        self._check()
        if not id.isprintable():
            return [None] * len(names)
        fields: list[Any] = await self._connection.do("HMGET", self._task(id), *names)
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
        self._news.note(id, GONE, owner=owner.decode(errors="replace"), holder=lease.holder if lease else None)
        return heads.read(head, lease)

    def _hear(self, record: TaskRecord, *, held_by: bytes = b"") -> None:
        """Tell those who wait here of a record, and who held it before: the last change takes the lease away."""
        holder = unpack_text(held_by) or (record.lease.holder if record.lease else None)
        self._news.note(record.id, record.revision, owner=rows.owner_name(record.owner), holder=holder)


def _refusal(cap: Cap) -> TooManyTasks | TooManyBytes:
    if cap.bytes:
        return TooManyBytes(cap.limit, scope=cap.scope.value)
    return TooManyTasks(cap.limit, TOO_MANY[cap.scope], scope=cap.scope.value)


_: type[Store] = RedisStore
