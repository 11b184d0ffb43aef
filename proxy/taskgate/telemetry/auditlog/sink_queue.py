"""The queue of one sink: `SinkQueue`."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from logging import getLogger
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple, TypeVar

from taskgate.clock import Clock
from taskgate.telemetry.auditlog.backpressure import EventBuffer
from taskgate.telemetry.auditlog.catalogue import FAILURE, SUCCESS
from taskgate.telemetry.auditlog.chain import GAP
from taskgate.telemetry.auditlog.chain_writer import ChainPosition, ChainWriter, gap_event
from taskgate.telemetry.auditlog.events import AuditEvent
from taskgate.telemetry.auditlog.recovery import Gap
from taskgate.telemetry.auditlog.settings import AuditUnavailable
from taskgate.telemetry.events import AuditDropped, AuditNoted, AuditWritten, EventSink

_Value = TypeVar("_Value")


class _Job(NamedTuple):
    work: Callable[[], Any]
    future: "asyncio.Future[Any]"


class SinkThread:
    """One thread, from the first errand until `end`. A daemon, so that a sink that is stuck keeps no process alive."""

    def __init__(self, name: str) -> None:
        self._errands: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=f"taskgate-audit-{name}", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, work: Callable[[], _Value]) -> "asyncio.Future[_Value]":
        """What `work` returns or raises, done on the thread after everything before it."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._thread.start()
        future: asyncio.Future[_Value] = self._loop.create_future()
        self._errands.put(_Job(work, future))
        return future

    def stop(self) -> None:
        """End the thread after what it was given; nothing more may be given. Does not wait for it."""
        self._errands.put(None)

    def _run(self) -> None:
        while (errand := self._errands.get()) is not None:
            try:
                done = partial(_set_result, errand.future, errand.work())
            except BaseException as error:
                done = partial(_set_exception, errand.future, error)
            self._tell(done)
            # Whatever it holds is let go now, and not when the next one comes.
            del errand, done

    def _tell(self, done: Callable[[], None]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(done)
        except RuntimeError:
            # The loop is gone, and whoever waited with it.
            return


def _set_result(future: "asyncio.Future[Any]", value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _set_exception(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


BATCH_DELAY: Final = 0.025
"""Seconds for which the first event waits for others to go along."""
MAX_BATCH: Final = 256
"""How many events go at once at most."""
LOOP_BATCH: Final = 32
"""How many lines are made at most until the event loop sees to others."""
SYNC_DELAY: Final = 1.0
"""Seconds after a write at which the disk is waited for, where not each write waits for it."""
_MIN_RETRY_DELAY, _MAX_RETRY_DELAY = 0.1, 5.0
"""Seconds between two attempts."""

log = getLogger("taskgate.audit")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkQueueOptions:
    """How much waits at most, and when a checkpoint is due: after so many lines, or seconds; both None: never."""

    size: int
    checkpoint_events: int | None
    checkpoint_seconds: float | None


class SinkQueue:
    """The way to one sink, between `open` and `close`."""

    def __init__(
        self, name: str, book: ChainWriter, pace: SinkQueueOptions, *, metrics: EventSink, clock: Clock
    ) -> None:
        self.name = name
        self.buffer = EventBuffer(pace.size, self._lose)
        self.sequence: int | None = None
        """The number of the sink's last line; None until it is open."""
        self.on_checkpoint: Callable[[SinkQueue, AuditEvent], None] = lambda _lane, _event: None
        """Told of each checkpoint, for other sinks."""
        self.on_room: Callable[[], None] = lambda: None
        """Told when there is room again."""
        self._book = book
        self._pace = pace
        self._metrics = metrics
        self._clock = clock
        self._worker = SinkThread(name)
        self._news = asyncio.Event()
        self._ending = asyncio.Event()
        # Until it is open, nobody is to be woken.
        self._is_awake = True
        self._is_failing = False
        self._wants_reopen = False
        self._changes: list[Callable[[ChainWriter], None]] = []
        self._pause = _MIN_RETRY_DELAY
        self._uncovered = 0
        self._sync_at: float | None = None
        self._vouch_at: float | None = None
        self._serving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin. Raises AuditUnavailable; nothing is left open then."""
        try:
            self._took(await self._do(self._book.open))
        except BaseException as error:
            self._worker.stop()
            if isinstance(error, OSError):
                raise AuditUnavailable(f"cannot be written: {error.strerror}") from None
            raise
        self._serving = asyncio.create_task(self._serve())
        self._is_awake = False
        if self.buffer.has_more:
            self._news.set()

    def accept(self, event: AuditEvent) -> None:
        """Have an event written soon, if there is room. Never waits."""
        if self.buffer.add(event) and not self._is_awake:
            self._is_awake = True
            asyncio.get_running_loop().call_later(BATCH_DELAY, self._news.set)

    def reconfigure(self, name: str, pace: SinkQueueOptions, change: Callable[[ChainWriter], None]) -> None:
        """Be called that and go at that pace; `change` is done to the book between two batches."""
        self.name, self._pace, self._vouch_at = name, pace, None
        self.buffer.size = pace.size
        self._changes.append(change)
        self._plan()
        self._news.set()

    def reopen(self) -> None:
        """Go where the sink's name leads now, soon; where that cannot be opened, it is tried again."""
        self._wants_reopen = True
        self._news.set()

    async def flush(self) -> None:
        """Have everything written that waits, and vouched for. Afterwards nothing is written before `close`."""
        self._ending.set()
        self._news.set()
        if self._serving is not None:
            await self._serving
        self._own_up()
        await self._finish()

    async def close(self) -> None:
        """Have the rest written, and let go of the sink. Takes as long as the sink does."""
        await self._finish()
        self.buffer.close()
        await self._worker.submit(self._book.close)
        self._worker.stop()

    def abort(self) -> None:
        """Let go of a sink that is stuck, and of what it did not take."""
        if self._serving is not None:
            self._serving.cancel()
        self.buffer.close()
        log.error("the audit log is closed with lines that were not written", extra={"sink": self.name})
        self._worker.submit(self._book.close)
        self._worker.stop()

    # --- one turn after the other --------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while not self._ending.is_set():
            await self._until_due()
            try:
                await self._turn()
            except Exception as error:
                self._falter(error)
            else:
                self._recover()

    async def _finish(self) -> None:
        self._change()
        while True:
            try:
                while self.buffer.has_more or self.buffer.has_unfinished:
                    await self._write()
                if self._uncovered and self._pace.checkpoint_events is not None:
                    await self._vouch()
                await self._sync()
            except Exception as error:
                self._falter(error)
                await asyncio.sleep(self._pause)
            else:
                return

    async def _until_due(self) -> None:
        if self._is_failing:
            waiting: asyncio.Event = self._ending
            due: float | None = asyncio.get_running_loop().time() + self._pause
        else:
            dues = [at for at in (self._sync_at, self._vouch_at) if at is not None]
            waiting, due = self._news, min(dues, default=None)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await waiting.wait()

    async def _turn(self) -> None:
        now = asyncio.get_running_loop().time()
        self._news.clear()
        self._change()
        if self._wants_reopen:
            await self._reopen()
        if self.buffer.has_more or self.buffer.has_unfinished:
            await self._write()
        if self._vouch_at is not None and self._vouch_at <= now:
            await self._vouch()
        if self._sync_at is not None and self._sync_at <= now:
            await self._sync()

    def _change(self) -> None:
        # Here, where the thread does nothing: lines are made on either side of it.
        changes, self._changes = self._changes, []
        for change in changes:
            change(self._book)

    async def _reopen(self) -> None:
        # Before it is done: whoever asks meanwhile may have moved the file after it was looked at.
        self._wants_reopen = False
        try:
            self._took(await self._do(self._book.reopen))
        except BaseException:
            self._wants_reopen = True
            raise

    async def _write(self) -> None:
        batch = self.buffer.take(MAX_BATCH)
        if self.buffer.has_more:
            self._news.set()
        else:
            self._is_awake = False
        for _ in range(0, len(batch), LOOP_BATCH):
            if not self._book.add_templated(batch, LOOP_BATCH):
                break
            await asyncio.sleep(0)
        written = await self._do(partial(self._book.write, batch))
        if self.buffer.done():
            record = AuditWritten(self.name, written.seconds, written.head.seq, len(self.buffer))
            self._metrics.emit(record)
        self._took(written)

    async def _vouch(self) -> None:
        self._vouch_at = None
        written, event = await self._do(self._book.checkpoint)
        self._took(written)
        self.on_checkpoint(self, event)

    async def _sync(self) -> None:
        written = await self._do(self._book.sync)
        self._took(written)
        self._sync_at = None

    def _do(self, work: Callable[..., Any]) -> "asyncio.Future[Any]":
        """Have something done to the book, with the time as its last argument."""
        return self._worker.submit(partial(_with_time, work, self._clock))

    def _took(self, written: ChainPosition) -> None:
        self.sequence, self._uncovered = written.head.seq, written.uncovered
        for name in written.noted:
            self._metrics.emit(AuditNoted(name, FAILURE if name == GAP else SUCCESS))
        if self._sync_at is None:
            self._sync_at = asyncio.get_running_loop().time() + SYNC_DELAY
        self._plan()
        if not self.buffer.is_crowded:
            self._own_up()
            self.on_room()

    def _plan(self) -> None:
        after, within = self._pace.checkpoint_events, self._pace.checkpoint_seconds
        if after is None or within is None or not self._uncovered:
            self._vouch_at = None
            return
        now = asyncio.get_running_loop().time()
        if self._uncovered >= after:
            self._vouch_at = now
        elif self._vouch_at is None:
            self._vouch_at = now + within

    # --- what goes wrong -----------------------------------------------------------------------------------------

    def _lose(self, reason: str, lines: int) -> None:
        if self.buffer.is_open and self.buffer.losses.total() == 1:
            log.error("events of the audit log are lost", extra={"sink": self.name, "reason": reason})
        self._metrics.emit(AuditDropped(self.name, reason, lines))

    def _own_up(self) -> None:
        """Have the log say what it does not hold."""
        for reason, lines in self.buffer.losses.items():
            self.buffer.force(gap_event(self.name, self._clock.now(), Gap(reason, lines=lines)))
            self._news.set()
        self.buffer.losses.clear()

    def _falter(self, error: Exception) -> None:
        """Whatever it was, the sink is tried again after a pause, and the log of the gateway has it once."""
        if self._is_failing:
            self._pause = min(2 * self._pause, _MAX_RETRY_DELAY)
            return
        self._is_failing, self._pause = True, _MIN_RETRY_DELAY
        self.buffer.reason = "write_failed"
        why = str(error) if isinstance(error, AuditUnavailable) else getattr(error, "strerror", None)
        told = {"sink": self.name, "reason": why or type(error).__name__}
        log.error("the audit log cannot be written; it is tried again", extra=told, exc_info=error)

    def _recover(self) -> None:
        if self._is_failing:
            self._is_failing, self.buffer.reason = False, "queue_full"
            self._news.set()
            log.info("the audit log is written again", extra={"sink": self.name})


def _with_time(work: Callable[..., Any], clock: Clock) -> Any:
    return work(clock.now())
