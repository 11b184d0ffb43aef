"""The calls of tasks that run in this process: `Runner`.

`TaskService` calls `start` for a new task and `adopt` for a call that became a task after it was
sent. The sweeper calls `recover` for tasks of processes that are gone, `wiring` calls `idle` and
`stop` at shutdown. Each call is a `TaskRun`, executed by `TaskExecutor` as an asyncio task. The
record is the mailbox: a cancellation arrives as a newer revision, from this process or another
(`RecordWatcher`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from taskgate.admission.callers import principal_of
from taskgate.admission.concurrency import Permit
from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.events import CancelRequested
from taskgate.domain.record import FaultReason, OwnerKey, TaskId, TaskRecord
from taskgate.lifecycle.checkpoints import CallCheckpoint, RoundCheckpoint
from taskgate.lifecycle.completions import Completions
from taskgate.lifecycle.continuing import CallRoute
from taskgate.lifecycle.deadlines import wholly_bounded
from taskgate.lifecycle.dispatch import Dispatcher
from taskgate.lifecycle.execution import TaskExecutor
from taskgate.lifecycle.hearing import NOBODY, TaskListeners
from taskgate.lifecycle.leasing import Leasing
from taskgate.lifecycle.takeovers import Takeovers
from taskgate.lifecycle.task_runs import RecordWatcher, TaskRun
from taskgate.protocol.faults import call_ended
from taskgate.sessions.binding import CallSite, OngoingCall, TaskCreation
from taskgate.sessions.registry import HostSessions
from taskgate.stores.base import TaskStore
from taskgate.system.background import Background
from taskgate.telemetry.events import EventSink, TaskRecovered
from taskgate.telemetry.request_context import in_request
from taskgate.upstream.call_listener import ServerQuestion
from taskgate.upstream.principal import Principal

NOT_MADE: Final = "The task was not created: the task store was not available"
MAX_DISOWNED: Final = 256
"""The limit of tasks that may have been stored, and wait for a store that can tell."""
ENDING_PATIENCE: Final = 3.0
"""Seconds that a shutdown waits for final states to be written. The rest is ended at the next
start.

Far below `signals.GRACE`, after which the process is killed."""


class Runner:
    """The running calls of this process. `holder` is the name of the process in leases.

    `leasing` is given if replicas share the store. `hearing` creates the listeners.
    """

    def __init__(
        self,
        *,
        holder: str,
        store: TaskStore,
        sessions: HostSessions,
        hearing: TaskListeners,
        event_sink: EventSink,
        clock: Clock,
        leasing: Leasing | None = None,
    ) -> None:
        self.holder = holder
        self._store = store
        self._sessions = sessions
        self._hearing = hearing
        self._event_sink = event_sink
        self._clock = clock
        self._runs: dict[TaskId, TaskRun] = {}
        self._leasing = leasing
        dispatcher = Dispatcher(store=store, changes=hearing.changes, event_sink=event_sink, clock=clock, hold=leasing)
        self._completions = Completions(store=store, event_sink=event_sink, clock=clock, hold=leasing)
        self._lookout = RecordWatcher(holder=holder, store=store, runs=self._runs, clock=clock, hold=leasing)
        self._takeovers = Takeovers(
            store=store,
            completions=self._completions,
            event_sink=event_sink,
            clock=clock,
            hold=leasing,
            checkpoints=hearing.checkpoints,
        )
        self._executor = TaskExecutor(
            dispatcher=dispatcher,
            completions=self._completions,
            takeovers=self._takeovers,
            event_sink=event_sink,
            clock=clock,
            leasing=leasing,
        )
        self._watcher: asyncio.Task[None] | None = None
        self._ending = Background()
        self._stopping = False
        self.left: set[TaskId] = set()
        """Tasks that did not end before the shutdown, and continue after it."""
        self._expected = 0
        self._change = asyncio.Event()

    def open(self) -> None:
        """Start to watch for changes that others make to running tasks."""
        self._watcher = asyncio.get_running_loop().create_task(self._lookout.watch())

    def expecting(self, place: CallSite) -> TaskCreation:
        """Return a block in which a task is created: its session stays open, and `idle` waits for
        the task.
        """
        return TaskCreation(place, self._expect, self._expect_no_more)

    def start(self, record: TaskRecord, place: CallSite, caller: AuthContext, ticket: Permit) -> None:
        """Run the call of a new task of `caller`, when it gets its permit.

        The session stays open, and the ticket is not closed, until the call is over.
        """
        if record.id in self._runs:
            # It was taken over here before the store had confirmed that it was stored.
            ticket.release()
            return
        place.acquire()
        run = self._new_run(record)

        def part() -> None:
            ticket.release()
            place.release()

        self._launch(
            run, self._executor.run(run, record, CallRoute(place.upstream, principal_of(caller), ticket)), part
        )

    def adopt(self, record: TaskRecord, underway: OngoingCall, place: CallSite) -> None:
        """Make a sent call the call of a task, whose record says that it was sent. Otherwise like
        `start`.
        """
        if record.id in self._runs:
            underway.close()
            return
        place.acquire()
        run = self._new_run(record)
        call = wholly_bounded(underway.response, record, self._clock.now())

        def part() -> None:
            # However the task ended, even if it ended before it began.
            underway.close()
            place.release()

        self._launch(run, self._executor.see_through(run, call, place.upstream.outcome), part)
        underway.attach_listener(run.listener)

    async def recover(self, record: TaskRecord, mount: Mount | None) -> None:
        """Take over a task of a process that is gone.

        A call that was never sent, or may be sent again, is run; one with a checkpoint is resumed.
        Any other task ends as lost. A call between two rounds waits for its permit, whatever the
        queue's length; a call at its server continues at once. Raises StoreUnavailable if replicas
        share the store.
        """
        run = self._runs.get(record.id)
        if run is not None and not await self._parted(run, record):
            return
        taken = await self._takeovers.taken(record, is_served=mount is not None)
        if taken is None or mount is None:
            return
        record = taken
        run = self._runs.get(record.id)
        if run is not None and not await self._parted(run, record):
            # It was being created here meanwhile, and was told.
            return
        begun, kept = self._new_run(record, ran=record.dispatched), self._hearing.checkpoints.open(record)
        way, part = self._way(begun, record, mount)
        if isinstance(kept, CallCheckpoint):
            course = self._executor.stand(begun, record, kept, way, lambda: self._way(begun, record, mount))
        elif isinstance(kept, RoundCheckpoint):
            course = self._executor.go_on(begun, record, kept, way)
        else:
            course = self._executor.run(begun, record, way)
        self._launch(begun, course, part)
        self._event_sink.emit(TaskRecovered(record, "retried"))

    def _way(self, run: TaskRun, record: TaskRecord, mount: Mount) -> tuple[CallRoute, Callable[[], None]]:
        """Return a route of its own for a call that was taken over, and the function that closes
        it.
        """
        # Tokens are not stored. If the server needs one, the call ends unsent, or continues with
        # the token of the caller who answers a question.
        owner = Principal(context=record.owner.context, is_known=False)
        upstream = mount.upstream.session(NOBODY, lambda: run.listener.principal or owner, record.call.peer)
        ticket = mount.bulkhead.acquire(record.owner.context, force=True)

        def part() -> None:
            ticket.release()
            self._sessions.close_upstream(upstream)

        return CallRoute(upstream, None, ticket), part

    def cancel(self, owner: OwnerKey, task: TaskId) -> None:
        """Cancel a task in the background, because its host disconnected (H-MOD-9)."""
        self._ending.run(partial(self._completions.settle, owner, task, CancelRequested()))

    def disown(self, owner: OwnerKey, task: TaskId, *, dispatched: bool) -> None:
        """End a task in the background that may have been stored and runs nowhere.

        If too many wait for the store, one more is left to expire.
        """
        if len(self._ending.running) < MAX_DISOWNED:
            failed = call_ended(FaultReason.INTERNAL, NOT_MADE, dispatched=dispatched)
            self._ending.run(partial(self._completions.settle, owner, task, failed))

    def answers(self, owners: Sequence[OwnerKey], task: TaskId, caller: AuthContext) -> None:
        """Set the caller who answers a question of a task. The server gets the answer as from them."""
        run = self._runs.get(task)
        if run is not None and run.owner in owners:
            run.listener.principal = principal_of(caller)

    def find_question(self, owners: Sequence[OwnerKey], task: TaskId, key: str) -> ServerQuestion | None:
        """Return the open question of a task of one of the owners, if its call runs here."""
        run = self._runs.get(task)
        return run.listener.find(key) if run is not None and run.owner in owners else None

    async def idle(self) -> None:
        """Wait until no call runs and no task is being created."""
        while self._runs or self._expected:
            self._change.clear()
            await self._change.wait()

    async def stop(self) -> None:
        """End all calls as shut down, and stop watching. All final states are written, or time is
        over.
        """
        self._stopping = True
        for run in tuple(self._runs.values()):
            run.shut_down()
        ending = [run.task for run in self._runs.values() if run.task is not None]
        others = self._ending, self._hearing.changes.retrievals.background
        if waited_for := (*ending, *(task for other in others for task in other.running)):
            await asyncio.wait(waited_for, timeout=ENDING_PATIENCE)
        for task in ending:
            task.cancel()
        for other in others:
            await other.close()
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def _parted(self, run: TaskRun, record: TaskRecord) -> bool:
        """Return whether to take over a task that runs here and whose lease had lapsed; its call
        has ended.

        It continues here if no other process had it meanwhile.
        """
        if self._leasing is None or self._leasing.keeps(run, record):
            return False
        if run.task is not None:
            await asyncio.wait((run.task,))
        return True

    def _new_run(self, record: TaskRecord, *, ran: bool = False) -> TaskRun:
        run = self._runs[record.id] = TaskRun(record, self._hearing.of(record), ran=ran)
        if self._leasing is not None:
            self._leasing.begin(run, record)
        if self._stopping:
            run.shut_down()
        return run

    def _launch(self, run: TaskRun, work: Coroutine[Any, Any, None], part: Callable[[], None]) -> None:
        # The callbacks too: a context holds its RequestContext, and that its message.
        with in_request(run.request_context()):
            run.task = asyncio.get_running_loop().create_task(work)
            run.task.add_done_callback(lambda _: self._forget(run))
            run.task.add_done_callback(lambda _: part())

    def _forget(self, run: TaskRun) -> None:
        if run.is_left:
            self.left.add(run.id)
        elif not run.is_lost:
            self._hearing.changes.retrievals.unfetched.ended(run.id)
        run.listener.close()
        if self._leasing is not None:
            self._leasing.end(run)
        del self._runs[run.id]
        self._change.set()

    def _expect(self) -> None:
        self._expected += 1

    def _expect_no_more(self) -> None:
        self._expected -= 1
        self._change.set()
