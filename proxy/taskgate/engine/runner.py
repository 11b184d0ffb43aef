"""The calls behind tasks: one held call each, from dispatch to the end of its record.

The record is the mailbox: a cancel arrives as a newer revision, from this process or another. At most once: the mark
that the call left is durable before its first byte is (decisions 2, 3), and nothing here ever sends a call again.
"""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Final

from taskgate.clock import Clock
from taskgate.dialects.base import Params
from taskgate.dialects.faults import call_ended, call_failed
from taskgate.engine.interruption import Interrupted, Interruptible
from taskgate.engine.mounts import Mount
from taskgate.engine.sessions import HostSession, HostSessions
from taskgate.errors import IllegalTransition, StoreUnavailable, UpstreamFailed
from taskgate.stores.base import HolderWatch, TaskStore
from taskgate.tasks.events import CallFaulted, CallSucceeded, Dispatched, TaskEvent
from taskgate.tasks.machine import advance
from taskgate.tasks.record import FaultReason, OwnerKey, Succeeded, TaskId, TaskRecord
from taskgate.telemetry.audit import (
    Audit,
    CallsRunning,
    LateAnswerDropped,
    TaskDispatched,
    TaskFinished,
    TaskMoved,
    TaskRecovered,
)
from taskgate.upstream.base import UpstreamSession

PATIENCE: Final = timedelta(seconds=30)
RETRY_FIRST: Final = 0.1
RETRY_MOST: Final = 5.0
"""Seconds between tries to write an ending while the store does not take it."""

OUTCOME_UNKNOWN: Final = "The gateway stopped while the call was running; it may or may not have completed"
NEVER_SENT: Final = "The gateway stopped before the call was sent, and its server is no longer configured"
SHUT_DOWN: Final = "The gateway shut down while the call was running; it may or may not have completed"
SHUT_DOWN_UNSENT: Final = "The gateway shut down before the call was sent"
NO_STORE: Final = "The call was not sent: the task store was not available"
ENDING_PATIENCE: Final = 10.0
"""Seconds that a shutdown waits for endings to be written; what is not is ended by the next start."""


class _Run:
    """One call in this process. `revision` is the newest of the record that this process wrote."""

    __slots__ = ("dispatched", "id", "owner", "revision", "scope", "shut_down", "stopped", "task")

    def __init__(self, record: TaskRecord) -> None:
        self.id: TaskId = record.id
        self.owner: OwnerKey = record.owner
        self.revision = record.revision
        self.dispatched = False
        self.stopped = False
        self.shut_down = False
        self.scope = Interruptible()
        self.task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Give the call up, now or as soon as it would leave. What is being written is still written."""
        self.stopped = True
        self.scope.interrupt()


class Runner:
    """Every running call of this process. `holder` names the process in leases."""

    def __init__(
        self,
        *,
        holder: str,
        store: TaskStore,
        sessions: HostSessions,
        call_timeouts: dict[str, timedelta],
        audit: Audit,
        clock: Clock,
    ) -> None:
        self.holder = holder
        self._store = store
        self._sessions = sessions
        self._call_timeouts = call_timeouts
        self._audit = audit
        self._clock = clock
        self._runs: dict[TaskId, _Run] = {}
        self._counts: Counter[str] = Counter()
        self._watcher: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to listen for what others do to the tasks that run here."""
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    def start(self, record: TaskRecord, host_session: HostSession) -> None:
        """Run the call of a new task over its host session's server; the session's end waits for it."""
        self._sessions.hold(host_session)
        self._launch(record, host_session.upstream).add_done_callback(lambda _: self._sessions.release(host_session))

    async def recover(self, record: TaskRecord, mount: Mount | None) -> None:
        """Take over a task of a process that is gone: run what was never sent, end what may have run."""
        if record.dispatched or mount is None:
            text = OUTCOME_UNKNOWN if record.dispatched else NEVER_SENT
            await self._settle(record.owner, record.id, _lost(text, dispatched=record.dispatched))
            self._audit.record(TaskRecovered(record.owner.mount, "failed"))
            return
        upstream = mount.upstream.session(lambda _: None)
        self._launch(record, upstream).add_done_callback(lambda _: self._sessions.discard(upstream))
        self._audit.record(TaskRecovered(record.owner.mount, "retried"))

    async def idle(self) -> None:
        """Wait for the end of every call that runs now."""
        running = self._tasks()
        if running:
            await asyncio.wait(running)

    async def stop(self) -> None:
        """End what still runs as shut down, and hear of nothing any more. All that ran here is settled after."""
        for run in tuple(self._runs.values()):
            run.shut_down = True
            run.stop()
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

    def _launch(self, record: TaskRecord, upstream: UpstreamSession) -> asyncio.Task[None]:
        run = self._runs[record.id] = _Run(record)
        run.task = asyncio.get_running_loop().create_task(self._run(run, record, upstream))
        run.task.add_done_callback(lambda _: self._forget(run))
        self._count(run.owner.mount, 1)
        return run.task

    def _forget(self, run: _Run) -> None:
        del self._runs[run.id]
        self._count(run.owner.mount, -1)

    def _count(self, mount: str, change: int) -> None:
        self._counts[mount] += change
        self._audit.record(CallsRunning(mount, self._counts[mount]))

    async def _run(self, run: _Run, record: TaskRecord, upstream: UpstreamSession) -> None:
        assert record.call.params is not None, "a new or recovered record has its bodies"
        params, expires_at, created_at = Params(record.call.params), record.expires_at, record.created_at
        sent = await self._mark_dispatched(run, record)
        # A held call keeps as little as it can: the record is in the store.
        del record
        if sent:
            now = self._clock.now()
            self._audit.record(TaskDispatched(run.owner.mount, now - created_at))
            within = min(self._call_timeouts[run.owner.mount], expires_at - now)
            event = await self._call(run, params, upstream, max(within, timedelta()))
            if event is not None:
                await self._settle(run.owner, run.id, event)

    async def _call(
        self, run: _Run, params: Params, upstream: UpstreamSession, within: timedelta
    ) -> CallSucceeded | CallFaulted | None:
        """What the call came to; None where somebody ended the task before."""
        try:
            async with run.scope:
                if not run.stopped:
                    return await upstream.run(params, within=within)
        except UpstreamFailed as failure:
            return call_failed(failure)
        except Interrupted:
            pass
        return call_ended(FaultReason.SHUTDOWN, SHUT_DOWN, dispatched=True) if run.shut_down else None

    async def _mark_dispatched(self, run: _Run, record: TaskRecord) -> bool:
        """Whether the call may leave: from here on it counts as having run."""
        try:
            marked = advance(record, Dispatched(), self._clock.now())
            # Before it is written: the news of our own change comes first, and needs no look at the record.
            run.revision = marked.revision
            if not run.shut_down and await self._store.swap(marked, expected=record.revision):
                run.dispatched = True
                return True
        except StoreUnavailable:
            failure = call_ended(FaultReason.INTERNAL, NO_STORE, dispatched=False)
            await self._settle(run.owner, run.id, failure)
            return False
        if run.shut_down:
            failure = call_ended(FaultReason.SHUTDOWN, SHUT_DOWN_UNSENT, dispatched=False)
            await self._settle(run.owner, run.id, failure)
        # Otherwise somebody was faster, and a task that never ran can only have been ended.
        return False

    async def _settle(self, owner: OwnerKey, task: TaskId, event: TaskEvent) -> None:
        """Write the end of a task, however long the store takes to accept it; a task that ended before stays ended."""
        pause = RETRY_FIRST
        while True:
            try:
                if await self._try_settle(owner, task, event):
                    return
            except StoreUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_MOST)

    async def _try_settle(self, owner: OwnerKey, task: TaskId, event: TaskEvent) -> bool:
        now = self._clock.now()
        record = await self._store.load(owner, task, now=now)
        if record is None:
            # Expired: the sweeper reports it when it removes the record.
            return True
        try:
            ended = advance(record, event, now)
        except IllegalTransition:
            self._audit.record(LateAnswerDropped(owner.mount))
            return True
        if (run := self._runs.get(task)) is not None:
            run.revision = ended.revision
        if not await self._store.swap(ended, expected=record.revision):
            return False
        self._audit.record(TaskMoved(owner.mount, record.status, ended.status))
        self._audit.record(_finished(ended, event))
        return True

    async def _watch(self) -> None:
        since: int | None = None
        while True:
            try:
                news = await self._store.changed(HolderWatch(holder=self.holder, since=since), timeout=PATIENCE)
                since = news.place
                for change in news.changes:
                    await self._obey(change.id, change.revision)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_MOST)

    async def _obey(self, task: TaskId, revision: int) -> None:
        """Stop a call whose task somebody ended."""
        run = self._runs.get(task)
        if run is None or run.revision == revision:
            return
        record = await self._store.load(run.owner, task, now=self._clock.now())
        if record is None or record.status.is_terminal:
            run.stop()


def _lost(text: str, *, dispatched: bool) -> CallFaulted:
    return call_ended(FaultReason.CALL_LOST, text, dispatched=dispatched)


def _finished(record: TaskRecord, event: TaskEvent) -> TaskFinished:
    match event:
        case CallSucceeded(tool_error=True):
            reason = "tool_error"
        case CallFaulted(reason=fault):
            reason = fault.value
        case _:
            reason = "ok"
    size = len(record.outcome.result) if isinstance(record.outcome, Succeeded) else None
    return TaskFinished(record.owner.mount, record.status, reason, record.updated_at - record.created_at, size)
