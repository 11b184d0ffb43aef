"""Putting back what a store that others share forgot, or came back with as it was before.

What must not live here: what is known of it (`holdings`), and how it is heard that it was forgotten (`leasing`).
"""

from collections.abc import Iterable, Set
from contextlib import suppress
from datetime import datetime, timedelta
from logging import getLogger

from taskgate.clock import Clock
from taskgate.domain.record import Lease, TaskId
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.holdings import Holdings
from taskgate.stores.shared import LeaseStore

log = getLogger("taskgate.leases")


class Restoring:
    """Of one process, `holder`, whose leases have that length. Belongs to one event loop."""

    def __init__(self, kept: Holdings, leases: LeaseStore, *, holder: str, length: timedelta, clock: Clock) -> None:
        self._kept = kept
        self._leases = leases
        self._holder = holder
        self._length = length
        self._clock = clock
        self._refused: set[TaskId] = set()

    def forgotten(self, behind: Iterable[TaskId]) -> frozenset[TaskId]:
        """Of what the store has older, or not at all, that which it should have."""
        now, forgotten = self._clock.now(), set()
        for task in behind:
            record = self._kept.whole(task, self._lease(now))
            if record is not None and record.expires_at > now:
                forgotten.add(task)
            else:
                self._kept.end(task, forget=True)
        return frozenset(forgotten)

    def refused(self, forgotten: Set[TaskId]) -> frozenset[TaskId]:
        """Those of them that it did not take back when it was asked to: told once."""
        refused = frozenset(self._refused.intersection(forgotten))
        self._refused.clear()
        if refused:
            log.warning(
                "lost tasks were not restored to the store: other replicas have them", extra={"tasks": len(refused)}
            )
        return refused

    async def restore_all(self, tasks: Iterable[TaskId]) -> None:
        """Put them back, as many as the store takes now: what it still lacks is heard of again."""
        count = 0
        with suppress(StoreUnavailable):
            for task in tasks:
                if await self.restore(task):
                    count += 1
                else:
                    self._refused.add(task)
        if count:
            log.warning("the store had lost tasks; they were restored", extra={"tasks": count})

    async def restore(self, task: TaskId) -> bool:
        """Put one back, as it was last written; whether it was taken. Raises StoreUnavailable."""
        now = self._clock.now()
        record = self._kept.whole(task, self._lease(now))
        if record is None or record.expires_at <= now or not await self._leases.restore(record):
            return False
        self._kept.put_back(task, at=self._clock.elapsed())
        return True

    def _lease(self, now: datetime) -> Lease:
        return Lease(holder=self._holder, until=now + self._length)
