"""The queue of one sink: `SinkQueue`.

Events wait in a buffer on the event loop and go to a `ChainWriter` on the thread of the sink
(`SinkThread`), many at a time. `AuditLog` has one queue for each sink. A failing sink is retried as
long as the log is open. Events that find no room meanwhile are dropped and counted, and an
`audit.gap` line reports them.
"""

import asyncio
import queue
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from logging import getLogger
from threading import Thread
from typing import Any, Final, NamedTuple, TypeVar

from taskgate.clock import Clock
from taskgate.telemetry.auditlog.backpressure import EventBuffer
from taskgate.telemetry.auditlog.catalogue import FAILURE, SUCCESS
from taskgate.telemetry.auditlog.chain import GAP
from taskgate.telemetry.auditlog.chain_writer import ChainPosition, ChainWriter, gap_event
from taskgate.telemetry.auditlog.events import AuditEvent
from taskgate.telemetry.auditlog.recovery import Gap
from taskgate.telemetry.auditlog.settings import AuditUnavailable, ForeignAuditFile
from taskgate.telemetry.events import AuditEventRecorded, AuditLinesDropped, AuditLinesWritten, EventSink

_Value = TypeVar("_Value")


class _Job(NamedTuple):
    work: Callable[[], Any]
    future: "asyncio.Future[Any]"


class SinkThread:
    """The thread of one sink: runs jobs in their order, from the first `submit` until `stop`.

    It is a daemon thread, so that a blocked sink keeps no process alive.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = Thread(target=self._run, name=f"taskgate-audit-{name}", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, work: Callable[[], _Value]) -> "asyncio.Future[_Value]":
        """Run `work` on the thread after all earlier jobs; the future has its result."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._thread.start()
        future: asyncio.Future[_Value] = self._loop.create_future()
        self._jobs.put(_Job(work, future))
        return future

    def stop(self) -> None:
        """Stop the thread after the jobs it has; no job may follow. Does not wait."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                done = partial(_set_result, job.future, job.work())
            except BaseException as error:
                done = partial(_set_exception, job.future, error)
            self._report(done)
            # Release what the job holds now, not when the next job comes.
            del job, done

    def _report(self, done: Callable[[], None]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(done)
        except RuntimeError:
            # The loop is closed, so there is no waiter left.
            return


def _set_result(future: "asyncio.Future[Any]", value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _set_exception(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


MAX_BATCH: Final = 256
"""Events that go to the thread at once, at most."""
LOOP_BATCH: Final = 32
"""Lines that are rendered on the event loop before other tasks run. When more events wait than a
batch has, it is the whole batch: requests cause more than 32 lines between two parts then."""
SYNC_DELAY: Final = 1.0
"""Seconds from a write to the sync of the disk, when not each write syncs."""
_MIN_RETRY_DELAY, _MAX_RETRY_DELAY = 0.1, 5.0
"""Seconds between two attempts to write."""

log = getLogger("taskgate.audit")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkQueueOptions:
    """The size of the buffer; a checkpoint is due after so many lines or seconds (None: never)."""

    size: int
    checkpoint_events: int | None
    checkpoint_seconds: float | None


class SinkTrouble(NamedTuple):
    """Why the lines of a sink cannot be written, since when, and how many wait."""

    cause: str
    since: datetime
    waiting: int


class SinkQueue:
    """The queue of one sink's events between `open` and `close`, written in batches.

    `open` starts an asyncio task, which writes until the end. It wakes for new events, changes and
    due checkpoints. `AuditLog` ends the queue with `flush`, then `close`; if one of them fails or
    takes too long, with `abort`. No method but `open`, `flush` and `close` waits.

    - `_wake`: set to let the task work; `_closing`: set when the task has to end
    - `_changes`: functions for the writer, to be called between two batches
    - `_since_checkpoint`: the number of lines after the last checkpoint
    - `_failure`: why and since when writing fails; None while it does not
    - `_sync_at`, `_checkpoint_at`: when these are due, by the time of the loop; None for never
    - `_alarm`: the timer that wakes the task for the earlier of them
    """

    def __init__(
        self, name: str, writer: ChainWriter, options: SinkQueueOptions, *, event_sink: EventSink, clock: Clock
    ) -> None:
        self.name = name
        self.buffer = EventBuffer(options.size, self._on_lost)
        """Takes events, which are written soon after."""
        self.sequence: int | None = None
        """The number of the last line of the sink; None until it is open."""
        self.on_checkpoint: Callable[[SinkQueue, AuditEvent], None] = lambda _queue, _event: None
        """Called after each checkpoint, with this queue and a checkpoint event for other sinks."""
        self.on_room: Callable[[], None] = lambda: None
        """Called after each write that leaves room for requests."""
        self._writer = writer
        self._options = options
        self._event_sink = event_sink
        self._clock = clock
        self._thread = SinkThread(name)
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._failure: tuple[str, datetime] | None = None
        self._reopen_wanted = False
        self._changes: list[Callable[[ChainWriter], None]] = []
        self._retry_delay = _MIN_RETRY_DELAY
        self._since_checkpoint = 0
        self._sync_at: float | None = None
        self._checkpoint_at: float | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop

    @property
    def trouble(self) -> SinkTrouble | None:
        """Why lines wait; None if none has to."""
        return None if self._failure is None else SinkTrouble(*self._failure, len(self.buffer))

    async def open(self) -> None:
        """Open the sink and start writing. Raises AuditUnavailable; then nothing stays open."""
        self._loop = asyncio.get_running_loop()
        try:
            self._on_written(await self._do(self._writer.open))
        except BaseException as error:
            self._thread.stop()
            if isinstance(error, OSError):
                raise AuditUnavailable(f"cannot be written: {error.strerror}") from None
            raise
        self._task = asyncio.create_task(self._run_task())
        self.buffer.on_next = self._wake.set
        if self.buffer.waiting:
            self._wake.set()

    def reconfigure(self, name: str, options: SinkQueueOptions, change: Callable[[ChainWriter], None]) -> None:
        """Use other settings; `change` is applied to the writer between two batches."""
        self.name, self._options, self._checkpoint_at = name, options, None
        self.buffer.resize(options.size)
        self._changes.append(change)
        self._schedule_checkpoint()
        self._wake.set()

    def reopen(self) -> None:
        """Reopen the sink by its name soon; a failure is retried."""
        self._reopen_wanted = True
        self._wake.set()

    async def flush(self) -> None:
        """End the task, then write all waiting events and a checkpoint, however long that takes.

        Later events stay in the buffer: only `close` writes them.
        """
        self._closing.set()
        self._wake.set()
        if self._task is not None:
            try:
                await self._task
            finally:
                self._task = None
        self._cancel_alarm()
        self._report_losses()
        await self._write_all()

    async def close(self) -> None:
        """Write the rest and close the sink, however long that takes."""
        await self._write_all()
        self.buffer.close()
        await self._thread.submit(self._writer.close)
        self._thread.stop()

    def abort(self) -> None:
        """Give up a blocked sink and drop the events that it did not take. Does not wait."""
        if self._task is not None:
            self._task.cancel()
        self._cancel_alarm()
        self.buffer.close()
        log.error("the audit log was closed with unwritten lines", extra={"sink": self.name})
        self._thread.submit(self._writer.close)
        self._thread.stop()

    # --- the writing task ----------------------------------------------------------------------------------------

    async def _run_task(self) -> None:
        while not self._closing.is_set():
            await self._wait_until_due()
            try:
                await self._step()
            except Exception as error:
                self._on_failure(error)
            else:
                if self._failure is not None:
                    self._on_success()

    async def _write_all(self) -> None:
        """Write the buffer and a checkpoint, and sync; retried until it succeeds."""
        self._apply_changes()
        while True:
            try:
                while self.buffer.waiting or self.buffer.taken:
                    await self._write()
                self._on_written(await self._do(self._writer.report))
                if self._since_checkpoint and self._options.checkpoint_events is not None:
                    await self._write_checkpoint()
                await self._sync()
            except Exception as error:
                self._on_failure(error)
                await asyncio.sleep(self._retry_delay)
            else:
                return

    async def _wait_until_due(self) -> None:
        """Wait until there is work. After a failure only time counts: new events change nothing."""
        if self._failure is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._retry_delay):
                    await self._closing.wait()
            return
        due = self._sync_at
        if due is None or (self._checkpoint_at is not None and self._checkpoint_at < due):
            due = self._checkpoint_at
        if due is not None and (self._alarm is None or due < self._alarm.when()):
            self._cancel_alarm()
            self._alarm = self._loop.call_at(due, self._on_due)
        await self._wake.wait()

    def _on_due(self) -> None:
        self._alarm = None
        self._wake.set()

    def _cancel_alarm(self) -> None:
        """Cancel the alarm."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def _step(self) -> None:
        """Do all work that is due: changes, a reopen, one batch, a checkpoint, a sync."""
        now = self._loop.time()
        self._wake.clear()
        if self._changes:
            self._apply_changes()
        if self._reopen_wanted:
            await self._reopen()
        if self.buffer.waiting or self.buffer.taken:
            await self._write()
        if self._checkpoint_at is not None and self._checkpoint_at <= now:
            await self._write_checkpoint()
        if self._sync_at is not None and self._sync_at <= now:
            await self._sync()

    def _apply_changes(self) -> None:
        # Only while the thread is idle: lines are rendered on the loop and on the thread.
        changes, self._changes = self._changes, []
        for change in changes:
            change(self._writer)

    async def _reopen(self) -> None:
        # Reset before the work: the file may be moved again, and `reopen` called, while it runs.
        self._reopen_wanted = False
        try:
            self._on_written(await self._do(self._writer.reopen))
        except ForeignAuditFile as error:
            # Lines go on to the file that is open. Who moves the other one away asks again.
            details = {"sink": self.name, "reason": str(error)}
            log.error("an audit file is not reopened; the earlier one stays in use", extra=details)
        except BaseException:
            self._reopen_wanted = True
            raise

    async def _write(self) -> None:
        """Write one batch; after an earlier failure also what the writer still has."""
        batch = self.buffer.take(MAX_BATCH)
        if self.buffer.waiting:
            self._wake.set()
        else:
            self.buffer.on_next = self._wake.set
        part = MAX_BATCH if self.buffer.waiting else LOOP_BATCH
        for _ in range(0, len(batch), part):
            if not self._writer.add_templated(batch, part):
                break
            await asyncio.sleep(0)
        written = await self._do(partial(self._writer.write, batch))
        if self.buffer.done():
            record = AuditLinesWritten(self.name, written.seconds, written.head.seq, len(self.buffer))
            self._event_sink.emit(record)
        self._on_written(written)

    async def _write_checkpoint(self) -> None:
        self._checkpoint_at = None
        written, event = await self._do(self._writer.checkpoint)
        self._on_written(written)
        self.on_checkpoint(self, event)

    async def _sync(self) -> None:
        written = await self._do(self._writer.sync)
        self._on_written(written)
        self._sync_at = None

    def _do(self, work: Callable[..., Any]) -> "asyncio.Future[Any]":
        """Run a method of the writer on the thread, with the time as its last argument."""
        return self._thread.submit(partial(_with_time, work, self._clock))

    def _on_written(self, written: ChainPosition) -> None:
        self.sequence, self._since_checkpoint = written.head.seq, written.since_checkpoint
        for name in written.internal:
            self._event_sink.emit(AuditEventRecorded(name, FAILURE if name == GAP else SUCCESS))
        if self._sync_at is None:
            self._sync_at = self._loop.time() + SYNC_DELAY
        self._schedule_checkpoint()
        if not self.buffer.is_crowded:
            if self.buffer.losses:
                self._report_losses()
            self.on_room()

    def _schedule_checkpoint(self) -> None:
        after, within = self._options.checkpoint_events, self._options.checkpoint_seconds
        if after is None or within is None or not self._since_checkpoint:
            self._checkpoint_at = None
            return
        now = self._loop.time()
        if self._since_checkpoint >= after:
            # One that is due stays so: put off after each batch, it would wait until no more events come.
            if self._checkpoint_at is None or self._checkpoint_at > now:
                self._checkpoint_at = now
        elif self._checkpoint_at is None:
            self._checkpoint_at = now + within

    # --- failures ------------------------------------------------------------------------------------------------

    def _on_lost(self, reason: str, lines: int) -> None:
        if self.buffer.is_open and self.buffer.losses.total() == 1:
            log.error("audit events are being dropped", extra={"sink": self.name, "reason": reason})
        self._event_sink.emit(AuditLinesDropped(self.name, reason, lines))

    def _report_losses(self) -> None:
        """Write an `audit.gap` line for each reason that events were dropped for."""
        for reason, lines in self.buffer.losses.items():
            self.buffer.force(gap_event(self.name, self._clock.now(), Gap(reason, lines=lines)))
            self._wake.set()
        self.buffer.losses.clear()

    def _on_failure(self, error: Exception) -> None:
        """Retry after a delay, whatever the error; log the first failure only."""
        if self._failure is not None:
            self._retry_delay = min(2 * self._retry_delay, _MAX_RETRY_DELAY)
            return
        self.buffer.reason = "write_failed"
        said = str(error) if isinstance(error, AuditUnavailable) else getattr(error, "strerror", None)
        why = said or type(error).__name__
        self._failure, self._retry_delay = (why, self._clock.now()), _MIN_RETRY_DELAY
        details = {"sink": self.name, "reason": why}
        log.error("the audit log cannot be written; taskgate keeps retrying", extra=details, exc_info=error)

    def _on_success(self) -> None:
        self._failure, self.buffer.reason = None, "queue_full"
        self._wake.set()
        log.info("the audit log is written again", extra={"sink": self.name})


def _with_time(work: Callable[..., Any], clock: Clock) -> Any:
    return work(clock.now())
