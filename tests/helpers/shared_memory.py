"""A store in memory that several processes of a test share, with leases by the test's clock, and that can forget."""

from collections.abc import Mapping
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from taskgate.clock import Clock
from taskgate.domain.record import TaskId, TaskRecord
from taskgate.stores.base import TaskStore
from taskgate.stores.change_feed import ChangeFeed
from taskgate.stores.memory import MemoryStore, OwnerIndex
from taskgate.stores.shared import HeartbeatReply, LeaseStore

_LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""When no record had expired."""


class LeasesInMemory:
    """See LeaseStore."""

    def __init__(self, store: TaskStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.lives: dict[str, Any] = {}
        self.vanished: dict[str, Any] = {}
        self.beats = 0

    async def beat(self, holder: str, held: Mapping[TaskId, int], *, lease: timedelta) -> HeartbeatReply:
        """See LeaseStore."""
        self.beats += 1
        now = self._clock.now()
        before = self.lives.get(holder)
        self.vanished |= {name: now for name, until in self.lives.items() if until < now}
        self.vanished.pop(holder, None)
        self.lives = {name: until for name, until in self.lives.items() if until >= now}
        self.lives[holder] = now + lease
        ended, lost, behind = set(), set(), set()
        for id, revision in held.items():
            head = await self._head(id)
            if head is None or head.revision < revision:
                behind.add(id)
            elif head.status.is_terminal:
                ended.add(id)
            elif head.lease is None or head.lease.holder != holder:
                lost.add(id)
            elif head.lease.until < now + lease:
                await self._store.renew(holder, frozenset({id}), now + lease)
        sets = map(frozenset, (ended, lost, behind, self.lives))
        return HeartbeatReply(now, *sets, before, vanished=dict(self.vanished))

    async def restore(self, record: TaskRecord) -> bool:
        """See LeaseStore."""
        head = await self._head(record.id)
        if head is None:
            await self._store.insert(record, caps=())
            return True
        foreign = record.lease and head.lease and head.lease.holder != record.lease.holder
        if head.revision >= record.revision or head.status.is_terminal or foreign:
            return False
        return await self._store.swap(record, expected=head.revision)

    async def part(self, holder: str) -> None:
        """See LeaseStore."""
        self.lives.pop(holder, None)

    async def _head(self, id: TaskId) -> TaskRecord | None:
        owner = await self._store.owner_of(id)
        return None if owner is None else await self._store.load(owner, id, now=_LONG_AGO)


class ForgetfulStore(MemoryStore):
    """A store that comes back with what it had saved, as one does whose server fell."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: dict[TaskId, Any] = {}

    @property
    def stored(self) -> dict[TaskId, Any]:
        """All that there is, also of what has expired."""
        return self._tasks

    def save(self) -> None:
        """Remember what there is now."""
        self.saved = {id: copy(stored) for id, stored in self._tasks.items()}

    def go_back(self) -> None:
        """Have that, and forget all that came after it."""
        feed, self._changes = self._changes, ChangeFeed()
        for id in list(self._tasks):
            self._remove(id)
        self._expiring.clear()
        for saved in self.saved.values():
            stored = copy(saved)
            self._tasks[stored.head.id] = stored
            self._numbered[stored.number] = stored.head.id
            self._references[self._reference_of(stored.head.id)] = stored.head.id
            self._lists.setdefault(stored.head.owner, OwnerIndex()).add(stored.head)
            self._counts[stored.head.status] += 1
            self._usage.add_bytes(stored.keys, stored.size)
            if not stored.head.status.is_terminal:
                self._begin(stored.head, stored.keys)
        self._changes = feed
        feed.reset()


_: type[LeaseStore] = LeasesInMemory
