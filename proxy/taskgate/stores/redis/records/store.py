"""The store in Redis or Valkey that several processes share: `RedisStore`.

`base` defines what the methods do, and what a head and bodies are; `rows` has the layout of tasks.
Each operation is one round trip, except a page that skips many records, a scan, and a look-up by
reference. The process learns of its own changes at once, and of those of others through
`change_subscriber`.

    session:NAME    HASH  owner (a digest), peer, expires; a name is the digest of an id
    sessions        ZSET  names of host sessions by expiry

Each change has a *mark*, unique to it, which the row keeps until its next change. If a change got no
answer, it is sent once more: by the mark, the script sees whether the first run did it. An insert
without an answer is withdrawn in the background (`Withdrawals`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextvars import Context
from datetime import datetime, timedelta
from typing import Any, Final

from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.listing import STATES, Page, Position, TaskFilter, TaskOrder
from taskgate.domain.record import (
    Lease,
    OwnerKey,
    TaskId,
    TaskRecord,
    TaskStatus,
    Transition,
    evolve,
    transitions_of,
)
from taskgate.errors import StoreUnavailable, TooManyBytes, TooManyTasks
from taskgate.stores.base import ChangeBatch, Scan, SessionRecord, Store, StoreCensus, Watch
from taskgate.stores.change_feed import GONE
from taskgate.stores.codec import (
    as_head,
    pack_head,
    pack_peer,
    pack_text,
    pack_time,
    unpack_head,
    unpack_peer,
    unpack_text,
    unpack_transitions,
)
from taskgate.stores.redis.client import RedisClient, Script, Value, read_script
from taskgate.stores.redis.options import KeyNames, digest
from taskgate.stores.redis.records import rows
from taskgate.stores.redis.records.change_subscriber import ChangeSubscriber
from taskgate.stores.redis.records.pages import PageReader
from taskgate.stores.references import ReferenceOf, plain_reference
from taskgate.system.background import cancel_and_wait

_PAUSE: Final = 0.5
"""Seconds between two attempts."""

_ATTEMPTS: Final = 10
"""Answers of the server that a record is missing or changed, before it is given up. The insert may
still be on its way to the server, so one such answer is not enough."""

_MOST: Final = 4096
"""Records that are remembered. Further ones are not removed. When their leases lapse, they end or, where
they wait for a permit, run."""


class Withdrawals:
    """The records to remove, each with the mark of its insert and the attempts that are left.

    `_task` is the background task; None while there is nothing to remove. For one event loop.
    """

    def __init__(self, client: RedisClient, root: str, changes: ChangeSubscriber) -> None:
        self._client = client
        self._root = root
        self._changes = changes
        self._pending: dict[TaskId, tuple[str, int]] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, id: TaskId, mark: str) -> None:
        """Remove the task that was inserted with `mark`, in the background, once the store answers."""
        if self._closed or len(self._pending) >= _MOST:
            return
        self._pending[id] = (mark, _ATTEMPTS)
        if self._task is None:
            # An empty context: the task serves all records, not only the first request.
            self._task = asyncio.create_task(self._withdraw(), name="taskgate-store-withdrawals", context=Context())

    async def close(self) -> None:
        """Stop removing; what is left stays in the store."""
        self._closed = True
        if self._task is not None:
            await cancel_and_wait(self._task)

    async def _withdraw(self) -> None:
        while self._pending and not self._closed:
            await asyncio.sleep(_PAUSE)
            try:
                for id in tuple(self._pending):
                    await self._withdraw_one(id)
            except StoreUnavailable:
                # No attempt is used up: the server has not answered.
                continue
        self._task = None

    async def _withdraw_one(self, id: TaskId) -> None:
        inserted_as, attempts = self._pending[id]
        task = f"{self._root}task:{id}"
        # The removal is a change itself, with a mark of its own.
        was_removed = await self._client.run(
            rows.WITHDRAW, (task,), (self._root, self._changes.mark(), id, inserted_as), durable=True
        )
        if was_removed or attempts == 1:
            del self._pending[id]
        else:
            self._pending[id] = (inserted_as, attempts - 1)


# --- heads of rows ---------------------------------------------------------------------------------------------------


SEEN: Final = 4096
"""Heads in the cache: of tasks that run here, and of unchanged tasks that hosts poll."""

log = logging.getLogger("taskgate.stores")


class HeadCache:
    """The last decoded heads, each with its bytes, so that an unchanged head is not decoded again.

    A head is always read from the server first: other processes may have changed it.
    """

    def __init__(self) -> None:
        self._cached: dict[TaskId, tuple[bytes, TaskRecord]] = {}

    def unpack(self, id: TaskId, head: bytes, lease: Lease | None, expires: int, caller: bytes | None) -> TaskRecord:
        """Decode a head that was read. Raises StoreUnavailable if it is unreadable."""
        cached = self._cached.get(id)
        if cached is None or cached[0] != head:
            return self.add(id, head, unpack_head(head, lease, expires, caller))
        record = cached[1]
        return record if record.lease == lease else self.add(id, head, evolve(record, lease=lease))

    def add(self, id: TaskId, head: bytes, record: TaskRecord) -> TaskRecord:
        """Cache a record as a head."""
        if id not in self._cached and len(self._cached) >= SEEN:
            del self._cached[next(iter(self._cached))]
        self._cached[id] = (head, record)
        return record

    def forget(self, id: TaskId) -> None:
        """Drop a head that hosts will hardly request again."""
        self._cached.pop(id, None)

    def clear(self) -> None:
        """Drop all heads."""
        self._cached.clear()


def readable_records(records: list[TaskRecord | None], done: str) -> list[TaskRecord]:
    """The readable records; logs the number of the others, with `done` to them."""
    found = [record for record in records if record is not None]
    if len(found) < len(records):
        log.warning("%d unreadable stored tasks were %s", len(records) - len(found), done)
    return found


# --- the store -------------------------------------------------------------------------------------------------------


NOT_KNOWN: Final = GONE - 1
"""Older than every revision."""

CHECK_MS: Final = 1000
"""Milliseconds until the value of a check expires."""

_PUT_SESSION: Final = read_script("session_put.lua")
_TOUCH_SESSIONS: Final = read_script("session_touch.lua")
_DROP_SESSION: Final = read_script("session_drop.lua")
_PURGE_SESSIONS: Final = read_script("session_purge.lua")

_SLACK: Final = 24 * 3600 * 1000
"""Milliseconds that a row outlives its session, so that a purge removes and counts it."""
_SESSIONS_AT_ONCE: Final = 1000
"""Sessions that a purge removes in one step."""

_MAX_REFERENCE: Final = 64
"""Characters of a reference that is looked up, at most."""

_REFUSED: Final = {-1: "A task of that id is stored already", -2: "The task reached the store too late"}


class RedisStore:
    """A store that other processes change as well. It belongs to the event loop that creates it.

    `close` awaits `on_close` last, where the opener closes the client. `within` is the time after
    the creation of a record in which the server accepts its insert; None means no limit. It needs
    records whose times follow the server's clock.
    """

    def __init__(
        self,
        client: RedisClient,
        keys: KeyNames,
        *,
        changes: ChangeSubscriber,
        on_close: Callable[[], Awaitable[None]],
        within: timedelta | None = None,
        reference_of: ReferenceOf = plain_reference,
    ) -> None:
        self._client = client
        self._reference_of = reference_of
        self._within = within
        self._root = keys.of("")
        self._keys = keys
        self._session_index = keys.of("sessions")
        self._changes = changes
        self._on_close = on_close
        self._pages = PageReader(client, self._root)
        self._heads = HeadCache()
        self._withdrawals = Withdrawals(client, self._root, changes)
        self._closing: asyncio.Task[None] | None = None

    # --- tasks ---------------------------------------------------------------------------------------------------

    async def insert(self, record: TaskRecord, *, caps: tuple[Cap, ...], subject: str | None = None) -> TaskId:
        self._check()
        absent = {CapScope.TENANT} if record.tenant is None else set()
        if subject is None:
            absent.add(CapScope.SUBJECT)
        checked = tuple(cap for cap in caps if cap.scope not in absent)
        head, mark = pack_head(record), self._changes.mark()
        reference = self._reference_of(record.id)
        arguments = rows.insert_arguments(
            self._root,
            mark,
            record,
            checked,
            reference=reference,
            head=head,
            within=self._within,
            subject=subject,
        )
        try:
            end = await self._change(rows.INSERT, record, mark, arguments)
        except (StoreUnavailable, asyncio.CancelledError):
            # A record with an idempotency key stays: a repeated call finds it. No caller would find
            # one without, and yet it would run.
            if record.idempotency_digest is None:
                self._withdrawals.add(record.id, mark)
            raise
        # The id of an earlier record with the key; the number of the cap without room, and what is
        # used of it; a negative reason. 0 means that it is stored.
        if isinstance(end, bytes):
            return unpack_text(end)
        if isinstance(end, list):
            raise _refusal(checked[end[0] - 1], end[1])
        if end < 0:
            raise StoreUnavailable(_REFUSED[end])
        self._heads.add(record.id, head, as_head(record))
        self._add_change(record)
        return record.id

    async def repeated(self, owner: OwnerKey, key: str, *, now: datetime) -> TaskId | None:
        self._check()
        value = await self._client.do("GET", f"{self._root}repeat:{rows.repeat_name(owner, key)}")
        if value is None:
            return None
        ends, _, id = value.partition(b" ")
        return unpack_text(id) if rows.unpack_moment(ends) > now else None

    async def load(self, owner: OwnerKey, id: TaskId, *, now: datetime, bodies: bool = False) -> TaskRecord | None:
        values = await self._fields(id, rows.WHOLE if bodies else rows.HEAD)
        head, kept_owner, holder, until, expires, caller, *rest = values
        if head is None or kept_owner != rows.owner_name(owner).encode():
            return None
        record = self._heads.unpack(id, head, rows.unpack_lease(holder, until), rows.unpack_number(expires), caller)
        if record.expires_at <= now:
            return None
        return rows.unpack_row_bodies(record, *rest) if bodies else record

    def recall(self, owner: OwnerKey, id: TaskId, *, now: datetime) -> TaskRecord | None:
        # Another replica may have changed it.
        return None

    async def owner_of(self, id: TaskId) -> OwnerKey | None:
        (head,) = await self._fields(id, ("head",))
        return None if head is None else unpack_head(head, None).owner

    async def referred(self, reference: str) -> TaskId | None:
        self._check()
        if not reference.isascii() or len(reference) > _MAX_REFERENCE:
            return None
        id = await self._client.do("GET", f"{self._root}reference:{reference}")
        if id is None:
            return None
        # A release before removes a row and not its reference.
        (head,) = await self._fields(unpack_text(id), ("head",))
        return None if head is None else unpack_text(id)

    async def transitions(self, id: TaskId) -> tuple[Transition, ...]:
        head, packed = await self._fields(id, ("head", "transitions"))
        if head is None:
            return ()
        return transitions_of(unpack_head(head, None), unpack_transitions((packed or b"").decode(errors="replace")))

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
        self._check()
        scan = self._pages.scan_unfinished if unfinished else self._pages.scan_newest
        return await scan(wants, texts, after, limit, now)

    async def swap(self, record: TaskRecord, *, expected: int) -> bool:
        self._check()
        head, mark = pack_head(record), self._changes.mark()
        reference = self._reference_of(record.id)
        arguments = rows.swap_arguments(self._root, mark, record, expected, head=head, reference=reference)
        end = await self._change(rows.SWAP, record, mark, arguments)
        if end is None:
            return False
        # 1: the first run, which got no answer, has done it. What was before is then not known.
        held_by, was_open = (b"", b"1") if end == 1 else end
        if record.status.is_terminal:
            self._heads.forget(record.id)
        else:
            # It is read again before its next swap, if only to end it.
            self._heads.add(record.id, head, as_head(record))
        if was_open:
            self._add_change(record, held_by=held_by)
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
        self._check()
        return await self._pages.read(owner, where, order, after, limit, now)

    async def changed(self, watch: Watch, *, timeout: timedelta) -> ChangeBatch:
        self._check()
        return await self._changes.changed(watch, timeout=timeout, look=self._revision)

    async def renew(self, holder: str, ids: frozenset[TaskId], until: datetime) -> None:
        self._check()
        mine = [id for id in ids if id.isprintable()]
        if mine:
            await self._client.run(
                rows.RENEW, (self._root + "open",), (self._root, pack_text(holder), pack_time(until), *mine)
            )

    # A write: the script puts a new lease on the records that it returns.
    async def lapsed(
        self, *, holder: str, until: datetime, now: datetime, limit: int, heard: datetime | None = None
    ) -> tuple[TaskRecord, ...]:
        self._check()
        lease, found = Lease(holder=holder, until=until), list[TaskRecord]()
        known = "" if heard is None else pack_time(heard)
        while len(found) < limit:
            wanted = limit - len(found)
            arguments = (self._root, pack_text(holder), pack_time(until), pack_time(now), wanted, known)
            taken = await self._client.run(rows.LAPSED, (self._root + "open",), arguments, durable=True)
            read = [rows.read_head(head, lease, *rest) for _, head, *rest in taken]
            found += readable_records(read, "taken over")
            if len(taken) < wanted:
                break
        return tuple(found)

    async def purge(self, *, now: datetime, limit: int) -> tuple[TaskRecord, ...]:
        self._check()
        arguments: list[Value] = [self._root, self._changes.mark(), pack_time(now), limit, *rows.ALL_STATES]
        removed = await self._client.run(rows.PURGE, (self._root + "open",), arguments)
        return tuple(readable_records([self._removed(*row) for row in removed], "removed"))

    # --- host sessions -------------------------------------------------------------------------------------------

    async def put(self, record: SessionRecord) -> None:
        self._check()
        name = digest(record.id)
        values = (digest(*record.owner), pack_peer(record.peer), pack_time(record.expires_at), name, _SLACK)
        if not await self._client.run(
            _PUT_SESSION, (self._session_row(record.id), self._session_index), values, durable=True
        ):
            raise StoreUnavailable("A session of that id is stored already")

    async def find(self, owner: OwnerKey, id: str, *, now: datetime) -> SessionRecord | None:
        self._check()
        stored_owner, peer, expires = await self._client.do("HMGET", self._session_row(id), "owner", "peer", "expires")
        if stored_owner != digest(*owner).encode():
            return None
        ends = rows.unpack_moment(expires)
        return SessionRecord(id=id, owner=owner, peer=unpack_peer(peer or b""), expires_at=ends) if ends > now else None

    async def touch(self, ids: frozenset[str], *, until: datetime) -> None:
        self._check()
        if ids:
            keys, names = [self._session_row(id) for id in ids], [digest(id) for id in ids]
            await self._client.run(_TOUCH_SESSIONS, (self._session_index, *keys), (pack_time(until), _SLACK, *names))

    async def drop(self, owner: OwnerKey, id: str) -> bool:
        self._check()
        whose = (digest(*owner), digest(id))
        return bool(
            await self._client.run(_DROP_SESSION, (self._session_row(id), self._session_index), whose, durable=True)
        )

    async def purge_sessions(self, *, now: datetime) -> int:
        self._check()
        total = 0
        while True:
            limits = (pack_time(now), self._keys.of("session:"), _SESSIONS_AT_ONCE)
            removed: int = await self._client.run(_PURGE_SESSIONS, (self._session_index,), limits)
            total += removed
            if removed < _SESSIONS_AT_ONCE:
                return total

    def _session_row(self, id: str) -> str:
        return self._keys.of("session", id)

    # --- the whole -----------------------------------------------------------------------------------------------

    async def census(self) -> StoreCensus:
        # Without the size: the server may hold data of other programs.
        self._check()
        counts = await self._client.run(rows.COUNT, (self._root + "open",), (self._root, *rows.ALL_STATES))
        tasks = dict.fromkeys(TaskStatus, 0)
        for state, there in zip(STATES, counts, strict=True):
            tasks[state.status] += there
        return StoreCensus(tasks=tasks)

    async def check(self) -> None:
        self._check()
        await self._client.do("SET", self._root + "check", "", "PX", CHECK_MS, durable=True)

    async def verify(self) -> None:
        """Nothing to check: each connection check tests that the server does not evict keys."""

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._heads.clear()
        await self._withdrawals.close()
        await self._changes.close()
        await self._on_close()

    def _check(self) -> None:
        if self._closing is not None:
            raise StoreUnavailable("The store is closed")

    async def _change(self, script: Script, record: TaskRecord, mark: str, arguments: list[Value]) -> Any:
        """Run a script that changes one task; repeat it if the outcome is unknown, since its mark
        shows a first run.
        """
        task = (self._task(record.id),)
        try:
            try:
                return await self._client.run(script, task, arguments, durable=True)
            except StoreUnavailable:
                return await self._client.run(script, task, arguments, durable=True)
        except (StoreUnavailable, asyncio.CancelledError):
            # The outcome stays unknown. Waiters load the record now, and again if the message of
            # the change arrives.
            self._changes.expect_message(mark)
            self._add_change(record)
            raise

    async def _fields(self, id: TaskId, names: tuple[str, ...]) -> list[Any]:
        """Fields of a task; None for each missing one."""
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
            # The store closed: the wait has ended, and there is no change.
            return NOT_KNOWN
        return GONE if revision is None else rows.unpack_number(revision)

    def _task(self, id: TaskId) -> str:
        return f"{self._root}task:{id}"

    def _removed(
        self,
        name: bytes,
        owner: bytes,
        head: bytes | None,
        holder: bytes,
        until: bytes,
        expires: bytes,
        caller: bytes | None,
    ) -> TaskRecord | None:
        id = unpack_text(name)
        self._heads.forget(id)
        try:
            lease = rows.unpack_lease(holder, until)
        except StoreUnavailable:
            head, lease = None, None
        # The owner may be damaged too: then no watch matches it.
        self._changes.add(id, GONE, owner=owner.decode(errors="replace"), holder=lease.holder if lease else None)
        return rows.read_head(head, lease, expires, caller=caller)

    def _add_change(self, record: TaskRecord, *, held_by: bytes = b"") -> None:
        """Add a change of this process.

        `held_by` is the holder before, since the last change removes the lease.
        """
        holder = unpack_text(held_by) or (record.lease.holder if record.lease else None)
        self._changes.add(record.id, record.revision, owner=rows.owner_name(record.owner), holder=holder)


def _refusal(cap: Cap, used: int) -> TooManyTasks | TooManyBytes:
    if cap.bytes:
        return TooManyBytes(cap.limit, scope=cap.scope.value)
    return TooManyTasks(cap.limit, scope=cap.scope.value, used=used)


_: type[Store] = RedisStore
