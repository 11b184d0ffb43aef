"""Commits that are shared, and the one thread that waits for the disk.

Work that is handed in while a commit runs goes into the next one together. A future is done only after the commit
that holds its work. Brief works are done on the event loop, where nobody competes with them for the interpreter, and
only their commit on the thread; a batch that has any other work is the thread's from its beginning. The loop and the
thread never have the connection at the same time. Knows transactions and nothing of what is written.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from logging import getLogger
from typing import Any, Final, TypeVar

from taskgate.errors import StoreUnavailable
from taskgate.stores.sqlite.faults import unavailable

_Value = TypeVar("_Value")

Work = Callable[[sqlite3.Cursor], _Value]
"""Statements of one verb, run inside a transaction; may run twice, the first time undone."""

_LARGEST_BATCH: Final = 256
"""How many works share a commit at most: bounds how long the loop is busy with them and with their ends."""

log = getLogger("taskgate.stores")


class _WriteJob:
    __slots__ = ("error", "future", "is_brief", "tell", "undone", "value", "work")

    def __init__(
        self,
        work: Work[Any],
        tell: Callable[[Any], None] | None,
        undone: Callable[[], None] | None,
        is_brief: bool,
        future: "asyncio.Future[Any]",
    ) -> None:
        self.work = work
        self.tell = tell
        self.undone = undone
        self.is_brief = is_brief
        self.future = future
        self.value: Any = None
        self.error: StoreUnavailable | None = None


class _Batch:
    """Jobs that share a commit; `is_done` when all but that is done."""

    __slots__ = ("is_done", "jobs")

    def __init__(self, jobs: list[_WriteJob], is_done: bool) -> None:
        self.jobs = jobs
        self.is_done = is_done


class _WorkFailed(Exception):
    """A work failed halfway, and with it the transaction that holds others too."""


class SqliteWriter:
    """Takes work on the event loop, commits it on its own thread. Owns the connection from here on and closes it."""

    def __init__(self, connection: sqlite3.Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        # A lock of somebody else is waited for on the thread, never on the loop.
        ((self._patience,),) = connection.execute("PRAGMA busy_timeout").fetchall()
        self._wait_for_locks(0)
        self._loop = loop
        self._waiting: list[_WriteJob] = []
        self._is_busy = False
        self._closed = False
        self._ended: asyncio.Future[None] = loop.create_future()
        self._batches: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        # A daemon, so that a process that dies without closing its store does not hang: commits are whole anyway.
        self._thread = threading.Thread(target=self._run, name="taskgate-store-writer", daemon=True)
        self._thread.start()

    def submit(
        self,
        work: Work[_Value],
        tell: Callable[[_Value], None] | None = None,
        *,
        undone: Callable[[], None] | None = None,
        is_brief: bool = False,
    ) -> "asyncio.Future[_Value]":
        """Have work done and committed; brief is what finds a few rows by an index and writes little.

        On the loop `tell` is called with its value, or `undone` where it failed, also if nobody waits any more. What
        they raise is logged and changes nothing. The future raises StoreUnavailable.
        """
        if self._closed:
            raise StoreUnavailable("The store is closed")
        future: asyncio.Future[_Value] = self._loop.create_future()
        self._waiting.append(_WriteJob(work, tell, undone, is_brief, future))
        if not self._is_busy:
            self._is_busy = True
            # Not at once: what else this turn of the loop submits is to share the commit.
            self._loop.call_soon(self._send)
        return future

    async def close(self) -> None:
        """Finish what was submitted, close the connection and end the thread."""
        if not self._closed:
            self._closed = True
            if not self._is_busy:
                self._batches.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    # --- on the loop ---------------------------------------------------------------------------------------------

    def _send(self) -> None:
        jobs = self._waiting[:_LARGEST_BATCH]
        del self._waiting[:_LARGEST_BATCH]
        self._batches.put(_Batch(jobs, all(job.is_brief for job in jobs) and self._is_done_here(jobs)))

    def _is_done_here(self, jobs: list[_WriteJob]) -> bool:
        """Do works up to their commit. Whatever goes wrong is undone and met again by the thread, which may wait."""
        try:
            self._perform(jobs)
        except Exception:
            with suppress(sqlite3.Error):
                self._undo()
            return False
        return True

    def _settle(self, batch: _Batch) -> None:
        if self._waiting:
            self._send()
        elif self._closed:
            self._batches.put(None)
        else:
            self._is_busy = False
        for job in batch.jobs:
            _end(job)

    # --- on the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            self._write(batch)
            self._loop.call_soon_threadsafe(self._settle, batch)
        self._connection.close()
        self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _write(self, batch: _Batch) -> None:
        try:
            self._commit(batch.jobs, batch.is_done)
        except _WorkFailed:
            # Rare, so it may be slow: each by itself, and only the one that fails has failed.
            for job in batch.jobs:
                self._write_alone(job)
        except Exception as error:
            for job in batch.jobs:
                job.error = self._unavailable(error)

    def _write_alone(self, job: _WriteJob) -> None:
        try:
            self._commit([job], False)
        except _WorkFailed as spoiled:
            job.error = self._unavailable(spoiled.__cause__)
        except Exception as error:
            job.error = self._unavailable(error)

    def _commit(self, jobs: list[_WriteJob], is_done: bool) -> None:
        try:
            if not is_done:
                self._wait_for_locks(self._patience)
                try:
                    self._perform(jobs)
                finally:
                    self._wait_for_locks(0)
            self._cursor.execute("COMMIT")
        except BaseException:
            self._undo()
            raise

    def _unavailable(self, cause: BaseException | None) -> StoreUnavailable:
        return unavailable("The store could not write", cause, self._connection)

    # --- on either -----------------------------------------------------------------------------------------------

    def _perform(self, jobs: list[_WriteJob]) -> None:
        cursor = self._cursor
        cursor.execute("BEGIN IMMEDIATE")
        for job in jobs:
            try:
                job.value = job.work(cursor)
            except Exception as error:
                raise _WorkFailed from error

    def _undo(self) -> None:
        if self._connection.in_transaction:
            self._connection.rollback()

    def _wait_for_locks(self, milliseconds: int) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {milliseconds}").fetchall()


def _end(job: _WriteJob) -> None:
    future, error = job.future, job.error
    try:
        _tell(job)
    except Exception as failure:
        # What is committed is done, and whoever waits for the rest of the batch has no part in it.
        log.error("What a store did was told to one who failed", exc_info=failure)
    if future.done():
        return
    if error is None:
        future.set_result(job.value)
    else:
        future.set_exception(error)


def _tell(job: _WriteJob) -> None:
    if job.error is None:
        if job.tell is not None:
            job.tell(job.value)
    elif job.undone is not None:
        job.undone()
