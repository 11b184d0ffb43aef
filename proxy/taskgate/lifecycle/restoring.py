"""The restoration of tasks that a shared store lost: `Restoring`.

A store may return from a failover without the newest writes. `Leasing` learns this from a
heartbeat's reply and calls `forgotten`, then `restore_all`. The records come from `Holdings`.
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
    """The restoration for one process, `holder`; `length` is that of its leases. For one event
    loop.
    """

    def __init__(self, kept: Holdings, leases: LeaseStore, *, holder: str, length: timedelta, clock: Clock) -> None:
        self._kept = kept
        self._leases = leases
        self._holder = holder
        self._length = length
        self._clock = clock
        self._refused: set[TaskId] = set()

    def forgotten(self, behind: Iterable[TaskId]) -> frozenset[TaskId]:
        """Return those of the missing or older tasks that the store should have."""
        now, forgotten = self._clock.now(), set()
        for task in behind:
            record = self._kept.whole(task, self._lease(now))
            if record is not None and record.expires_at > now:
                forgotten.add(task)
            else:
                self._kept.end(task, forget=True)
        return frozenset(forgotten)

    def refused(self, forgotten: Set[TaskId]) -> frozenset[TaskId]:
        """Return those that the store refused to take back at the last attempt, and log them."""
        refused = frozenset(self._refused.intersection(forgotten))
        self._refused.clear()
        if refused:
            log.warning(
                "lost tasks were not restored to the store: other replicas have them", extra={"tasks": len(refused)}
            )
        return refused

    async def restore_all(self, tasks: Iterable[TaskId]) -> None:
        """Restore as many tasks as the store accepts. What is still missing is reported again."""
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
        """Restore one task, and return whether the store accepted it. Raises StoreUnavailable."""
        now = self._clock.now()
        record = self._kept.whole(task, self._lease(now))
        if record is None or record.expires_at <= now or not await self._leases.restore(record):
            return False
        self._kept.put_back(task, at=self._clock.elapsed())
        return True

    def _lease(self, now: datetime) -> Lease:
        return Lease(holder=self._holder, until=now + self._length)
