"""The calls of tasks that run in this process: `Runner`.

A *run* (`TaskRun`) is one task's call in this process, as an asyncio task. A run begins with one of
three methods:

- `start`: for a new task, whose call was not sent yet;
- `adopt`: for a call that became a task after it was sent;
- `recover`: for a task whose lease has lapsed, mostly because its process is gone.

`TaskService` calls the first two, the sweeper the third. A run ends when the task's final state is
stored, or another process has the task. At a shutdown it also ends if another process is to resume
the call. `wiring` calls `idle` and `stop` then.

To end a task, any process writes to its record in the store. `Runner` reads the store's change feed,
sees the newer revision, and stops the run. It passes hosts' answers to the run's listener.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final

from taskgate.admission.callers import principal_of
from taskgate.admission.concurrency import Permit
from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.events import CancelRequested
from taskgate.domain.record import FaultReason, OwnerKey, TaskId, TaskRecord, TaskStatus
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.checkpoints import CallCheckpoint, RoundCheckpoint
from taskgate.lifecycle.leases import Leasing
from taskgate.lifecycle.recovery import Takeovers
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.task_listener import NOBODY, TaskListeners
from taskgate.lifecycle.task_run import CallRoute, RunServices, TaskRun, wholly_bounded
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.faults import call_ended
from taskgate.sessions.binding import CallSite, OngoingCall
from taskgate.sessions.registry import HostSessions
from taskgate.stores.base import HolderWatch, TaskStore
from taskgate.system.background import Background
from taskgate.telemetry.events import EventSink, TaskRecovered
from taskgate.telemetry.request_context import RequestContext, attach, current
from taskgate.telemetry.tracing import stored_span
from taskgate.upstream.calls import Principal, ServerQuestion

NOT_MADE: Final = "The task was not created: the task store was not available"
MAX_DISOWNED: Final = 256
"""The number of ends that wait for the store, of `cancel` and `disown`, from which on `disown` does
nothing."""
ENDING_PATIENCE: Final = 3.0
"""Seconds that a shutdown waits for final states to be written. The rest is ended at the next
start.

Far below `GRACE` of `wiring/shutdown`, after which the process is killed."""
CHECKPOINT_PATIENCE: Final = 1.0
"""Seconds that a shutdown waits for checkpoints that are being written, before it stops the runs."""
PATIENCE: Final = timedelta(seconds=30)
"""The longest wait for changes of running tasks, after which the next wait starts."""
RETRY_WATCH: Final = timedelta(seconds=1)
"""The delay before a task that could not be read is read again."""
_WITH_OUTCOME: Final = (TaskStatus.COMPLETED, TaskStatus.FAILED)


class Expected:
    """A `with` block, in which the caller creates a task.

    Until its end the session of `place` stays open, and `Runner.idle` does not return.
    """

    __slots__ = ("_place", "_runner")

    def __init__(self, runner: "Runner", place: CallSite) -> None:
        self._runner = runner
        self._place = place

    def __enter__(self) -> None:
        self._place.acquire()
        self._runner.expected += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runner = self._runner
        self._place.release()
        runner.expected -= 1
        if runner.ended is not None:
            runner.ended.set()


class Runner:
    """The runs of this process, by task; one object per process.

    - `holder`: the name of the process in leases.
    - `leasing`: keeps the leases of the runs, given if replicas share the store. None means that
      no other process writes to the store.
    - `listeners`: creates the listener of each run, which receives the server's messages.
    - `transitions`: writes the records of running tasks.
    - `retrievals`: learns which tasks have ended here, and finishes its writes before the end.

    `open` is called once at start, `stop` once at the end.
    """

    def __init__(
        self,
        *,
        holder: str,
        store: TaskStore,
        transitions: Transitions,
        retrievals: Retrievals,
        sessions: HostSessions,
        listeners: TaskListeners,
        event_sink: EventSink,
        clock: Clock,
        leasing: Leasing | None = None,
    ) -> None:
        self.holder = holder
        self._store = store
        self._transitions = transitions
        self._retrievals = retrievals
        self._sessions = sessions
        self._listeners = listeners
        self._event_sink = event_sink
        self._clock = clock
        self._leasing = leasing
        self._runs: dict[TaskId, TaskRun] = {}
        self._takeovers = Takeovers(
            store=store,
            transitions=transitions,
            event_sink=event_sink,
            clock=clock,
            hold=leasing,
            checkpoints=listeners.checkpoints,
        )
        self._services = RunServices(
            transitions=transitions, takeovers=self._takeovers, event_sink=event_sink, clock=clock, hold=leasing
        )
        self._watcher: asyncio.Task[None] | None = None
        self._ending = Background()
        self._stopping = False
        self.left: set[TaskId] = set()
        """Tasks whose calls a shutdown left to another process; filled as their runs end."""
        self.expected = 0
        """The blocks of `Expected` that have not ended."""
        self.ended: asyncio.Event | None = None
        """Set when a run or such a block ends; None until `idle` waits."""

    def open(self) -> None:
        """Start to watch for changes that others make to running tasks."""
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    def start(self, record: TaskRecord, place: CallSite, caller: AuthContext, ticket: Permit) -> None:
        """Run the call of a new task of `caller` in the background: send it once `ticket` is
        granted.

        Returns at once. From now on the ticket belongs to the run, which releases it when the call
        is over. The session stays open until then. `record` was stored just before.
        """
        if record.id in self._runs:
            # The store was slow to confirm the insert. Meanwhile the sweeper found the record, and
            # `recover` has begun its run.
            ticket.release()
            return
        place.acquire()
        run = self._new_run(record)
        # Another request may have brought a newer token while the record was stored.
        principal = place.principal if place.caller is caller else principal_of(caller)
        route = CallRoute(place.upstream, principal, ticket)
        self._launch(run, record, run.send(record, route), place.release, ticket)

    def adopt(self, record: TaskRecord, underway: OngoingCall, place: CallSite) -> None:
        """Make `underway`, a call that was sent, the call of a task; await it in the background.

        Returns at once. From now on the server's messages go to the listener of the task. `record`
        was stored just before, and says already that the call was sent. If `recover` has begun a
        run of the task, `underway` is cancelled.
        """
        if record.id in self._runs:
            underway.close()
            return
        place.acquire()
        run = self._new_run(record)
        call = wholly_bounded(underway.response, record, self._clock.now())

        def release() -> None:
            # Cancels the call if it still runs: a host may have cancelled the task, or another
            # process have it.
            underway.close()
            place.release()

        self._launch(run, record, run.finish(call, place.upstream.outcome), release)
        underway.attach_listener(run.listener)

    async def recover(self, record: TaskRecord, mount: Mount | None) -> None:
        """Continue a task whose lease has lapsed, in the background, or end it as lost.

        `record` is what the sweeper found, and has a new lease of this process. `mount` is its
        server's; None if that is no longer configured. What happens:

        - A run of this process continues if no other process changed the record meanwhile. Its
          lease has lapsed only because the store was slow. Otherwise the run is stopped first.
        - A call that was never sent, or may be sent again, is run.
        - A call with a checkpoint is resumed. At its server it continues at once. Between two
          rounds of questions it waits for a permit, and takes a place in even a full queue.
        - Any other task ends as lost.

        May raise StoreUnavailable. With replicas the lease then lapses, and the sweeper finds the
        task again.
        """
        run = self._runs.get(record.id)
        if run is not None and not await self._was_stopped(run, record):
            return
        taken = await self._takeovers.taken(record, is_served=mount is not None)
        if taken is None or mount is None:
            return
        record = taken
        run = self._runs.get(record.id)
        if run is not None and not await self._was_stopped(run, record):
            # Its insert was confirmed during the wait above, and `start` or `adopt` began a run.
            return
        new_run, checkpoint = self._new_run(record, ran=record.dispatched), self._listeners.checkpoints.open(record)
        route, release = self._new_route(new_run, record, mount)
        if isinstance(checkpoint, CallCheckpoint):
            anew = partial(self._new_route, new_run, record, mount)
            work = new_run.resume(record, checkpoint, route, anew)
        elif isinstance(checkpoint, RoundCheckpoint):
            work = new_run.send_next_round(record, checkpoint, route)
        else:
            work = new_run.send(record, route)
        self._launch(new_run, record, work, release)
        self._event_sink.emit(TaskRecovered(record, "retried"))

    def _new_route(self, run: TaskRun, record: TaskRecord, mount: Mount) -> tuple[CallRoute, Callable[[], None]]:
        """Return the session and permit (`CallRoute`) for a call that was taken over.

        The second value releases both: the caller makes sure that it is called once at the end. The
        upstream session has no host. The permit takes a place in even a full queue.
        """
        # Tokens are not stored. If the server needs one, the call ends unsent, or continues with
        # the token of the caller who answers a question.
        owner = Principal(context=record.owner.context, is_known=False)
        upstream = mount.upstream.session(NOBODY, lambda: run.listener.principal or owner, record.call.peer)
        # The person of an owner is not stored: such a task has a turn of its own.
        ticket = mount.bulkhead.acquire(record.owner.context, force=True)

        def release() -> None:
            ticket.release()
            self._sessions.close_upstream(upstream)

        return CallRoute(upstream, None, ticket), release

    def cancel(self, owner: OwnerKey, task: TaskId) -> None:
        """Cancel a task in the background, because its host disconnected before it got the task's
        id (H-MOD-9).

        Returns at once. The end is written to the store, from which the run learns of it.
        """
        self._ending.run(partial(self._transitions.settle, owner, task, CancelRequested()))

    async def stop_run(self, task: TaskId) -> None:
        """Stop the run of a task that this process ended, and wait a moment until its call is over.

        Does nothing if the call does not run here.

        The change feed would stop it too, but later than the host's next request may come. Some
        servers end the whole session for a cancellation, and that request must not fail for it.
        """
        if (run := self._runs.get(task)) is not None:
            await run.give_up()

    def disown(self, owner: OwnerKey, task: TaskId, *, dispatched: bool, cancelled: bool = False) -> None:
        """End a task in the background whose insert got no answer from the store.

        Returns at once. If the record was stored all the same, it ends as failed, or as `cancelled`, so
        that no process runs it. If MAX_DISOWNED ends wait for the store, this does nothing, and the
        record expires. `dispatched` is whether the call was sent before.
        """
        if len(self._ending.running) < MAX_DISOWNED:
            failed = call_ended(FaultReason.INTERNAL, NOT_MADE, dispatched=dispatched)
            end = CancelRequested() if cancelled else failed
            self._ending.run(partial(self._transitions.settle, owner, task, end))

    def answers(self, owners: Sequence[OwnerKey], task: TaskId, caller: AuthContext) -> None:
        """Note the caller who is about to answer a question of a task, if its call runs here.

        Called before the answer is stored: the server gets it with the token of that caller.
        """
        run = self._runs.get(task)
        if run is not None and run.owner in owners:
            run.listener.principal = principal_of(caller)

    def find_question(self, owners: Sequence[OwnerKey], task: TaskId, key: str) -> ServerQuestion | None:
        """Return the open question of a task under the key of its input request.

        Returns None if there is none, the call does not run here, or the task is of another owner.
        """
        run = self._runs.get(task)
        return run.listener.find_question(key) if run is not None and run.owner in owners else None

    def calls_running(self) -> dict[tuple[str], int]:
        """The calls of tasks that count as sent and are not over, by mount."""
        return {(mount,): count for mount, count in self._services.counts.items()}

    def oldest_ages(self) -> dict[tuple[str], float]:
        """Seconds since the creation of the oldest unfinished task of each mount that runs here."""
        oldest: dict[str, datetime] = {}
        for run in self._runs.values():
            mount = run.owner.mount
            if mount not in oldest or run.created_at < oldest[mount]:
                oldest[mount] = run.created_at
        now = self._clock.now()
        return {(mount,): max((now - created_at).total_seconds(), 0.0) for mount, created_at in oldest.items()}

    @property
    def running(self) -> int:
        """The number of tasks whose calls wait for a permit here, or run."""
        return len(self._runs)

    async def idle(self) -> None:
        """Wait until no call runs and no task is being created."""
        self.ended = ended = self.ended or asyncio.Event()
        while self._runs or self.expected:
            ended.clear()
            await ended.wait()

    async def stop(self) -> None:
        """Stop all runs because the gateway ends, and stop watching. A run that begins later is
        stopped at once.

        A call with a checkpoint is *left*: it goes on at its server, another process resumes it,
        and its task is noted in `left`. The others are cancelled, and their tasks end as shut down.
        Returns when all that is written, or after CHECKPOINT_PATIENCE and ENDING_PATIENCE.
        """
        self._stopping = True
        # While a checkpoint is being written, it is unknown whether its call can be left.
        with suppress(TimeoutError):
            async with asyncio.timeout(CHECKPOINT_PATIENCE):
                for run in tuple(self._runs.values()):
                    await run.listener.checkpoint_written()
        for run in tuple(self._runs.values()):
            run.shut_down()
        ending = [run.task for run in self._runs.values() if run.task is not None]
        others = self._ending, self._retrievals.background
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

    async def _was_stopped(self, run: TaskRun, record: TaskRecord) -> bool:
        """Stop the run of a task whose lease had lapsed, if another process had the task meanwhile.

        Returns True once the run has ended: its call was cancelled, and the task is to be taken
        over anew. Returns False if the run continues, because no other process changed the record.
        """
        # If `keeps` returns False, it has cancelled the run.
        if self._leasing is None or self._leasing.keeps(run, record):
            return False
        if run.task is not None:
            await asyncio.wait((run.task,))
        return True

    def _new_run(self, record: TaskRecord, *, ran: bool = False) -> TaskRun:
        """Register the run of a task and keep its lease; the caller must `_launch` it without a
        wait. `ran`: an earlier process may have sent the call.
        """
        run = self._runs[record.id] = TaskRun(record, self._listeners.of(record), self._services, ran=ran)
        if self._leasing is not None:
            self._leasing.begin(run, record)
        if self._stopping:
            run.shut_down()
        return run

    def _launch(
        self,
        run: TaskRun,
        record: TaskRecord,
        work: Coroutine[Any, Any, None],
        release: Callable[[], None],
        ticket: Permit | None = None,
    ) -> None:
        """Start `work`, one of the methods of a run. When it ends in any way, the run is forgotten,
        `ticket` is released, and `release` is called once.

        It runs in the context of the present request without its message, or in a new one.
        """
        here = current()
        if here is not None:
            request_context = here.for_background()
        else:
            request_context = RequestContext("", "", "", "")
            request_context.span = stored_span(record.trace)
        request_context.mount, request_context.task, request_context.background = run.owner.mount, run.id, True
        work = self._follow(run, work, release, ticket, request_context)
        run.task = asyncio.get_running_loop().create_task(work)

    async def _follow(
        self,
        run: TaskRun,
        work: Coroutine[Any, Any, None],
        release: Callable[[], None],
        ticket: Permit | None,
        request_context: RequestContext,
    ) -> None:
        # The asyncio task has a copy of the context variables already, in which this is set.
        attach(request_context)
        # No callback of the asyncio task: that would be one more step of the event loop for each task. Only
        # the end of the loop cancels a run before its first step: `stop` waits before it cancels any.
        try:
            await work
        finally:
            try:
                self._forget(run, release, ticket)
            except Exception as error:
                # Reported at once, as that of a callback: the run and its error refer to each other.
                about = {"message": "a run did not end as it should", "exception": error}
                asyncio.get_running_loop().call_exception_handler(about)

    def _forget(self, run: TaskRun, release: Callable[[], None], ticket: Permit | None) -> None:
        """Handle the end of a run."""
        if run.is_left:
            self.left.add(run.id)
        elif not run.is_lost and self._retrievals.unfetched.has_begun:
            # The task ended here: a shutdown waits a while for its host to fetch the result.
            self._retrievals.unfetched.ended(run.id)
        try:
            run.listener.close()
            if self._leasing is not None:
                self._leasing.end(run)
        finally:
            del self._runs[run.id]
            if self.ended is not None:
                self.ended.set()
            if ticket is not None and not ticket.is_released:
                ticket.release()
            release()

    # --- changes that others make -------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Watch the tasks that run here until cancelled."""
        since: int | None = None
        unread: list[TaskId] = []
        while True:
            try:
                patience = RETRY_WATCH if unread else PATIENCE
                watch = HolderWatch(holder=self.holder, since=since, is_news=self._is_news)
                news = await self._store.changed(watch, timeout=patience)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_WATCH.total_seconds())
                continue
            since = news.place
            # After a gap in the feed any task may have changed.
            ids = [change.id for change in news.changes] if news.complete else [*self._runs]
            unread = [task for task in dict.fromkeys((*unread, *ids)) if not await self._handle_change(task)]

    def _is_news(self, task: TaskId, revision: int) -> bool:
        """Return whether a change is of a task that runs here, and not the run's own last write.

        A change by others that arrives between the write which makes a task this process's and the
        start of its run is passed over. The run meets it when it writes next, or at the next
        heartbeat.
        """
        run = self._runs.get(task)
        return run is not None and run.revision != revision

    async def _handle_change(self, task: TaskId) -> bool:
        """Read a changed task and act on it; return False if it could not be read.

        The run of a task that was ended is stopped. Any other change goes to the listener.
        """
        run = self._runs.get(task)
        if run is None:
            return True
        try:
            record = await self._store.load(run.owner, task, now=self._clock.now())
            if self._leasing is not None and await self._leasing.restored(task, record):
                # The store had lost the record: what was read is outdated. The restored one is as
                # this process wrote it.
                return True
        except StoreUnavailable:
            return False
        # The copy for restoration must be whole, and this head lacks the outcome of an ended task.
        if self._leasing is not None and record is not None and record.status not in _WITH_OUTCOME:
            self._leasing.on_stored(record)
        if record is None or record.status.is_terminal:
            run.stop()
        else:
            run.listener.record_changed(record)
        return True
