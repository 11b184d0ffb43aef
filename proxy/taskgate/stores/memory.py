"""The store of one process in its memory: `MemoryStore`, which also is the oracle for the tests of
other stores.

No method awaits between a look and a change, so each of them is atomic. Bodies are apart from
heads, as in every store: code that needs only heads can see only heads.
"""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count, islice
from operator import attrgetter
from typing import Any

from taskgate.domain.limits import Cap
from taskgate.domain.listing import (
    STATES,
    ListedTask,
    OrderBy,
    Page,
    Position,
    TaskFilter,
    TaskOrder,
    TaskState,
    listed_task,
)
from taskgate.domain.record import (
    MAX_TRANSITIONS,
    Lease,
    Outcome,
    OwnerKey,
    TaskId,
    TaskRecord,
    TaskStatus,
    Transition,
    evolve,
    transitions_of,
)
from taskgate.errors import StoreUnavailable
from taskgate.jsontext.spans import RawJson
from taskgate.stores.base import MOST_SCANNED, ChangeBatch, Scan, SessionRecord, Store, StoreCensus, Watch
from taskgate.stores.capacity import CapKeys, StoreUsage, record_size, stored_size
from taskgate.stores.change_feed import GONE, ChangeFeed
from taskgate.stores.codec import as_head, as_stored, longer_lease, pack_time, unpack_place, with_bodies
from taskgate.stores.references import ReferenceOf, plain_reference

# --- lists of one owner ----------------------------------------------------------------------------------------------


_Run = list[Position]


class OwnerIndex:
    """The task positions of one owner: a sorted list (a *run*) for each state and order.

    A page merges the runs of the wanted states, so that none needs a sort.
    """

    def __init__(self) -> None:
        self._runs: dict[tuple[OrderBy, TaskState], _Run] = {}

    def __bool__(self) -> bool:
        return any(self._runs.values())

    def add(self, record: TaskRecord) -> None:
        """Add a record."""
        for by in OrderBy:
            insort(self._runs.setdefault((by, _state(record)), []), _place(record, by))

    def remove(self, record: TaskRecord) -> None:
        """Remove a record; it must be the version that was added."""
        for by in OrderBy:
            run = self._runs[by, _state(record)]
            del run[bisect_left(run, _place(record, by))]

    def move(self, old: TaskRecord, new: TaskRecord) -> None:
        """Replace a record by its new version."""
        if (_state(old), old.updated_at) != (_state(new), new.updated_at):
            self.remove(old)
            self.add(new)

    def found(self, where: TaskFilter, order: TaskOrder, after: Position | None) -> Iterator[TaskId]:
        """The ids in the filter's states and within its bounds of the ordering time, in order.

        The caller checks the rest of the filter with `matches`.
        """
        states = STATES if where.states is None else where.states
        runs = (self._runs.get((order.by, state), []) for state in states)
        parts = (_within(run, where, order, after) for run in runs)
        return (id for _, id in heapq.merge(*parts, reverse=order.descending))


def sorted_ids(records: list[TaskRecord], order: TaskOrder, after: Position | None) -> list[TaskId]:
    """The ids of a few records after a position, in order."""
    places = sorted((_place(record, order.by) for record in records), reverse=order.descending)
    return [place.id for place in places if after is None or (place < after if order.descending else place > after)]


def matches(head: TaskRecord, where: TaskFilter) -> bool:
    """Whether a record matches the filter."""
    return (
        (where.ids is None or head.id in where.ids)
        and (where.states is None or _state(head) in where.states)
        and (where.created_after is None or head.created_at > where.created_after)
        and (where.created_before is None or head.created_at < where.created_before)
        and (where.updated_after is None or head.updated_at > where.updated_after)
        and (where.updated_before is None or head.updated_at < where.updated_before)
        and not (where.unfetched and head.retrieved)
    )


def _within(run: _Run, where: TaskFilter, order: TaskOrder, after: Position | None) -> Iterator[Position]:
    by_creation = order.by is OrderBy.CREATED
    least, most = (
        (where.created_after, where.created_before) if by_creation else (where.updated_after, where.updated_before)
    )
    low = 0 if least is None else bisect_right(run, least, key=_time)
    high = len(run) if most is None else bisect_left(run, most, key=_time)
    if after is not None and order.descending:
        high = min(high, bisect_left(run, after))
    elif after is not None:
        low = max(low, bisect_right(run, after))
    return (run[at] for at in (range(high - 1, low - 1, -1) if order.descending else range(low, high)))


def _state(record: TaskRecord) -> TaskState:
    return TaskState(record.status, record.tool_error)


def _place(record: TaskRecord, by: OrderBy) -> Position:
    return Position(record.created_at if by is OrderBy.CREATED else record.updated_at, record.id)


_time = attrgetter("time")


# --- the store -------------------------------------------------------------------------------------------------------


_NO_LISTS = OwnerIndex()
_FEW_EXPIRING = 64


@dataclass(slots=True, kw_only=True)
class _StoredTask:
    number: int
    """The order of insertion."""
    head: TaskRecord
    params: RawJson | None
    outcome: Outcome | None
    size: int
    keys: CapKeys
    """What the record counts under."""
    changes: tuple[Transition, ...]
    """The newest transitions to statuses that are not terminal."""

    def whole(self) -> TaskRecord:
        return with_bodies(self.head, self.params, self.outcome)


class MemoryStore:
    """A store without a file. It belongs to the event loop that uses it."""

    def __init__(self, reference_of: ReferenceOf = plain_reference) -> None:
        self._reference_of = reference_of
        self._references: dict[str, TaskId] = {}
        self._numbered: dict[int, TaskId] = {}
        """The ids in the order of insertion."""
        self._tasks: dict[TaskId, _StoredTask] = {}
        self._numbers = count(1)
        self._counts = Counter(dict.fromkeys(TaskStatus, 0))
        self._lists: dict[OwnerKey, OwnerIndex] = {}
        self._unfinished: set[TaskId] = set()
        self._usage = StoreUsage()
        self._ids_by_key: dict[tuple[OwnerKey, str], TaskId] = {}
        self._expiring: list[tuple[datetime, TaskId]] = []
        """When records expire, the next one first. An entry of a time that a record had before is skipped."""
        self._sessions: dict[str, SessionRecord] = {}
        self._changes = ChangeFeed()
        self._closed = False

    # --- tasks ---------------------------------------------------------------------------------------------------

    async def insert(self, record: TaskRecord, *, caps: tuple[Cap, ...], subject: str | None = None) -> TaskId:
        self._check()
        if record.idempotency_digest is not None:
            earlier = self._repeated(record.owner, record.idempotency_digest, record.created_at)
            if earlier is not None:
                return earlier
        if record.id in self._tasks:
            raise StoreUnavailable("A task of that id is stored already")
        keys, size = _cap_keys(record, subject), record_size(record)
        refusal = self._usage.refusal(keys, caps, pack_time(record.created_at))
        if refusal is not None:
            raise refusal.copy()
        number = next(self._numbers)
        self._tasks[record.id] = _StoredTask(
            number=number,
            head=as_head(record),
            params=record.call.params,
            outcome=record.outcome,
            size=size,
            keys=keys,
            changes=(),
        )
        self._numbered[number] = record.id
        self._references[self._reference_of(record.id)] = record.id
        if record.idempotency_digest is not None:
            self._ids_by_key[record.owner, record.idempotency_digest] = record.id
        self._lists.setdefault(record.owner, OwnerIndex()).add(record)
        if not record.status.is_terminal:
            self._begin(record, keys)
        self._usage.add_bytes(keys, size)
        self._expire_at(record)
        self._counts[record.status] += 1
        self._changes.add_committed(record)
        return record.id

    async def repeated(self, owner: OwnerKey, key: str, *, now: datetime) -> TaskId | None:
        self._check()
        return self._repeated(owner, key, now)

    async def load(self, owner: OwnerKey, id: TaskId, *, now: datetime, bodies: bool = False) -> TaskRecord | None:
        self._check()
        stored = self._tasks.get(id)
        if stored is None or stored.head.owner != owner or stored.head.expires_at <= now:
            return None
        return stored.whole() if bodies else stored.head

    def recall(self, owner: OwnerKey, id: TaskId, *, now: datetime) -> TaskRecord | None:
        stored = self._tasks.get(id)
        if stored is None or stored.head.owner != owner or stored.head.expires_at <= now or self._closed:
            return None
        return stored.head

    async def owner_of(self, id: TaskId) -> OwnerKey | None:
        self._check()
        stored = self._tasks.get(id)
        return None if stored is None else stored.head.owner

    async def referred(self, reference: str) -> TaskId | None:
        self._check()
        return self._references.get(reference)

    async def transitions(self, id: TaskId) -> tuple[Transition, ...]:
        self._check()
        stored = self._tasks.get(id)
        return () if stored is None else transitions_of(stored.head, stored.changes)

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
        place = unpack_place(after)
        if place is None:
            return Scan((), None)
        if unfinished:
            found = (number for id in self._unfinished if (number := self._tasks[id].number) > place)
            numbers = heapq.nsmallest(MOST_SCANNED + 1, found)
        else:
            # Numbers begin at 1, so no part but the first starts at 0.
            older = (number for number in reversed(self._numbered) if not place or number < place)
            numbers = list(islice(older, MOST_SCANNED + 1))
        heads: list[TaskRecord] = []
        for scanned, number in enumerate(numbers, 1):
            head = self._tasks[self._numbered[number]].head
            if head.expires_at > now and wants(head):
                heads.append(head)
            if (len(heads) == limit or scanned == MOST_SCANNED) and scanned < len(numbers):
                return Scan(tuple(heads), str(number))
        return Scan(tuple(heads), None)

    async def swap(self, record: TaskRecord, *, expected: int) -> bool:
        self._check()
        stored = self._tasks.get(record.id)
        if stored is None or stored.head.revision != expected:
            return False
        lease, is_news = stored.head.lease, not stored.head.status.is_terminal
        self._lists[record.owner].move(stored.head, record)
        self._counts[stored.head.status] -= 1
        self._counts[record.status] += 1
        if record.idempotency_digest is None:
            self._release_key(stored.head)
        if record.status is not stored.head.status and not record.status.is_terminal:
            stored.changes = (*stored.changes[2 - MAX_TRANSITIONS :], Transition(record.status, record.updated_at))
        if record.status.is_terminal:
            self._end(stored.head, stored.keys)
        was_to_expire_at = stored.head.expires_at
        stored.head = evolve(as_head(record), lease=longer_lease(lease, record.lease))
        if record.expires_at != was_to_expire_at:
            self._expire_at(record)
        if record.outcome is not None:
            stored.outcome = as_stored(record.outcome)
            size = stored_size(None, record.outcome)
            stored.size += size
            self._usage.add_bytes(stored.keys, size)
        if not record.status.is_terminal and record.id not in self._unfinished:
            self._begin(record, stored.keys)
        if is_news:
            self._changes.add_committed(record, held_by=lease.holder if lease else None)
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
        if where.ids is None:
            found: Iterable[TaskId] = self._lists.get(owner, _NO_LISTS).found(where, order, after)
        else:
            heads_by_id = (self._tasks[id].head for id in where.ids if id in self._tasks)
            found = sorted_ids([head for head in heads_by_id if head.owner == owner], order, after)
        tasks: list[ListedTask] = []
        for number, id in enumerate(found, 1):
            head = self._tasks[id].head
            if head.expires_at > now and matches(head, where):
                if len(tasks) == limit:
                    return Page(tasks=tuple(tasks), next=tasks[-1].position(order.by))
                tasks.append(listed_task(head))
            if number == MOST_SCANNED:
                return Page(tasks=tuple(tasks), next=_place(head, order.by))
        return Page(tasks=tuple(tasks), next=None)

    def changed(self, watch: Watch, *, timeout: timedelta) -> Coroutine[Any, Any, ChangeBatch]:
        return self._changes.changed(watch, timeout=timeout, look=self._revision)

    async def renew(self, holder: str, ids: frozenset[TaskId], until: datetime) -> None:
        self._check()
        for id in ids:
            stored = self._tasks.get(id)
            if stored is not None and stored.head.lease is not None and stored.head.lease.holder == holder:
                stored.head = evolve(stored.head, lease=Lease(holder=holder, until=until))

    async def lapsed(
        self, *, holder: str, until: datetime, now: datetime, limit: int, heard: datetime | None = None
    ) -> tuple[TaskRecord, ...]:
        self._check()
        unfinished = (self._tasks[id] for id in self._unfinished)
        lapsed = [stored for stored in unfinished if stored.head.expires_at > now and _is_lapsed(stored.head, now)]
        lapsed.sort(key=lambda stored: (stored.head.created_at, stored.number))
        taken = lapsed[:limit]
        for stored in taken:
            stored.head = evolve(stored.head, lease=Lease(holder=holder, until=until))
        return tuple(stored.whole() if stored.head.is_resumable else stored.head for stored in taken)

    async def purge(self, *, now: datetime, limit: int) -> tuple[TaskRecord, ...]:
        self._check()
        heads: list[TaskRecord] = []
        while self._expiring and self._expiring[0][0] <= now and len(heads) < limit:
            expires_at, id = heapq.heappop(self._expiring)
            stored = self._tasks.get(id)
            if stored is not None and stored.head.expires_at == expires_at:
                heads.append(self._remove(id))
        return tuple(heads)

    # --- host sessions -------------------------------------------------------------------------------------------

    async def put(self, record: SessionRecord) -> None:
        self._check()
        if record.id in self._sessions:
            raise StoreUnavailable("A session of that id is stored already")
        self._sessions[record.id] = record

    async def find(self, owner: OwnerKey, id: str, *, now: datetime) -> SessionRecord | None:
        self._check()
        record = self._sessions.get(id)
        return record if record is not None and record.owner == owner and record.expires_at > now else None

    async def touch(self, ids: frozenset[str], *, until: datetime) -> None:
        self._check()
        for id in ids:
            if id in self._sessions:
                self._sessions[id] = replace(self._sessions[id], expires_at=until)

    async def drop(self, owner: OwnerKey, id: str) -> bool:
        self._check()
        record = self._sessions.get(id)
        if record is None or record.owner != owner:
            return False
        del self._sessions[id]
        return True

    async def purge_sessions(self, *, now: datetime) -> int:
        self._check()
        expired = [id for id, record in self._sessions.items() if record.expires_at <= now]
        for id in expired:
            del self._sessions[id]
        return len(expired)

    # --- the whole -----------------------------------------------------------------------------------------------

    async def census(self) -> StoreCensus:
        self._check()
        return StoreCensus(tasks=dict(self._counts))

    async def check(self) -> None:
        self._check()

    async def verify(self) -> None:
        """Nothing to check: a restart finds no data in any case."""

    async def close(self) -> None:
        self._closed = True
        self._changes.close()

    def _check(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed")

    def _revision(self, id: TaskId) -> int:
        stored = self._tasks.get(id)
        return GONE if stored is None else stored.head.revision

    def _repeated(self, owner: OwnerKey, key: str, now: datetime) -> TaskId | None:
        id = self._ids_by_key.get((owner, key))
        return id if id is not None and self._tasks[id].head.expires_at > now else None

    def _release_key(self, head: TaskRecord) -> None:
        # After its expiry, another record may have taken the key, and released it.
        if head.idempotency_digest is None:
            return
        key = head.owner, head.idempotency_digest
        if self._ids_by_key.get(key) == head.id:
            del self._ids_by_key[key]

    def _expire_at(self, record: TaskRecord) -> None:
        """Note when a record expires from now on."""
        expiring = self._expiring
        if len(expiring) > 2 * len(self._tasks) + _FEW_EXPIRING:
            # Most entries are of times that records had before.
            expiring[:] = [(stored.head.expires_at, id) for id, stored in self._tasks.items()]
            heapq.heapify(expiring)
        heapq.heappush(expiring, (record.expires_at, record.id))

    def _begin(self, record: TaskRecord, keys: CapKeys) -> None:
        self._unfinished.add(record.id)
        self._usage.add_task(keys, pack_time(record.expires_at))

    def _end(self, record: TaskRecord, keys: CapKeys) -> None:
        if record.id in self._unfinished:
            self._unfinished.remove(record.id)
            self._usage.remove_task(keys, pack_time(record.expires_at))

    def _remove(self, id: TaskId) -> TaskRecord:
        stored = self._tasks.pop(id)
        head = stored.head
        lists = self._lists[head.owner]
        lists.remove(head)
        if not lists:
            del self._lists[head.owner]
        self._end(head, stored.keys)
        self._usage.add_bytes(stored.keys, -stored.size)
        self._release_key(head)
        self._counts[head.status] -= 1
        del self._numbered[stored.number], self._references[self._reference_of(id)]
        self._changes.add_removed(id, owner=head.owner, holder=head.lease.holder if head.lease else None)
        return head


def _cap_keys(record: TaskRecord, subject: str | None) -> CapKeys:
    mount = record.owner.mount
    return CapKeys(record.owner.context, subject, record.tenant, (mount, record.call.tool), mount)


def _is_lapsed(head: TaskRecord, now: datetime) -> bool:
    return head.lease is None or head.lease.until <= now


_: type[Store] = MemoryStore
