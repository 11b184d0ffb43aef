"""The leases of this process in a shared store: `Leasing`.

Each running task has a lease, which heartbeats renew (`Heartbeat`). A heartbeat sends the tasks of
this process with the revisions that it knows. The reply says where the store differs:

- lost: another process took the task over, so its call is cancelled here;
- ended: the task has ended, for example by a cancellation, so its call stops;
- behind: the store lost the task or its newest state, so it is restored (`RecordCopies`);
- alive: the live processes. If a missing one had sent a question to a host, the question's claim is
  removed (`OrphanedClaims`).

`Runner` calls `begin` and `end` around each run. The sweeper takes over tasks of other processes,
but only while `may_take_over`. Heartbeats are sent on a thread of their own. They are sent
only while the main loop has shown activity within a lease: a process that hangs counts as gone.

Call `open` after the store is open and before the runner is. Call `close` after the runner has
stopped and before the store closes.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from logging import getLogger
from typing import Final, NamedTuple

from taskgate.clock import SharedClock
from taskgate.domain.record import TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.input_delivery import carrier
from taskgate.lifecycle.recovery import RecordCopies
from taskgate.lifecycle.task_run import TaskRun
from taskgate.stores.shared import HeartbeatReply, LeaseStore, LeaseStoreFactory
from taskgate.system.background import Background
from taskgate.telemetry.events import EventSink, LeaseLost

STEADY_BEATS: Final = 2
"""The number of heartbeats for which the store must be available before a takeover. By then all
live processes have renewed their leases."""
PULSES: Final = 4
"""How often the main loop shows activity in the time of a heartbeat."""
ENDED_BEATS: Final = 2
"""The number of heartbeats for which a final state must have been stored before its copy is
dropped."""
RETRY: Final = timedelta(seconds=1)
"""The delay before a failed heartbeat is repeated."""

log = getLogger("taskgate.leases")


class LeaseRules(NamedTuple):
    """The length of a lease, and the time between two heartbeats."""

    length: timedelta
    heartbeat: timedelta


class _SentHeartbeat(NamedTuple):
    """A heartbeat that was sent.

    `held` are the tasks with their revisions, `asked` is the time of sending. `lease` is the length
    to which it renews the leases. `before` is the time until which the previous heartbeat renewed
    them; None if there was none.
    """

    held: Mapping[TaskId, int]
    asked: float
    lease: timedelta
    before: datetime | None


class Leasing:
    """The leases of one process, `holder`. It belongs to one event loop, the main loop.

    `leases` is the store for that loop, `apart` opens another one for the heartbeat thread. Times
    are those of the monotonic clock, except `_until`, which is of the store's clock.

    - `_runs`: the calls that run here; `_copies`: copies of their records, and of those just ended.
    - `_alive`: when the main loop last showed activity.
    - `_steady`: since when the store has answered without a sign of lost data; None if not now.
    - `_zero`: the store's time at zero of the monotonic clock, at the last reply.
    - `_until`: the end of the leases by the last reply; `_full`: whether the store has no room.
    - `_apart`: the heartbeat of the thread that is under way, or None; `_answered`: set when its
      reply has been handled.
    """

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
        patience = ENDED_BEATS * rules.heartbeat.total_seconds()
        self._copies = RecordCopies(leases, holder=holder, length=rules.length, patience=patience, clock=clock)
        self._orphaned_claims = OrphanedClaims(STEADY_BEATS * rules.heartbeat.total_seconds())
        self._background = Background()
        self._heartbeat = Heartbeat(apart, self._beat_apart, every=rules.heartbeat)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pulse: asyncio.TimerHandle | None = None
        self._alive = clock.elapsed()
        self._steady: float | None = None
        self._zero: datetime | None = None
        self._others: frozenset[str] = frozenset()
        self._vanished: Mapping[str, datetime] = {}
        self._until: datetime | None = None
        self._full = False
        self._apart: _SentHeartbeat | None = None
        self._answered = asyncio.Event()

    async def open(self) -> None:
        """Send a first heartbeat if the store is available, and start the heartbeat thread."""
        with suppress(StoreUnavailable):
            await self.beat()
        self._loop = asyncio.get_running_loop()
        self._show_life()
        self._heartbeat.start()

    async def close(self) -> None:
        """Stop the heartbeats, and remove this process from the live ones.

        Leases stay as they are. When they lapse, other processes take the tasks over.
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
    def peers(self) -> frozenset[str]:
        """The names of the other live processes at the last heartbeat."""
        return self._others

    @property
    def vanished(self) -> Mapping[str, datetime]:
        """The processes that ended without a `part` in the last ten minutes, or hang, each since when."""
        return self._vanished

    @property
    def processes(self) -> int:
        """The number of live processes at the last heartbeat, including this one."""
        return len(self._others) + 1

    @property
    def heard_until(self) -> datetime | None:
        """The time until which this process counts as alive by its last heartbeat; None before the first."""
        return self._until

    @property
    def is_heard(self) -> bool:
        """Whether the store accepts work of this process.

        So it does while the leases of the last heartbeat last, and there is room for data.
        """
        return self._until is not None and self._clock.now() < self._until and not self._full

    @property
    def may_take_over(self) -> bool:
        """Whether a lapsed lease proves that its process is gone.

        Only if the store has been available and complete for STEADY_BEATS heartbeats. After an
        outage or a loss of data, leases lapse although their processes live.
        """
        if self._steady is None:
            return False
        return self._clock.elapsed() - self._steady >= STEADY_BEATS * self.rules.heartbeat.total_seconds()

    async def beat(self) -> None:
        """Send a heartbeat now from the main loop, and handle the reply. Raises StoreUnavailable.

        Returns after the reply to a heartbeat of the thread that is under way. Of two heartbeats only
        the one that the store gets first finds that the store has an older state.
        """
        sent = _SentHeartbeat(self._copies.revisions(), self._clock.elapsed(), self.rules.length, self._until)
        try:
            reply = await self._leases.beat(self.holder, sent.held, lease=sent.lease)
        except StoreUnavailable:
            self._distrust_store()
            raise
        self._handle_reply(reply, sent, self._clock.elapsed())
        while self._apart is not None:
            self._answered.clear()
            await self._answered.wait()

    # --- tasks of this process ----------------------------------------------------------------------------------------

    def begin(self, run: TaskRun, record: TaskRecord) -> None:
        """Add a call that starts here. `record` is whole, and stored with this process's lease."""
        run.begun = self._clock.elapsed()
        self._runs[record.id] = run
        self._copies.begin(record)

    def end(self, run: TaskRun) -> None:
        """Remove a run that has ended. Its record's copy may stay for a while (`RecordCopies.end`)."""
        if self._runs.get(run.id) is run:
            del self._runs[run.id]
            self._copies.end(run.id)

    def keeps(self, run: TaskRun, record: TaskRecord) -> bool:
        """Return whether a run continues here although its lease had lapsed; else it is cancelled.

        It continues if no other process changed its record meanwhile. `record` is what the sweeper
        found when it gave the lapsed lease to this process again.
        """
        if not run.is_lost and self._copies.revision(record.id) == record.revision:
            return True
        self.lose(run.id)
        return False

    # --- the Hold protocol --------------------------------------------------------------------------------------------

    def holds(self, record: TaskRecord) -> bool:
        run = self._runs.get(record.id)
        return record.lease is not None and record.lease.holder == self.holder and not (run is not None and run.is_lost)

    def on_stored(self, record: TaskRecord) -> None:
        self._copies.put(record)

    def lose(self, task: TaskId) -> None:
        run = self._runs.get(task)
        if run is not None and not run.is_lost:
            self._event_sink.emit(LeaseLost("task", run.owner.mount, task))
            run.lose()
            self._copies.end(task, forget=True)

    def may_have_lapsed(self, since: float) -> bool:
        return self._clock.elapsed() - since >= self.rules.length.total_seconds()

    async def restored(self, task: TaskId, found: TaskRecord | None) -> bool:
        known = self._copies.revision(task)
        if known is None or (found is not None and (found.revision >= known or found.status.is_terminal)):
            return False
        return await self._copies.restore(task)

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    def _show_life(self) -> None:
        """Note that the main loop is active, now and PULSES times in each heartbeat interval."""
        self._alive = self._clock.elapsed()
        if self._loop is not None:
            pause = self.rules.heartbeat.total_seconds() / PULSES
            self._pulse = self._loop.call_later(pause, self._show_life)

    async def _beat_apart(self, leases: LeaseStore) -> bool:
        """Send a heartbeat on the heartbeat thread; its reply is handled on the main loop.

        Returns False only if the store failed, so that it is tried again soon.
        """
        asked = self._clock.elapsed()
        age = timedelta(seconds=asked - self._alive)
        if age >= self.rules.length:
            # The main loop hangs: let the leases lapse.
            return True
        # The longer the main loop shows no activity, the shorter are the leases. So they end soon
        # after a whole lease without activity.
        lease = min(self.rules.length, self.rules.length - age + self.rules.heartbeat)
        sent = self._apart = _SentHeartbeat(self._copies.revisions(), asked, lease, self._until)
        try:
            reply = await leases.beat(self.holder, sent.held, lease=lease)
            self._call_on_main_loop(partial(self._handle_reply, reply, sent, self._clock.elapsed()))
            return True
        except StoreUnavailable:
            self._call_on_main_loop(self._distrust_store)
            return False
        finally:
            self._call_on_main_loop(partial(self._note_answer, sent))

    def _note_answer(self, sent: _SentHeartbeat) -> None:
        """Note, on the main loop, that the answer to a heartbeat of the thread has been handled."""
        # The next one may be under way, if the main loop was busy.
        if self._apart is sent:
            self._apart = None
            self._answered.set()

    def _call_on_main_loop(self, callback: Callable[[], None]) -> None:
        loop = self._loop
        # After the main loop was closed, replies have no receiver.
        with suppress(RuntimeError):
            if loop is not None:
                loop.call_soon_threadsafe(callback)

    def _distrust_store(self) -> None:
        """Handle that the store failed or lost data: what it says of others proves nothing for now."""
        self._steady = None
        self._orphaned_claims.forget()

    def _handle_reply(self, reply: HeartbeatReply, sent: _SentHeartbeat, answered: float) -> None:
        """Handle the reply to a heartbeat, on the main loop. `answered` is when it arrived."""
        asked = sent.asked
        self._clock.align(reply.time, asked=asked, answered=answered)
        self._others = reply.alive - {self.holder}
        for name in reply.vanished.keys() - self._vanished.keys():
            log.warning("a replica vanished: others take its tasks over", extra={"replica": name})
        self._vanished = reply.vanished
        self._until, self._full = reply.time + sent.lease, reply.full
        forgotten, refused = self._copies.forgotten(reply.behind)
        for run in self._running(refused, asked):
            # The store did not take it back, and is still behind: another process has the task.
            self.lose(run.id)
        for task in refused - self._runs.keys():
            self._copies.end(task, forget=True)
        if forgotten or refused or _is_older(reply, sent) or self._clock_was_set():
            # The store lost data, or its clock jumped. Other processes may not have renewed their
            # leases since: until they do, a lapsed or missing lease proves nothing.
            self._distrust_store()
        elif self._steady is None or _is_late(reply, sent):
            self._steady = answered
        if forgotten:
            self._background.run(partial(self._copies.restore_all, forgotten))
        for run in self._running(reply.lost, asked):
            self.lose(run.id)
        for run in self._running(reply.ended, asked):
            run.stop()
        found = {task: revision for task, revision in sent.held.items() if task not in reply.behind}
        self._copies.found(found, asked=asked)
        self._free_orphaned_claims(reply.alive, asked)

    def _clock_was_set(self) -> bool:
        """Return whether the store's clock jumped since the last reply; remember its present state."""
        before, self._zero = self._zero, self._clock.now() - timedelta(seconds=self._clock.elapsed())
        return before is not None and abs(self._zero - before) > self.rules.heartbeat

    def _free_orphaned_claims(self, alive: frozenset[str], asked: float) -> None:
        """Remove the claims of questions whose streams belonged to processes that are gone."""
        if self.may_take_over:
            for orphan in self._orphaned_claims.look(self._copies.records(), alive, asked):
                if (run := self._runs.get(orphan.task)) is not None:
                    run.listener.release_claim(orphan.key, orphan.claim)

    def _running(self, tasks: Iterable[TaskId], asked: float) -> Iterator[TaskRun]:
        """Return the runs of those tasks that began before `asked`, when the heartbeat was sent.

        A run that began later is not meant by the reply: its task was taken over here since.
        """
        runs = [self._runs[task] for task in tasks if task in self._runs]
        return (run for run in runs if run.begun <= asked)


def _is_late(reply: HeartbeatReply, sent: _SentHeartbeat) -> bool:
    """Return whether this process had counted as gone before the heartbeat.

    What delayed it (an outage, a slow network) may have delayed others too, so their lapsed leases
    prove nothing yet.
    """
    return sent.before is not None and sent.before < reply.time


def _is_older(reply: HeartbeatReply, sent: _SentHeartbeat) -> bool:
    """Return whether the store no longer knows the previous heartbeat: it has an older state again."""
    return sent.before is not None and (reply.before is None or reply.before < sent.before)


class Heartbeat:
    """A thread that calls `beat` every `every`, and sooner after a failure.

    It has its own event loop and its own connection. So the leases survive a moment in which the
    main loop is blocked.

    `apart` opens the thread's own lease store. `beat` runs on the thread; it returns False if the
    store failed.
    """

    def __init__(
        self, apart: LeaseStoreFactory, beat: Callable[[LeaseStore], Awaitable[bool]], *, every: timedelta
    ) -> None:
        self._apart = apart
        self._beat = beat
        self._every = every
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name="taskgate-heartbeat", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Stop the thread and wait for its end. A heartbeat under way is cancelled."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(_cancel_all, loop)
            await asyncio.to_thread(thread.join)
            loop.close()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(self._beat_with_reconnects())

    async def _beat_with_reconnects(self) -> None:
        while True:
            try:
                async with self._apart() as leases:
                    await self._beat_on(leases)
            except Exception:
                # Without heartbeats other replicas take over all tasks of this one, so retry after
                # any error.
                log.exception("Unexpected error while renewing leases; trying again")
                await asyncio.sleep(min(self._every, RETRY).total_seconds())

    async def _beat_on(self, leases: LeaseStore) -> None:
        while True:
            succeeded = await self._beat(leases)
            await asyncio.sleep((self._every if succeeded else min(self._every, RETRY)).total_seconds())


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()


class OrphanedClaim(NamedTuple):
    """A question of a task by its key, and the claim of a stream that is gone."""

    task: TaskId
    key: str
    claim: str


class OrphanedClaims:
    """The claims of questions by processes that are gone.

    A question of a task may have been sent on a stream of another replica, whose claim is in the
    record (`input_delivery`). If that replica is gone, its claim would block the question forever.
    The process that runs the task looks for such claims, because it has a copy of the record.

    A claim is orphaned if its process stays missing for `patience` seconds: a short gap must not ask
    a host twice (H-LEG-8). `_since` is when a claim's process was first missing.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[OrphanedClaim, float] = {}

    def look(self, records: Iterable[TaskRecord], alive: Collection[str], asked: float) -> list[OrphanedClaim]:
        """Return the claims in `records` that are orphaned by now.

        `alive` are the processes that lived at the time `asked`. A process that is missing for the
        first time may have started after `alive` was read, so one look is never enough. A claim is
        returned again after the same time if it still exists, because its removal may fail.
        """
        missing = [claim for record in records for claim in _claimed(record) if carrier(claim.claim) not in alive]
        self._since = {claim: self._since.get(claim, asked) for claim in missing}
        orphaned = [claim for claim, since in self._since.items() if asked - since >= self._patience]
        self._since.update(dict.fromkeys(orphaned, asked))
        return orphaned

    def forget(self) -> None:
        """Start again, because the store failed or lost data: a missing process proves nothing."""
        self._since.clear()


def _claimed(record: TaskRecord) -> Iterator[OrphanedClaim]:
    for request in record.inputs:
        if request.claimed_by is not None:
            yield OrphanedClaim(record.id, request.key, request.claimed_by)
