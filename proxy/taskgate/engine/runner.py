"""The calls behind tasks: one held call each, from dispatch to the end of its record.

The record is the mailbox: a cancel arrives as a newer revision, from this process or another. At most once: the mark
that the call left is durable before its first byte is (decisions 2, 3), and nothing here ever sends a call again.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from logging import getLogger
from typing import Final

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.dialects.faults import call_ended, call_failed
from taskgate.engine.endings import Endings
from taskgate.engine.guard.callers import speaker
from taskgate.engine.mounts import Mount
from taskgate.engine.sessions import HostSession, HostSessions
from taskgate.engine.telling.hearing import NOBODY, Hearing, TaskHearer
from taskgate.errors import StoreUnavailable, UpstreamFailed
from taskgate.interruption import Interrupted, Interruptible
from taskgate.stores.base import Change, HolderWatch, TaskStore
from taskgate.tasks.events import CallFaulted, CallSucceeded, Dispatched
from taskgate.tasks.machine import advance
from taskgate.tasks.record import FaultReason, OwnerKey, TaskId, TaskRecord
from taskgate.telemetry.audit import (
    Audit,
    CallsRunning,
    TaskDispatched,
    TaskRecovered,
)
from taskgate.upstream.base import ServerQuestion, Speaker, UpstreamSession

log = getLogger("taskgate.runner")

PATIENCE: Final = timedelta(seconds=30)
RETRY_WATCH: Final = timedelta(seconds=1)
"""How soon a task is looked at again that could not be when it changed."""

OUTCOME_UNKNOWN: Final = "The gateway stopped while the call was running; it may or may not have completed"
NEVER_SENT: Final = "The gateway stopped before the call was sent, and its server is no longer configured"
SHUT_DOWN: Final = "The gateway shut down while the call was running; it may or may not have completed"
SHUT_DOWN_UNSENT: Final = "The gateway shut down before the call was sent"
NO_STORE: Final = "The call was not sent: the task store was not available"
UNFORESEEN: Final = "The gateway failed while the call was running; it may or may not have completed"
ENDING_PATIENCE: Final = 10.0
"""Seconds that a shutdown waits for endings to be written; what is not is ended by the next start."""


class _Run:
    """One call in this process. `revision` is the newest of the record that this process wrote."""

    __slots__ = ("hearer", "id", "is_shut_down", "owner", "revision", "scope", "stopped", "task")

    def __init__(self, record: TaskRecord, hearer: TaskHearer) -> None:
        self.hearer = hearer
        self.id: TaskId = record.id
        self.owner: OwnerKey = record.owner
        self.revision = record.revision
        self.stopped = False
        self.is_shut_down = False
        self.scope = Interruptible()
        self.task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Give the call up, now or as soon as it would leave. What is being written is still written."""
        self.stopped = True
        self.scope.interrupt()

    def shut_down(self) -> None:
        """Give the call up because the gateway ends."""
        self.is_shut_down = True
        self.stop()

    def wrote(self, revision: int) -> None:
        """That revision is ours: news of it needs no look at the record."""
        self.revision = revision


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
        self._runs: dict[TaskId, _Run] = {}
        self._counts: Counter[str] = Counter()
        self._endings = Endings(store=store, audit=audit, clock=clock)
        self._watcher: asyncio.Task[None] | None = None
        self._stopping = False
        self._expected = 0
        self._change = asyncio.Event()

    def open(self) -> None:
        """Begin to listen for what others do to the tasks that run here."""
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    @contextmanager
    def expecting(self, host_session: HostSession) -> Iterator[None]:
        """A task is being made for the session: its server's end stays open, and `idle` waits for what comes of it."""
        self._expected += 1
        self._sessions.hold(host_session)
        try:
            yield
        finally:
            self._sessions.release(host_session)
            self._expected -= 1
            self._change.set()

    def start(self, record: TaskRecord, host_session: HostSession, caller: AuthContext) -> None:
        """Run the call of a new task of `caller` over its host session's server; the session's end waits for it."""
        self._sessions.hold(host_session)
        self._launch(record, host_session.upstream, speaker(caller)).add_done_callback(
            lambda _: self._sessions.release(host_session)
        )

    async def recover(self, record: TaskRecord, mount: Mount | None) -> None:
        """Take over a task of a process that is gone: run what was never sent, end what may have run."""
        if record.dispatched or mount is None:
            text = OUTCOME_UNKNOWN if record.dispatched else NEVER_SENT
            lost = call_ended(FaultReason.CALL_LOST, text, dispatched=record.dispatched)
            await self._endings.settle(record.owner, record.id, lost)
            self._audit.record(TaskRecovered(record.owner.mount, "failed"))
            return
        # Tokens are not stored, so where one is needed the call ends unsent.
        owner = Speaker(context=record.owner.context, is_known=False)
        upstream = mount.upstream.session(NOBODY, lambda: owner, record.call.peer)
        self._launch(record, upstream).add_done_callback(lambda _: self._sessions.discard(upstream))
        self._audit.record(TaskRecovered(record.owner.mount, "retried"))

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
        ending = self._tasks()
        if ending:
            await asyncio.wait(ending, timeout=ENDING_PATIENCE)
        for task in ending:
            task.cancel()
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    def _tasks(self) -> "list[asyncio.Task[None]]":
        return [run.task for run in self._runs.values() if run.task is not None]

    def _launch(
        self, record: TaskRecord, upstream: UpstreamSession, speaks: Speaker | None = None
    ) -> asyncio.Task[None]:
        run = self._runs[record.id] = _Run(record, self._hearing.of(record))
        if self._stopping:
            run.shut_down()
        run.task = asyncio.get_running_loop().create_task(self._run(run, record, upstream, speaks))
        run.task.add_done_callback(lambda _: self._forget(run))
        self._count(run.owner.mount, 1)
        return run.task

    def _forget(self, run: _Run) -> None:
        run.hearer.close()
        del self._runs[run.id]
        self._change.set()
        self._count(run.owner.mount, -1)

    def _count(self, mount: str, change: int) -> None:
        self._counts[mount] += change
        self._audit.record(CallsRunning(mount, self._counts[mount]))

    async def _run(self, run: _Run, record: TaskRecord, upstream: UpstreamSession, speaks: Speaker | None) -> None:
        assert record.call.params is not None, "a new or recovered record has its bodies"
        tool, params = record.call.tool, record.call.params
        expires_at, created_at = record.expires_at, record.created_at
        sent = await self._mark_dispatched(run, record)
        # A held call keeps as little as it can: the record is in the store.
        del record
        if sent:
            now = self._clock.now()
            self._audit.record(TaskDispatched(run.owner.mount, now - created_at))
            # For whoever asked, and not for whom the session was last used by: their token may be good for more.
            call = partial(
                upstream.run,
                tool,
                params,
                within=max(expires_at - now, timedelta()),
                hearer=run.hearer,
                speaker=speaks,
            )
            event = await self._call(run, call)
            # Before the end is written: nothing is told of a task after it.
            run.hearer.close()
            if event is not None:
                await self._settle(run, event)

    async def _call(
        self, run: _Run, call: Callable[[], Awaitable[CallSucceeded | CallFaulted]]
    ) -> CallSucceeded | CallFaulted | None:
        """What the call came to; None where somebody ended the task before."""
        try:
            with run.scope:
                if not run.stopped:
                    return await call()
        except UpstreamFailed as failure:
            return call_failed(failure)
        except Interrupted:
            pass
        except Exception as error:
            # Whatever it was, the task must not stay unfinished for it.
            log.error("A call failed in a way that was not foreseen", exc_info=error)
            return call_ended(FaultReason.INTERNAL, UNFORESEEN, dispatched=True)
        return call_ended(FaultReason.SHUTDOWN, SHUT_DOWN, dispatched=True) if run.is_shut_down else None

    async def _mark_dispatched(self, run: _Run, record: TaskRecord) -> bool:
        """Whether the call may leave: from here on it counts as having run."""
        if run.is_shut_down:
            await self._settle(run, call_ended(FaultReason.SHUTDOWN, SHUT_DOWN_UNSENT, dispatched=False))
            return False
        marked = advance(record, Dispatched(), self._clock.now())
        # Before it is written: its news comes first.
        run.wrote(marked.revision)
        try:
            # Whoever was faster can only have ended a task that never ran.
            return await self._store.swap(marked, expected=record.revision)
        except StoreUnavailable:
            await self._settle(run, call_ended(FaultReason.INTERNAL, NO_STORE, dispatched=False))
            return False

    async def _settle(self, run: _Run, event: CallSucceeded | CallFaulted) -> None:
        await self._endings.settle(run.owner, run.id, event, written=run.wrote)

    async def _watch(self) -> None:
        since: int | None = None
        unread: list[TaskId] = []
        while True:
            try:
                patience = RETRY_WATCH if unread else PATIENCE
                news = await self._store.changed(HolderWatch(holder=self.holder, since=since), timeout=patience)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_WATCH.total_seconds())
                continue
            since = news.place
            told = [change.id for change in news.changes if self._is_news(change)] if news.complete else [*self._runs]
            unread = [task for task in dict.fromkeys((*unread, *told)) if not await self._obeyed(task)]

    def _is_news(self, change: Change) -> bool:
        """Whether a change of a task that runs here was made by somebody else."""
        run = self._runs.get(change.id)
        return run is not None and run.revision != change.revision

    async def _obeyed(self, task: TaskId) -> bool:
        """Stop the call of a task that somebody ended; False where that could not be looked up."""
        run = self._runs.get(task)
        if run is None:
            return True
        try:
            record = await self._store.load(run.owner, task, now=self._clock.now())
        except StoreUnavailable:
            return False
        if record is None or record.status.is_terminal:
            run.stop()
        else:
            run.hearer.obey(record)
        return True
