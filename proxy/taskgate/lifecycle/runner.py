"""The calls behind tasks: those that run in this process, how each comes to, and how all of them end.

The record is the mailbox: a cancel arrives as a newer revision, from this process or another. What must not live here:
what becomes of one call on its way (`execution`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from taskgate.admission.bulkhead import Ticket
from taskgate.admission.callers import principal
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
from taskgate.sessions.call_sites import CallSite, OngoingCall, TaskCreation
from taskgate.sessions.registry import HostSessions
from taskgate.stores.base import TaskStore
from taskgate.system.background import Background
from taskgate.telemetry.events import EventSink, TaskRecovered
from taskgate.telemetry.request_context import in_request
from taskgate.upstream.call_listener import ServerQuestion
from taskgate.upstream.principal import Principal

NOT_MADE: Final = "The task was not created: the task store was not available"
MAX_DISOWNED: Final = 256
"""Tasks that may have been stored, and wait at once for a store that can say so."""
ENDING_PATIENCE: Final = 3.0
"""Seconds that a shutdown waits for endings to be written; what is not is ended by the next start.

Well below `signals.GRACE`, after which the process is ended hard.
"""


class Runner:
    """Every running call of this process. `holder` names the process in leases.

    `leasing` is there where other processes share the store, and `hearing` has the changes that are made of it.
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
        """Tasks that did not end when the gateway did, and go on after it."""
        self._expected = 0
        self._change = asyncio.Event()

    def open(self) -> None:
        """Begin to listen for what others do to the tasks that run here."""
        self._watcher = asyncio.get_running_loop().create_task(self._lookout.watch())

    def expecting(self, place: CallSite) -> TaskCreation:
        """A block in which a task is being made there: its server's end stays open, and `idle` waits for what comes."""
        return TaskCreation(place, self._expect, self._expect_no_more)

    def start(self, record: TaskRecord, place: CallSite, caller: AuthContext, ticket: Ticket) -> None:
        """Run the call of a new task of `caller`, in its turn, over the server's end of its place.

        That stays open, and the ticket is not closed, until the call is over.
        """
        if record.id in self._runs:
            # It was taken over here, before the store had answered that it was kept.
            ticket.close()
            return
        place.hold()
        run = self._new_run(record)

        def part() -> None:
            ticket.close()
            place.release()

        self._launch(run, self._executor.run(run, record, CallRoute(place.upstream, principal(caller), ticket)), part)

    def adopt(self, record: TaskRecord, underway: OngoingCall, place: CallSite) -> None:
        """Make a call that has left over its place the call of a task, whose record says so; otherwise as `start`."""
        if record.id in self._runs:
            underway.close()
            return
        place.hold()
        run = self._new_run(record)
        call = wholly_bounded(underway.response, record, self._clock.now())

        def part() -> None:
            # Whatever ended the task, and even one that ended before it began.
            underway.close()
            place.release()

        self._launch(run, self._executor.see_through(run, call, place.upstream.outcome), part)
        underway.heard_by(run.listener)

    async def recover(self, record: TaskRecord, mount: Mount | None) -> None:
        """Take over a task of a process that is gone: run what was never sent, or may be sent again, and end the rest.

        What rested between two rounds goes on with the next, in its turn, however many wait; what is at its server goes
        on there at once. Raises StoreUnavailable where others share the store.
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
            # It was being made here meanwhile, and has heard of it.
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
        """A way of its own for a call that was taken over, and what is to be done at its end."""
        # Tokens are not stored, so where one is needed the call ends unsent, or goes on for whoever answers.
        owner = Principal(context=record.owner.context, is_known=False)
        upstream = mount.upstream.session(NOBODY, lambda: run.listener.principal or owner, record.call.peer)
        ticket = mount.bulkhead.ask(record.owner.context, must=True)

        def part() -> None:
            ticket.close()
            self._sessions.discard(upstream)

        return CallRoute(upstream, None, ticket), part

    def cancel(self, owner: OwnerKey, task: TaskId) -> None:
        """Cancel a task in the background, however long the store takes to be there: its host left (H-MOD-9)."""
        self._ending.run(partial(self._completions.settle, owner, task, CancelRequested()))

    def disown(self, owner: OwnerKey, task: TaskId, *, dispatched: bool) -> None:
        """End a task that nobody runs, should it be there, in the background: the store could not say.

        While too many wait for the store, one too many is left to expire.
        """
        if len(self._ending.running) < MAX_DISOWNED:
            failed = call_ended(FaultReason.INTERNAL, NOT_MADE, dispatched=dispatched)
            self._ending.run(partial(self._completions.settle, owner, task, failed))

    def answers(self, owners: Sequence[OwnerKey], task: TaskId, caller: AuthContext) -> None:
        """The caller answers a question of a task: where it runs here and is theirs, its server hears it from them."""
        run = self._runs.get(task)
        if run is not None and run.owner in owners:
            run.listener.principal = principal(caller)

    def find_question(self, owners: Sequence[OwnerKey], task: TaskId, key: str) -> ServerQuestion | None:
        """The question that a task of one of the owners waits with, if its call runs here."""
        run = self._runs.get(task)
        return run.listener.find(key) if run is not None and run.owner in owners else None

    async def idle(self) -> None:
        """Wait until no call runs and no task is being made."""
        while self._runs or self._expected:
            self._change.clear()
            await self._change.wait()

    async def stop(self) -> None:
        """End what still runs, or would begin, as shut down; hear of nothing any more. All is settled after."""
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
        """Whether a task whose lease lapsed while it runs here is ours to take over; its call has ended then.

        It goes on where nobody else had it meanwhile.
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
        # What is done when it ends, too: a context keeps its visit, and that its message.
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
