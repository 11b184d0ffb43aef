"""The restoration of tasks that a shared store lost: `Restoring`.

A store may return from a failover without the newest writes. The reply to a heartbeat then says
that the store is *behind* with some tasks: they are missing, or have an older revision. `Leasing`
calls these for each reply, in this order:

- `forgotten`: which of them are to be restored;
- `refused`: which of those an earlier attempt did not restore, so that they are given up;
- `restore_all`, in the background: write the others back from the copies (`Holdings`).

It also calls `restore` for one task whose load finds that the store lost it.
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
    """The restoration for one process, `holder`; `length` is that of its leases.

    `_refused` are the tasks that were not restored since the last heartbeat's reply. The store
    refused them, or their copy was gone or expired by then. For one event loop.
    """

    def __init__(self, kept: Holdings, leases: LeaseStore, *, holder: str, length: timedelta, clock: Clock) -> None:
        self._kept = kept
        self._leases = leases
        self._holder = holder
        self._length = length
        self._clock = clock
        self._refused: set[TaskId] = set()

    def forgotten(self, behind: Iterable[TaskId]) -> frozenset[TaskId]:
        """Return those of `behind` that are to be restored, and drop the copies of the others.

        Only a task with a copy that has not expired is restored.
        """
        now, forgotten = self._clock.now(), set()
        for task in behind:
            record = self._kept.whole(task, self._lease(now))
            if record is not None and record.expires_at > now:
                forgotten.add(task)
            else:
                self._kept.end(task, forget=True)
        return frozenset(forgotten)

    def refused(self, forgotten: Set[TaskId]) -> frozenset[TaskId]:
        """Return those of `forgotten` that the store refused at the last attempt, and log them.

        A store refuses a record that another process has, so the caller gives those tasks up.
        """
        refused = frozenset(self._refused.intersection(forgotten))
        self._refused.clear()
        if refused:
            log.warning(
                "lost tasks were not restored to the store: other replicas have them", extra={"tasks": len(refused)}
            )
        return refused

    async def restore_all(self, tasks: Iterable[TaskId]) -> None:
        """Restore tasks. If the store fails meanwhile, the next reply names the rest again."""
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
