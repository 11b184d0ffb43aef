"""A store in memory that several processes of a test share, with leases by the test's clock, and that can forget."""

from collections.abc import Mapping
from copy import copy
from datetime import timedelta
from typing import Any

from taskgate.clock import Clock
from taskgate.domain.record import Lease, TaskId, TaskRecord, altered
from taskgate.stores.journal import Journal
from taskgate.stores.memory import MemoryStore
from taskgate.stores.memory_lists import Lists
from taskgate.stores.sharing import Beat, Leases


class LeasesInMemory:
    """See Leases."""

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.lives: dict[str, Any] = {}
        self.beats = 0

    async def beat(self, holder: str, held: Mapping[TaskId, int], *, lease: timedelta) -> Beat:
        """See Leases."""
        self.beats += 1
        now = self._clock.now()
        before = self.lives.get(holder)
        self.lives = {name: until for name, until in self.lives.items() if until >= now}
        self.lives[holder] = now + lease
        ended, lost, behind = set(), set(), set()
        for id, revision in held.items():
            kept = self._store._kept.get(id)
            if kept is None or kept.head.revision < revision:
                behind.add(id)
            elif kept.head.status.is_terminal:
                ended.add(id)
            elif kept.head.lease is None or kept.head.lease.holder != holder:
                lost.add(id)
            elif kept.head.lease.until < now + lease:
                kept.head = altered(kept.head, lease=Lease(holder=holder, until=now + lease))
        return Beat(now, frozenset(ended), frozenset(lost), frozenset(behind), frozenset(self.lives), before)

    async def restore(self, record: TaskRecord) -> bool:
        """See Leases."""
        kept = self._store._kept.get(record.id)
        if kept is not None:
            head = kept.head
            foreign = record.lease and head.lease and head.lease.holder != record.lease.holder
            if head.revision >= record.revision or head.status.is_terminal or foreign:
                return False
            self._store._remove(record.id)
        await self._store.insert(record, caps=())
        return True

    async def part(self, holder: str) -> None:
        """See Leases."""
        self.lives.pop(holder, None)


def remembered(store: MemoryStore) -> dict[TaskId, Any]:
    """What a store has now; see `go_back`."""
    return {id: copy(kept) for id, kept in store._kept.items()}


def go_back(store: MemoryStore, then: dict[TaskId, Any]) -> None:
    """Have a store forget all that came after a moment, as one does that comes back with what it had saved."""
    journal, store._journal = store._journal, Journal()
    for id in list(store._kept):
        store._remove(id)
    store._expiring.clear()
    for saved in then.values():
        kept = copy(saved)
        store._kept[kept.head.id] = kept
        store._lists.setdefault(kept.head.owner, Lists()).add(kept.head)
        store._counts[kept.head.status] += 1
        store._room.keep(kept.head.owner.context, kept.size)
        if not kept.head.status.is_terminal:
            store._begin(kept.head)
    store._journal = journal
    journal.forget()


_: type[Leases] = LeasesInMemory
