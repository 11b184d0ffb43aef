"""The calls behind tasks: one held call each, from dispatch to the end of its record.

The record is the mailbox: a cancel arrives as a newer revision, from this process or another. At most once: the mark
that the call left is durable before its first byte is (`departures`), or, for a call that became a task on its way,
with the record (decisions 2, 3); a call is sent again only when its process was lost and the operator wants it so.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from logging import getLogger
from typing import Any, Final, NamedTuple

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.dialects.faults import CUT_OFF, call_ended, call_failed
from taskgate.engine.admission.bulkhead import Ticket
from taskgate.engine.background import Background
from taskgate.engine.deadlines import Call, bounded, time_left, wholly_bounded
from taskgate.engine.departures import Departures
from taskgate.engine.endings import Endings
from taskgate.engine.guard.callers import speaker
from taskgate.engine.mounts import Mount
from taskgate.engine.places import Place, Stay, Underway
from taskgate.engine.runs import Lookout, Run
from taskgate.engine.sessions import HostSessions
from taskgate.engine.telling.hearing import NOBODY, Hearing
from taskgate.errors import QueueFull, UpstreamFailed
from taskgate.interruption import Interrupted
from taskgate.mcp.jsonrpc import Response
from taskgate.stores.base import TaskStore
from taskgate.tasks.events import CallFaulted, CallSucceeded, CancelRequested
from taskgate.tasks.record import FaultReason, OwnerKey, TaskId, TaskRecord
from taskgate.telemetry.audit import Audit, CallsRunning, TaskRecovered
from taskgate.telemetry.visit import within
from taskgate.upstream.base import ServerQuestion, Speaker, UpstreamSession

log = getLogger("taskgate.runner")

OUTCOME_UNKNOWN: Final = "The gateway stopped while the call was running; it may or may not have completed"
NEVER_SENT: Final = "The gateway stopped before the call was sent, and its server is no longer configured"
NOT_MADE: Final = "The task was not made: the task store was not available"
UNFORESEEN: Final = "The gateway failed while the call was running; it may or may not have completed"
MAX_DISOWNED: Final = 256
"""Tasks that may have been stored, and wait at once for a store that can say so."""
ENDING_PATIENCE: Final = 10.0
"""Seconds that a shutdown waits for endings to be written; what is not is ended by the next start."""


class Runner:
    """Every running call of this process. `holder` names the process in leases."""

    def __init__(
        self,
        *,
        holder: str,
        store: TaskStore,
        sessions: HostSessions,
        hearing: Hearing,
        audit: Audit,
        clock: Clock,
    ) -> None:
        self.holder = holder
        self._store = store
        self._sessions = sessions
        self._hearing = hearing
        self._audit = audit
        self._clock = clock
        self._runs: dict[TaskId, Run] = {}
        self._counts: Counter[str] = Counter()
        self._departures = Departures(store=store, changes=hearing.changes, audit=audit, clock=clock)
        self._endings = Endings(store=store, audit=audit, clock=clock)
        self._lookout = Lookout(holder=holder, store=store, runs=self._runs, clock=clock)
        self._watcher: asyncio.Task[None] | None = None
        self._ending = Background()
        self._stopping = False
        self._expected = 0
        self._change = asyncio.Event()

    def open(self) -> None:
        """Begin to listen for what others do to the tasks that run here."""
        self._watcher = asyncio.get_running_loop().create_task(self._lookout.watch())

    def expecting(self, place: Place) -> Stay:
        """A block in which a task is being made there: its server's end stays open, and `idle` waits for what comes."""
        return Stay(place, self._expect, self._expect_no_more)

    def start(self, record: TaskRecord, place: Place, caller: AuthContext, ticket: Ticket) -> None:
        """Run the call of a new task of `caller`, in its turn, over the server's end of its place.

        That stays open, and the ticket is not closed, until the call is over.
        """
        place.hold()
        run = self._new_run(record)

        def part() -> None:
            ticket.close()
            place.release()

        self._launch(run, self._run(run, record, _Way(place.upstream, speaker(caller), ticket)), part)

    def adopt(self, record: TaskRecord, underway: Underway, place: Place) -> None:
        """Make a call that has left over its place the call of a task, whose record says so; otherwise as `start`."""
        place.hold()
        run = self._new_run(record)
        call = wholly_bounded(underway.response, record, self._clock.now())

        def part() -> None:
            # Whatever ended the task, and even one that ended before it began.
            underway.close()
            place.release()

        self._launch(run, self._see_through(run, call, place.upstream.outcome), part)
        underway.heard_by(run.hearer)

    async def recover(self, record: TaskRecord, mount: Mount | None) -> None:
        """Take over a task of a process that is gone: run what was never sent, or may be sent again, and end the rest.

        It waits for its turn, however many wait.
        """
        if mount is None or (record.dispatched and not record.reruns):
            text = OUTCOME_UNKNOWN if record.dispatched else NEVER_SENT
            lost = call_ended(FaultReason.CALL_LOST, text, dispatched=record.dispatched)
            await self._endings.settle(record.owner, record.id, lost)
            self._audit.record(TaskRecovered(record, "failed"))
            return
        # Tokens are not stored, so where one is needed the call ends unsent.
        owner = Speaker(context=record.owner.context, is_known=False)
        upstream = mount.upstream.session(NOBODY, lambda: owner, record.call.peer)
        ticket = mount.bulkhead.ask(record.owner.context, must=True)
        run = self._new_run(record, ran=record.dispatched)

        def part() -> None:
            ticket.close()
            self._sessions.discard(upstream)

        self._launch(run, self._run(run, record, _Way(upstream, None, ticket)), part)
        self._audit.record(TaskRecovered(record, "retried"))

    def cancel(self, owner: OwnerKey, task: TaskId) -> None:
        """Cancel a task in the background, however long the store takes to be there: its host left (H-MOD-9)."""
        self._ending.run(partial(self._endings.settle, owner, task, CancelRequested()))

    def disown(self, owner: OwnerKey, task: TaskId, *, dispatched: bool) -> None:
        """End a task that nobody runs, should it be there, in the background: the store could not say.

        While too many wait for the store, one too many is left to expire.
        """
        if len(self._ending.running) < MAX_DISOWNED:
            failed = call_ended(FaultReason.INTERNAL, NOT_MADE, dispatched=dispatched)
            self._ending.run(partial(self._endings.settle, owner, task, failed))

    def answers(self, owners: Sequence[OwnerKey], task: TaskId, caller: AuthContext) -> None:
        """The caller answers a question of a task: where it runs here and is theirs, its server hears it from them."""
        run = self._runs.get(task)
        if run is not None and run.owner in owners:
            run.hearer.speaker = speaker(caller)

    def find_question(self, owners: Sequence[OwnerKey], task: TaskId, key: str) -> ServerQuestion | None:
        """The question that a task of one of the owners waits with, if its call runs here."""
        run = self._runs.get(task)
        return run.hearer.find(key) if run is not None and run.owner in owners else None

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

    def _new_run(self, record: TaskRecord, *, ran: bool = False) -> Run:
        run = self._runs[record.id] = Run(record, self._hearing.of(record), ran=ran)
        if self._stopping:
            run.shut_down()
        return run

    def _launch(self, run: Run, work: Coroutine[Any, Any, None], part: Callable[[], None]) -> None:
        # What is done when it ends, too: a context keeps its visit, and that its message.
        with within(run.visit()):
            run.task = asyncio.get_running_loop().create_task(work)
            run.task.add_done_callback(lambda _: self._forget(run))
            run.task.add_done_callback(lambda _: part())

    def _forget(self, run: Run) -> None:
        run.hearer.close()
        del self._runs[run.id]
        self._change.set()

    def _expect(self) -> None:
        self._expected += 1

    def _expect_no_more(self) -> None:
        self._expected -= 1
        self._change.set()

    def _count(self, mount: str, change: int) -> None:
        self._counts[mount] += change
        self._audit.record(CallsRunning(mount, self._counts[mount]))

    async def _run(self, run: Run, record: TaskRecord, way: "_Way") -> None:
        assert record.call.params is not None, "a new or recovered record has its bodies"
        try:
            unsent = await self._departures.leave(run, record, way.ticket)
        except Interrupted:
            return
        if unsent is not None:
            way.ticket.close()
            await self._settle(run, unsent)
            return
        # For whoever asked, and not for whom the session was last used by: their token may be good for more.
        now = self._clock.now()
        call = partial(
            way.upstream.run,
            record.call.tool,
            record.call.params,
            within=time_left(record, now),
            hearer=run.hearer,
            speaker=way.speaks,
        )
        has_bound = bounded(call, record, now)
        # A held call keeps as little as it can: the record is in the store.
        del record
        await self._see_through(run, has_bound, way.upstream.outcome, way.ticket)

    async def _see_through(
        self,
        run: Run,
        call: Call,
        outcome: Callable[[Response], CallSucceeded | CallFaulted],
        ticket: Ticket | None = None,
    ) -> None:
        self._count(run.owner.mount, 1)
        try:
            event = await self._call(run, call, outcome, ticket)
        finally:
            self._count(run.owner.mount, -1)
        # Before the end is written: nothing is told of a task after it.
        run.hearer.close()
        if event is not None:
            await self._settle(run, event)

    async def _call(
        self,
        run: Run,
        call: Call,
        outcome: Callable[[Response], CallSucceeded | CallFaulted],
        ticket: Ticket | None,
    ) -> CallSucceeded | CallFaulted | None:
        """What the call came to; None where somebody ended the task before.

        Its slot is given back when it is over: how long its end takes to be written is no server's time.
        """
        try:
            with run.scope:
                if not run.stopped:
                    return outcome(await call())
        except UpstreamFailed as failure:
            return call_failed(failure, ran=run.ran)
        except QueueFull as full:
            # One that waited for its turn beside others which make the same call.
            return call_ended(FaultReason.QUEUE, str(full), dispatched=run.ran, retry_after=full.retry_after)
        except Interrupted:
            pass
        except Exception as error:
            # Whatever it was, the task must not stay unfinished for it.
            log.error("A call failed in a way that was not foreseen", exc_info=error)
            return call_ended(FaultReason.INTERNAL, UNFORESEEN, dispatched=True)
        finally:
            if ticket is not None:
                ticket.close()
        return call_ended(FaultReason.SHUTDOWN, CUT_OFF, dispatched=True) if run.is_shut_down else None

    async def _settle(self, run: Run, event: CallSucceeded | CallFaulted) -> None:
        await self._endings.settle(run.owner, run.id, event, written=run.wrote)


class _Way(NamedTuple):
    """How a call gets to its server: over what, for whom, and when it is its turn."""

    upstream: UpstreamSession
    speaks: Speaker | None
    ticket: Ticket
