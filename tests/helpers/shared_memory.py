"""A store in memory that several processes of a test share, with leases by the test's clock, and that can forget."""

from collections.abc import Mapping
from copy import copy
from datetime import timedelta
from typing import Any

from taskgate.clock import Clock
from taskgate.domain.record import Lease, TaskId, TaskRecord, evolve
from taskgate.stores.change_feed import ChangeFeed
from taskgate.stores.memory import MemoryStore, OwnerIndex
from taskgate.stores.shared import HeartbeatReply, LeaseStore


class LeasesInMemory:
    """See LeaseStore."""

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.lives: dict[str, Any] = {}
        self.beats = 0

    async def beat(self, holder: str, held: Mapping[TaskId, int], *, lease: timedelta) -> HeartbeatReply:
        """See LeaseStore."""
        self.beats += 1
        now = self._clock.now()
        before = self.lives.get(holder)
        self.lives = {name: until for name, until in self.lives.items() if until >= now}
        self.lives[holder] = now + lease
        ended, lost, behind = set(), set(), set()
        for id, revision in held.items():
            kept = self._store._tasks.get(id)
            if kept is None or kept.head.revision < revision:
                behind.add(id)
            elif kept.head.status.is_terminal:
                ended.add(id)
            elif kept.head.lease is None or kept.head.lease.holder != holder:
                lost.add(id)
            elif kept.head.lease.until < now + lease:
                kept.head = evolve(kept.head, lease=Lease(holder=holder, until=now + lease))
        return HeartbeatReply(now, frozenset(ended), frozenset(lost), frozenset(behind), frozenset(self.lives), before)

    async def restore(self, record: TaskRecord) -> bool:
        """See LeaseStore."""
        kept = self._store._tasks.get(record.id)
        if kept is not None:
            head = kept.head
            foreign = record.lease and head.lease and head.lease.holder != record.lease.holder
            if head.revision >= record.revision or head.status.is_terminal or foreign:
                return False
            self._store._remove(record.id)
        await self._store.insert(record, caps=())
        return True

    async def part(self, holder: str) -> None:
        """See LeaseStore."""
        self.lives.pop(holder, None)


def remembered(store: MemoryStore) -> dict[TaskId, Any]:
    """What a store has now; see `go_back`."""
    return {id: copy(kept) for id, kept in store._tasks.items()}


def go_back(store: MemoryStore, then: dict[TaskId, Any]) -> None:
    """Have a store forget all that came after a moment, as one does that comes back with what it had saved."""
    feed, store._changes = store._changes, ChangeFeed()
    for id in list(store._tasks):
        store._remove(id)
    store._expiring.clear()
    for saved in then.values():
        kept = copy(saved)
        store._tasks[kept.head.id] = kept
        store._lists.setdefault(kept.head.owner, OwnerIndex()).add(kept.head)
        store._counts[kept.head.status] += 1
        store._usage.add_bytes(kept.head.owner.context, kept.size)
        if not kept.head.status.is_terminal:
            store._begin(kept.head)
    store._changes = feed
    feed.reset()


_: type[LeaseStore] = LeasesInMemory
