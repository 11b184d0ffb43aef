"""The leases of this process in a shared store: `Leasing`.

Each running task has a lease, which heartbeats renew (`heartbeat`). A heartbeat sends the tasks of
this process with their revisions. The reply tells what the store knows otherwise:

- lost: another process took the task over, so its call is cancelled here;
- ended: the task has ended, for example by a cancellation, so its call stops;
- behind: the store lost the task or its newest state, so it is restored (`restoring`);
- alive: the live processes. A question whose stream belonged to another is released.

Heartbeats are sent only while the main loop has shown activity within a lease: a process that hangs
counts as gone. `Runner` runs the calls, the sweeper takes over tasks of other processes.

Call `open` after the store is open and before the runner is. Call `close` after the runner has
stopped and before the store closes.
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
"""The number of heartbeats for which the store must be available before a takeover. By then all
live processes have renewed their leases."""
PULSES: Final = 4
"""How often the main loop shows activity in the time of a heartbeat."""


class LeaseRules(NamedTuple):
    """The length of a lease, and the time between two heartbeats."""

    length: timedelta
    heartbeat: timedelta


class _Sign(NamedTuple):
    """A heartbeat under way: the held tasks with their revisions, the time it was sent, the length
    of the leases. `before` is the end of the leases that the previous one renewed.
    """

    held: Mapping[TaskId, int]
    asked: float
    lease: timedelta
    before: datetime | None


class Leasing:
    """The leases of one process, `holder`. It belongs to one event loop, as do `open` and `close`."""

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
        """Read the store's clock, if it is available, and start the heartbeats."""
        with suppress(StoreUnavailable):
            await self.beat()
        self._loop = asyncio.get_running_loop()
        self._show_life()
        self._heartbeat.start()

    async def close(self) -> None:
        """Stop the heartbeats, and announce that. Leases stay as they are: other processes take
        over.
        """
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
        """The number of live processes at the last heartbeat, including this one."""
        return len(self._others) + 1

    @property
    def is_heard(self) -> bool:
        """Whether the store accepts work of this process: its last heartbeat is valid, and there is
        room.
        """
        return self._until is not None and self._clock.now() < self._until and not self._full

    @property
    def may_take_over(self) -> bool:
        """Whether a lapsed lease is reliable: the store has been available and complete for long
        enough.
        """
        if self._steady is None:
            return False
        return self._clock.elapsed() - self._steady >= STEADY_BEATS * self.rules.heartbeat.total_seconds()

    async def beat(self) -> None:
        """Send a heartbeat now, and handle the reply. Raises StoreUnavailable."""
        sign = _Sign(self._kept.revisions(), self._clock.elapsed(), self.rules.length, self._until)
        try:
            said = await self._leases.beat(self.holder, sign.held, lease=sign.lease)
        except StoreUnavailable:
            self._miss()
            raise
        self._hear(said, sign, self._clock.elapsed())

    # --- tasks of this process ----------------------------------------------------------------------------------------

    def begin(self, run: TaskRun, record: TaskRecord) -> None:
        """Add a call that runs here. Its whole record is stored with this process's lease."""
        run.begun = self._clock.elapsed()
        self._runs[record.id] = run
        self._kept.begin(record)

    def end(self, run: TaskRun) -> None:
        """Remove a call that is over."""
        if self._runs.get(run.id) is run:
            del self._runs[run.id]
            self._kept.end(run.id)

    def keeps(self, run: TaskRun, record: TaskRecord) -> bool:
        """Return whether a call continues whose lease had lapsed; otherwise it is cancelled.

        It continues if no other process changed its record meanwhile.
        """
        if not run.is_lost and self._kept.revision(record.id) == record.revision:
            return True
        self.lose(run)
        return False

    def lose(self, run: TaskRun) -> None:
        """Cancel a call whose task another process has or had, and report that once."""
        if not run.is_lost:
            self._event_sink.emit(LeaseLost("task"))
            run.lose()
            self._kept.end(run.id, forget=True)

    # --- the Hold protocol --------------------------------------------------------------------------------------------

    def holds(self, record: TaskRecord) -> bool:
        run = self._runs.get(record.id)
        return record.lease is not None and record.lease.holder == self.holder and not (run is not None and run.is_lost)

    def wrote(self, record: TaskRecord) -> None:
        self._kept.put(record, at=self._clock.elapsed())

    def overslept(self, since: float) -> bool:
        return self._clock.elapsed() - since >= self.rules.length.total_seconds()

    async def healed(self, task: TaskId, found: TaskRecord | None) -> bool:
        known = self._kept.revision(task)
        if known is None or (found is not None and (found.revision >= known or found.status.is_terminal)):
            return False
        return await self._restoring.restore(task)

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    def _show_life(self) -> None:
        self._alive = self._clock.elapsed()
        if self._loop is not None:
            pause = self.rules.heartbeat.total_seconds() / PULSES
            self._pulse = self._loop.call_later(pause, self._show_life)

    async def _beat_apart(self, leases: LeaseStore) -> bool:
        """Send a heartbeat on the heartbeat thread; return whether it succeeded or was not due."""
        asked = self._clock.elapsed()
        age = timedelta(seconds=asked - self._alive)
        if age >= self.rules.length:
            return True
        # If the main loop shows no activity, its leases end as soon as that is certain.
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
        # After the main loop was closed, replies have no receiver.
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
            # It could not be restored and is not there as it was: another process has it.
            self.lose(run)
        for task in refused - self._runs.keys():
            self._kept.end(task, forget=True)
        if forgotten or _is_older(said, sign) or self._was_set():
            # Other processes may not know it yet: until they do, their leases may be missing.
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
        """Return whether the store's clock was set since the last reply."""
        before, self._zero = self._zero, self._clock.now() - timedelta(seconds=self._clock.elapsed())
        return before is not None and abs(self._zero - before) > self.rules.heartbeat

    def _free_strays(self, alive: frozenset[str], asked: float) -> None:
        """Release questions whose streams belonged to processes that are gone."""
        if self.may_take_over:
            for stray in self._orphaned_claims.look(self._kept.records(), alive, asked):
                if (run := self._runs.get(stray.task)) is not None:
                    run.listener.free(stray.key, stray.claim)

    def _running(self, tasks: Iterable[TaskId], asked: float) -> Iterator[TaskRun]:
        """Return those that already ran here at that time. One that was taken over since is a new
        run.
        """
        runs = [self._runs[task] for task in tasks if task in self._runs]
        return (run for run in runs if run.begun <= asked)


def _is_late(said: HeartbeatReply, sign: _Sign) -> bool:
    """Return whether this process itself counted as gone: its cause may also delay others."""
    return sign.before is not None and sign.before < said.time


def _is_older(said: HeartbeatReply, sign: _Sign) -> bool:
    """Return whether the store lost the last heartbeat, and so returned with an older state."""
    return sign.before is not None and (said.before is None or said.before < sign.before)
