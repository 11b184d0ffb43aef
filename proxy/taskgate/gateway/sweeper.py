"""What has to be looked after: what an earlier process left, what expired, what is idle, the store's gauges."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from logging import getLogger
from typing import Final, NamedTuple

from taskgate.admission.mounts import Mount
from taskgate.clock import Clock
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.errors import StoreUnavailable
from taskgate.gateway.modern.calls import Calls
from taskgate.gateway.modern.session_pool import SessionPool
from taskgate.lifecycle.leasing import Leasing
from taskgate.lifecycle.reports import report_unanswered
from taskgate.lifecycle.runner import Runner
from taskgate.sessions.registry import HostSessions
from taskgate.stores.base import Store
from taskgate.telemetry.events import EventSink, StoreCounted, TaskExpired, TaskFinished, TaskPurged

BATCH: Final = 200
MAX_TTL: Final = timedelta(days=36_500)
RECOVERY_PAUSE: Final = 1.0
"""Seconds until recovery is tried again that the store did not allow."""
TAKEN_PAUSE: Final = 0.1
"""Seconds between two batches that are taken over from another process: hosts are served meanwhile."""
CENSUS_EVERY: Final = timedelta(seconds=15)
NOTABLE: Final = timedelta(minutes=1)
"""By how much the wall clock has to be away from the time of tasks for the log to have it."""
CHECK_EVERY: Final = timedelta(seconds=1)
"""How often a store that had a fault is asked whether that is over."""
SESSIONS_EVERY: Final = timedelta(seconds=30)
CALLS_EVERY: Final = timedelta(seconds=1)

log = getLogger("taskgate.sweeper")


class HostWaits(NamedTuple):
    """What waits for hosts, and not for ever: their sessions, those with servers that none of them has, held calls."""

    sessions: HostSessions
    lines: SessionPool
    calls: Calls


class Sweeper:
    """The rounds of one process. `interval` is the time between two purges.

    With `leasing`, other processes share the store, and what one of them left is taken over whenever that happens.
    """

    def __init__(
        self,
        *,
        store: Store,
        runner: Runner,
        waiting: HostWaits,
        mounts: Mapping[str, Mount],
        event_sink: EventSink,
        clock: Clock,
        interval: timedelta,
        leasing: Leasing | None = None,
    ) -> None:
        self._store = store
        self._leasing = leasing
        self._runner = runner
        self._waiting = waiting
        self._mounts = mounts
        self._event_sink = event_sink
        self._clock = clock
        self._interval = interval
        self._rounds: list[asyncio.Task[None]] = []
        self._is_parting = False
        self._told_ahead = timedelta()

    def open(self) -> None:
        """Begin to take over what an earlier process left, and the rounds."""
        loop = asyncio.get_running_loop()
        if self._leasing is None:
            self._rounds.append(loop.create_task(self._recover_all()))
            self._rounds.append(loop.create_task(self._repeat(self.compare_clocks, CENSUS_EVERY)))
        else:
            taking = self._repeat(partial(self.take_over, self._leasing), self._leasing.rules.heartbeat)
            self._rounds.append(loop.create_task(taking))
        for step, every in (
            (self.purge, self._interval),
            (self.tidy, SESSIONS_EVERY),
            (self.give_up, CALLS_EVERY),
            (self.count, CENSUS_EVERY),
            (self._store.check, CHECK_EVERY),
        ):
            self._rounds.append(loop.create_task(self._repeat(step, every)))

    def part(self) -> None:
        """The gateway is about to end: others take over what is left of processes that are gone."""
        self._is_parting = True

    async def close(self) -> None:
        """End the rounds."""
        for task in self._rounds:
            task.cancel()
        await asyncio.gather(*self._rounds, return_exceptions=True)
        self._rounds.clear()

    async def recover(self) -> int:
        """Take over every task that an earlier process left unfinished; how many."""
        total = 0
        while True:
            now = self._clock.now()
            lapsed = await self._store.lapsed(holder=self._runner.holder, until=now + MAX_TTL, now=now, limit=BATCH)
            if not lapsed:
                return total
            # Together, so that their endings can share commits.
            await asyncio.gather(*(self._recover(record) for record in lapsed))
            total += len(lapsed)

    async def take_over(self, leasing: Leasing) -> None:
        """Take over the tasks whose process is gone; one that hangs counts as gone, too.

        Only of a store that was there, whole, for so long that every process which lives has renewed its leases: it is
        asked right before, lest it has just come back with what was true a while ago. Raises StoreUnavailable.
        """
        while not self._is_parting:
            await leasing.beat()
            if not leasing.may_take_over:
                return
            now = self._clock.now()
            until = now + leasing.rules.length
            lapsed = await self._store.lapsed(holder=self._runner.holder, until=until, now=now, limit=BATCH)
            await asyncio.gather(*(self._take_over(record) for record in lapsed))
            if lapsed:
                log.info("took over tasks of another process", extra={"tasks": len(lapsed)})
            if len(lapsed) < BATCH:
                return
            await asyncio.sleep(TAKEN_PAUSE)

    async def _take_over(self, record: TaskRecord) -> None:
        # What the store does not let us take over lapses again.
        with suppress(StoreUnavailable):
            await self._recover(record)

    async def _recover(self, record: TaskRecord) -> None:
        await self._runner.recover(record, self._mounts.get(record.owner.mount))

    async def _recover_all(self) -> None:
        while True:
            try:
                recovered = await self.recover()
            except StoreUnavailable:
                await asyncio.sleep(RECOVERY_PAUSE)
                continue
            if recovered:
                log.info("took over tasks of an earlier process", extra={"tasks": recovered})
            return

    async def purge(self) -> None:
        """Remove what has expired."""
        while True:
            gone = await self._store.purge(now=self._clock.now(), limit=BATCH)
            for record in gone:
                self._report(record)
            if len(gone) < BATCH:
                return

    async def tidy(self) -> None:
        """Let go of what is idle: sessions of hosts, and those with servers that no host has."""
        self._waiting.lines.sweep()
        await self._waiting.sessions.sweep()

    async def give_up(self) -> None:
        """Give up the calls whose host did not come back in time with what it was asked for."""
        self._waiting.calls.sweep()

    async def count(self) -> None:
        """Set the gauges that describe the store."""
        census = await self._store.census()
        self._event_sink.emit(StoreCounted(census.tasks, census.size))

    async def compare_clocks(self) -> None:
        """Tell that the wall clock was set, which tasks do not heed until a restart."""
        ahead = self._clock.wall() - self._clock.now()
        if abs(ahead - self._told_ahead) >= NOTABLE:
            self._told_ahead = ahead
            text = "the wall clock was changed; task times follow the old clock until a restart"
            log.warning(text, extra={"seconds": round(ahead.total_seconds())})

    def _report(self, record: TaskRecord) -> None:
        if not record.status.is_terminal:
            report_unanswered(self._event_sink, record)
            self._event_sink.emit(TaskExpired(record, record.status.value if record.dispatched else "queued"))
            self._event_sink.emit(TaskFinished(record, TaskStatus.FAILED, "expired", record.ttl, None))
        self._event_sink.emit(TaskPurged(record))

    async def _repeat(self, step: Callable[[], Awaitable[None]], every: timedelta) -> None:
        while True:
            try:
                await step()
            except StoreUnavailable:
                # The gauge `taskgate_store_up` tells; the next round tries again.
                pass
            except Exception:
                log.exception("Unexpected error in a round of the sweeper")
            await asyncio.sleep(every.total_seconds())
