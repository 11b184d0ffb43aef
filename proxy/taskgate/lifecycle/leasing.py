"""Which tasks this process holds in a store that others share: said to the store, and heard from it.

A call that runs here has a lease. It is renewed with each sign of life (`heartbeat`), which is given only while the
loop that runs the calls has itself shown life within a lease: a process that hangs is taken for gone. What the store
says to a sign of life is obeyed here: a task that another took over stops; one that the store has forgotten is put
back, as it was last written; a question whose stream went with its process is free. What must not live here: how a call
runs and ends (`runner`), who takes over (`sweeper`).

`open` once the store is open, before the runner is; `close` after the runner has stopped and before the store closes.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from taskgate.clock import SharedClock
from taskgate.domain.record import TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.heartbeat import Heartbeat
from taskgate.lifecycle.holdings import BEATS, Holdings
from taskgate.lifecycle.orphaned_claims import OrphanedClaims
from taskgate.lifecycle.restoring import Restoring
from taskgate.lifecycle.task_runs import TaskRun
from taskgate.stores.shared import HeartbeatReply, LeaseStore, LeaseStoreFactory
from taskgate.system.background import Background
from taskgate.telemetry.events import EventSink, LeaseLost

STEADY_BEATS: Final = 2
"""For how many heartbeats the store has to be there before anything is taken over: by then all others were heard."""
PULSES: Final = 4
"""How often, in a heartbeat, the loop shows that it lives."""


class LeaseRules(NamedTuple):
    """How long after its last sign of life a process is taken for gone, and how often it gives one."""

    length: timedelta
    heartbeat: timedelta


class _Sign(NamedTuple):
    """A sign of life on its way: what is held, when it left, how long it is good, until when the one before was."""

    held: Mapping[TaskId, int]
    asked: float
    lease: timedelta
    before: datetime | None


class Leasing:
    """What this process, `holder`, holds. It belongs to one event loop; `open` and `close` are for that, too."""

    def __init__(
        self,
        *,
        holder: str,
        leases: LeaseStore,
        apart: LeaseStoreFactory,
        rules: LeaseRules,
        clock: SharedClock,
        event_sink: EventSink,
    ) -> None:
        self.holder = holder
        self.rules = rules
        self._leases = leases
        self._clock = clock
        self._event_sink = event_sink
        self._runs: dict[TaskId, TaskRun] = {}
        self._kept = Holdings(BEATS * rules.heartbeat.total_seconds())
        self._restoring = Restoring(self._kept, leases, holder=holder, length=rules.length, clock=clock)
        self._orphaned_claims = OrphanedClaims(STEADY_BEATS * rules.heartbeat.total_seconds())
        self._background = Background()
        self._heartbeat = Heartbeat(apart, self._beat_apart, every=rules.heartbeat)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pulse: asyncio.TimerHandle | None = None
        self._alive = clock.elapsed()
        self._steady: float | None = None
        self._zero: datetime | None = None
        self._others: frozenset[str] = frozenset()
        self._until: datetime | None = None
        self._full = False

    async def open(self) -> None:
        """Take the store's time, if it is there, and begin to give signs of life."""
        with suppress(StoreUnavailable):
            await self.beat()
        self._loop = asyncio.get_running_loop()
        self._show_life()
        self._heartbeat.start()

    async def close(self) -> None:
        """Give none any more, and say so. Leases stay as they are: what is left unfinished is taken over."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        if self._pulse is not None:
            self._pulse.cancel()
        await self._heartbeat.stop()
        await self._background.close()
        with suppress(StoreUnavailable):
            await self._leases.part(self.holder)

    @property
    def processes(self) -> int:
        """How many were alive at the last sign of life, this one included."""
        return len(self._others) + 1

    @property
    def is_heard(self) -> bool:
        """Whether the store takes what this process has to say: it has it that this lives, and room for more."""
        return self._until is not None and self._clock.now() < self._until and not self._full

    @property
    def may_take_over(self) -> bool:
        """Whether who has not renewed a lease had the time to: the store has been there, and whole, for long enough."""
        if self._steady is None:
            return False
        return self._clock.elapsed() - self._steady >= STEADY_BEATS * self.rules.heartbeat.total_seconds()

    async def beat(self) -> None:
        """Give a sign of life at once, and obey what the store says to it. Raises StoreUnavailable."""
        sign = _Sign(self._kept.revisions(), self._clock.elapsed(), self.rules.length, self._until)
        try:
            said = await self._leases.beat(self.holder, sign.held, lease=sign.lease)
        except StoreUnavailable:
            self._miss()
            raise
        self._hear(said, sign, self._clock.elapsed())

    # --- what runs here

    def begin(self, run: TaskRun, record: TaskRecord) -> None:
        """A call runs here from now on; its record is stored, whole, and ours."""
        run.begun = self._clock.elapsed()
        self._runs[record.id] = run
        self._kept.begin(record)

    def end(self, run: TaskRun) -> None:
        """It is over, however it ended."""
        if self._runs.get(run.id) is run:
            del self._runs[run.id]
            self._kept.end(run.id)

    def keeps(self, run: TaskRun, record: TaskRecord) -> bool:
        """Whether a call goes on whose lease lapsed and is ours again; else it is given up.

        It does where nobody has changed its record since this process last wrote it, or looked.
        """
        if not run.is_lost and self._kept.revision(record.id) == record.revision:
            return True
        self.lose(run)
        return False

    def lose(self, run: TaskRun) -> None:
        """Another process has, or had, the task: its call is given up, if it still runs, and that is told once."""
        if not run.is_lost:
            self._event_sink.emit(LeaseLost("task"))
            run.lose()
            self._kept.end(run.id, forget=True)

    # --- see Hold

    def holds(self, record: TaskRecord) -> bool:
        """See Hold."""
        run = self._runs.get(record.id)
        return record.lease is not None and record.lease.holder == self.holder and not (run is not None and run.is_lost)

    def wrote(self, record: TaskRecord) -> None:
        """See Hold."""
        self._kept.put(record, at=self._clock.elapsed())

    def overslept(self, since: float) -> bool:
        """See Hold."""
        return self._clock.elapsed() - since >= self.rules.length.total_seconds()

    async def healed(self, task: TaskId, found: TaskRecord | None) -> bool:
        """See Hold."""
        known = self._kept.revision(task)
        if known is None or (found is not None and (found.revision >= known or found.status.is_terminal)):
            return False
        return await self._restoring.restore(task)

    # --- signs of life

    def _show_life(self) -> None:
        self._alive = self._clock.elapsed()
        if self._loop is not None:
            pause = self.rules.heartbeat.total_seconds() / PULSES
            self._pulse = self._loop.call_later(pause, self._show_life)

    async def _beat_apart(self, leases: LeaseStore) -> bool:
        """One sign of life, on the thread of signs; whether the store heard it, or was not to."""
        asked = self._clock.elapsed()
        age = timedelta(seconds=asked - self._alive)
        if age >= self.rules.length:
            return True
        # What a loop holds that shows none itself is held for no longer than it takes to be sure.
        lease = min(self.rules.length, self.rules.length - age + self.rules.heartbeat)
        sign = _Sign(self._kept.revisions(), asked, lease, self._until)
        try:
            said = await leases.beat(self.holder, sign.held, lease=lease)
        except StoreUnavailable:
            self._tell(self._miss)
            return False
        self._tell(partial(self._hear, said, sign, self._clock.elapsed()))
        return True

    def _tell(self, what: Callable[[], None]) -> None:
        loop = self._loop
        # A loop that has been closed needs to know nothing any more.
        with suppress(RuntimeError):
            if loop is not None:
                loop.call_soon_threadsafe(what)

    def _miss(self) -> None:
        self._steady = None
        self._orphaned_claims.forget()

    def _hear(self, said: HeartbeatReply, sign: _Sign, answered: float) -> None:
        asked = sign.asked
        self._clock.align(said.time, asked=asked, answered=answered)
        self._others = said.alive - {self.holder}
        self._until, self._full = said.time + sign.lease, said.full
        forgotten = self._restoring.forgotten(said.behind)
        refused = self._restoring.refused(forgotten)
        for run in self._running(refused, asked):
            # It was not to be put back, and is not there as it was: another has it.
            self.lose(run)
        for task in refused - self._runs.keys():
            self._kept.end(task, forget=True)
        if forgotten or _is_older(said, sign) or self._was_set():
            # Others may not have found it out yet: until they have, their leases are not what they seem.
            self._miss()
        elif self._steady is None or _is_late(said, sign):
            self._steady = answered
        if forgotten:
            self._background.run(partial(self._restoring.restore_all, forgotten - refused))
        for run in self._running(said.lost, asked):
            self.lose(run)
        for run in self._running(said.ended, asked):
            run.stop()
        found = {task: revision for task, revision in sign.held.items() if task not in said.behind}
        self._kept.found(found, asked=asked)
        self._free_strays(said.alive, asked)

    def _was_set(self) -> bool:
        """Whether the store's clock went another way than ours since the last sign of life that was heard."""
        before, self._zero = self._zero, self._clock.now() - timedelta(seconds=self._clock.elapsed())
        return before is not None and abs(self._zero - before) > self.rules.heartbeat

    def _free_strays(self, alive: frozenset[str], asked: float) -> None:
        """Have questions asked again whose streams went with their processes."""
        if self.may_take_over:
            for stray in self._orphaned_claims.look(self._kept.records(), alive, asked):
                if (run := self._runs.get(stray.task)) is not None:
                    run.listener.free(stray.key, stray.claim)

    def _running(self, tasks: Iterable[TaskId], asked: float) -> Iterator[TaskRun]:
        """Those of them that ran here when something was asked: one that was taken over again since is another."""
        runs = [self._runs[task] for task in tasks if task in self._runs]
        return (run for run in runs if run.begun <= asked)


def _is_late(said: HeartbeatReply, sign: _Sign) -> bool:
    """Whether this process was itself taken for gone: what held it up, a machine or a store, may hold up others."""
    return sign.before is not None and sign.before < said.time


def _is_older(said: HeartbeatReply, sign: _Sign) -> bool:
    """Whether the store is not as it was when it last heard us: it came back with what was true before."""
    return sign.before is not None and (said.before is None or said.before < sign.before)
