"""The periodic work of one process: `Sweeper`.

It takes over tasks of processes that are gone, purges expired tasks, closes idle sessions, and
cancels held calls whose host takes too long. It also sets the gauges of the store, compares the
clocks, and checks a faulty store. Each step repeats at its own interval, in a task of its own. An
error is logged, and the step repeats. `wiring` opens it after the store, and closes it at the end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from logging import getLogger
from typing import Final, NamedTuple

from taskgate.admission.mounts import Mount
from taskgate.clock import Clock
from taskgate.domain.record import TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.gateway.modern.retries import HostRetries
from taskgate.lifecycle.leases import Leasing
from taskgate.lifecycle.runner import Runner
from taskgate.lifecycle.transitions import report_purged
from taskgate.sessions.registry import HostSessions
from taskgate.sessions.session_pool import SessionPool
from taskgate.stores.base import Store
from taskgate.telemetry.events import EventSink, StoreCounted

BATCH: Final = 200
"""Tasks that are taken over or purged in one request to the store."""
MAX_TTL: Final = timedelta(days=36_500)
"""The lease of tasks without other replicas: longer than any process lives."""
RECOVERY_PAUSE: Final = 1.0
"""Seconds until recovery is retried after the store failed."""
TAKEN_PAUSE: Final = 0.1
"""Seconds between two batches of a takeover, in which hosts are served."""
CENSUS_EVERY: Final = timedelta(seconds=15)
"""How often the tasks in the store are counted, and the clocks compared."""
NOTABLE: Final = timedelta(minutes=1)
"""Difference between wall clock and task clock that is logged."""
CHECK_EVERY: Final = timedelta(seconds=1)
"""How often a faulty store is checked."""
SESSIONS_EVERY: Final = timedelta(seconds=30)
"""How often idle sessions are closed."""
CALLS_EVERY: Final = timedelta(seconds=1)
"""How often held calls are checked."""

log = getLogger("taskgate.sweeper")


class HostWaits(NamedTuple):
    """The owners of what ends when its host does nothing for long.

    - `sessions`: the sessions of legacy hosts.
    - `pool`: the upstream sessions that modern hosts share.
    - `retries`: the calls of modern hosts that wait for a retry.
    """

    sessions: HostSessions
    pool: SessionPool
    retries: HostRetries


class Sweeper:
    """The periodic work of one process. `interval` is the time between two purges.

    With `leasing`, several replicas share the store. The tasks of a replica that is gone are then
    taken over repeatedly (`take_over`). Otherwise those of the earlier process are taken over once,
    at the start (`recover`).
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
        self._steps: list[asyncio.Task[None]] = []
        self._is_parting = False
        # Tasks that `recover` has taken over and could not continue, because the store failed. Their
        # lease is for as long as this process lives, so the store does not return them again.
        self._unrecovered: list[TaskRecord] = []
        self._logged_ahead = timedelta()

    def open(self) -> None:
        """Start recovery and the periodic steps."""
        loop = asyncio.get_running_loop()
        if self._leasing is None:
            self._steps.append(loop.create_task(self._recover_all()))
            self._steps.append(loop.create_task(self._repeat(self.compare_clocks, CENSUS_EVERY)))
        else:
            taking = self._repeat(partial(self.take_over, self._leasing), self._leasing.rules.heartbeat)
            self._steps.append(loop.create_task(taking))
        for step, every in (
            (self.purge, self._interval),
            (self.tidy, SESSIONS_EVERY),
            (self.give_up, CALLS_EVERY),
            (self.count, CENSUS_EVERY),
            (self._store.check, CHECK_EVERY),
        ):
            self._steps.append(loop.create_task(self._repeat(step, every)))

    def part(self) -> None:
        """Take over no more tasks, because this process is about to end; other replicas do that.

        The other steps continue until `close`.
        """
        self._is_parting = True

    async def close(self) -> None:
        """Stop all steps."""
        for task in self._steps:
            task.cancel()
        await asyncio.gather(*self._steps, return_exceptions=True)
        self._steps.clear()

    async def recover(self) -> int:
        """Take over every unfinished task of an earlier process, and return their number.

        Raises StoreUnavailable; a second call then continues, with the tasks that were taken over
        before and could not be continued.
        """
        total = 0
        while True:
            now, holder = self._clock.now(), self._runner.holder
            # `lapsed` finds tasks without a valid lease, and makes this process their holder.
            taken = self._unrecovered or [
                *await self._store.lapsed(holder=holder, until=now + MAX_TTL, now=now, limit=BATCH)
            ]
            if not taken:
                return total
            # Concurrently, so that their final states can share commits. All of them end before an error is raised.
            ends = await asyncio.gather(*(self._recover(record) for record in taken), return_exceptions=True)
            self._unrecovered = [
                record for record, end in zip(taken, ends, strict=True) if isinstance(end, StoreUnavailable)
            ]
            errors = [end for end in ends if end is not None]
            if errors:
                # A failure of the store is expected, and is met by the next call; any other is not.
                raise next((each for each in errors if not isinstance(each, StoreUnavailable)), errors[0])
            total += len(taken)

    async def take_over(self, leasing: Leasing) -> None:
        """Take over the tasks whose process is gone; called at each heartbeat with replicas. A
        process that hangs counts as gone.

        A lapsed lease proves this only if its process could have renewed it. So the store must have
        been available and complete for as long as every live process needs to renew its leases
        (`may_take_over`). A heartbeat right before each batch finds out, because the store may just
        have returned with an old state. If it does so after that, no task is taken over. Raises
        StoreUnavailable.
        """
        while not self._is_parting:
            await leasing.beat()
            if not leasing.may_take_over:
                return
            now = self._clock.now()
            until = now + leasing.rules.length
            lapsed = await self._store.lapsed(
                holder=self._runner.holder, until=until, now=now, limit=BATCH, heard=leasing.heard_until
            )
            await asyncio.gather(*(self._take_over(record) for record in lapsed))
            if lapsed:
                log.info("took over tasks of another process", extra={"tasks": len(lapsed)})
            if len(lapsed) < BATCH:
                return
            await asyncio.sleep(TAKEN_PAUSE)

    async def _take_over(self, record: TaskRecord) -> None:
        # If the store fails, the task lapses again and is found by a later round.
        with suppress(StoreUnavailable):
            await self._recover(record)

    async def _recover(self, record: TaskRecord) -> None:
        """Continue the call of a task that this process has taken over, or fail the task."""
        await self._runner.recover(record, self._mounts.get(record.owner.mount))

    async def _recover_all(self) -> None:
        """Recover once, and retry while the store is unavailable."""
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
        """Remove expired tasks, and report each."""
        while True:
            gone = await self._store.purge(now=self._clock.now(), limit=BATCH)
            for record in gone:
                report_purged(self._event_sink, record)
            if len(gone) < BATCH:
                return

    async def tidy(self) -> None:
        """Close idle sessions of hosts, and idle shared sessions."""
        self._waiting.pool.sweep()
        await self._waiting.sessions.sweep()

    async def give_up(self) -> None:
        """Cancel the calls whose host did not send the input responses in time."""
        self._waiting.retries.sweep()

    async def count(self) -> None:
        """Count the tasks in the store, and report that for the gauges."""
        census = await self._store.census()
        self._event_sink.emit(StoreCounted(census.tasks, census.size))

    async def compare_clocks(self) -> None:
        """Log each notable change of the wall clock. Tasks follow the old clock until a restart."""
        ahead = self._clock.wall() - self._clock.now()
        if abs(ahead - self._logged_ahead) >= NOTABLE:
            self._logged_ahead = ahead
            text = "the wall clock was changed; task times follow the old clock until a restart"
            log.warning(text, extra={"seconds": round(ahead.total_seconds())})

    async def _repeat(self, step: Callable[[], Awaitable[None]], every: timedelta) -> None:
        """Call `step` until cancelled, with pauses of `every` between the calls. Errors do not end
        this: they are logged, except StoreUnavailable.
        """
        while True:
            try:
                await step()
            except StoreUnavailable:
                # The gauge `taskgate_store_up` shows it; the next round tries again.
                pass
            except Exception:
                log.exception("Unexpected error in a round of the sweeper")
            await asyncio.sleep(every.total_seconds())
