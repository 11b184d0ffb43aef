"""The writes to a SQLite file: `SqliteWriter` shares commits among them and waits for the disk on
one thread.

Work that is submitted during a commit goes into the next one together. A future is done only after
the commit of its work. Brief work runs on the event loop, where no other thread competes for the
interpreter; only its commit runs on the thread. A batch with any other work runs on the thread from
its start. The loop and the thread never use the connection at the same time. The writer knows
transactions, and nothing about records.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from logging import getLogger
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from taskgate.errors import StoreUnavailable
from taskgate.stores.sqlite.file import unavailable

_Value = TypeVar("_Value")

Work = Callable[[sqlite3.Cursor], _Value]
"""The statements of one operation, as `Write.run`."""

_LARGEST_BATCH: Final = 256
"""Jobs that share a commit at most: bounds how long they and their callbacks block the loop."""

_IS_BRIEF: Final = attrgetter("is_brief")

log = getLogger("taskgate.stores")


class Write(Generic[_Value]):
    """One operation of a store on its way into the file.

    A subclass sets `is_brief`: it finds a few rows by an index and writes little. The others are the
    writer's: the future that its caller awaits, and the value of the operation or its error.
    """

    __slots__ = ("error", "future", "is_brief", "value")
    is_brief: bool
    future: "asyncio.Future[_Value]"
    value: _Value
    error: StoreUnavailable | None

    def run(self, cursor: sqlite3.Cursor) -> _Value:
        """Run the statements of the operation, in a transaction.

        They may run twice, the first time rolled back.
        """
        raise NotImplementedError

    def committed(self, value: _Value) -> None:
        """Handle the commit, on the loop, even if the future was cancelled."""

    def failed(self) -> None:
        """Handle that nothing was written, as `committed`."""


class _Operation(Write[_Value]):
    """A write of three functions."""

    __slots__ = ("_on_commit", "_on_failure", "_work")

    def __init__(
        self,
        work: Work[_Value],
        on_commit: Callable[[_Value], None] | None,
        on_failure: Callable[[], None] | None,
        is_brief: bool,
    ) -> None:
        self.is_brief = is_brief
        self._work = work
        self._on_commit = on_commit
        self._on_failure = on_failure

    def run(self, cursor: sqlite3.Cursor) -> _Value:
        return self._work(cursor)

    def committed(self, value: _Value) -> None:
        if self._on_commit is not None:
            self._on_commit(value)

    def failed(self) -> None:
        if self._on_failure is not None:
            self._on_failure()


@dataclass(slots=True)
class _Batch:
    """Jobs that share a commit; with `is_done` only the commit is left."""

    jobs: list[Write[Any]]
    is_done: bool


class _WorkFailed(Exception):
    """A job failed halfway, and with it the transaction that it shares with other jobs."""


class SqliteWriter:
    """The writer, which takes work on the event loop and commits it on its own thread.

    It owns the connection and closes it.
    """

    def __init__(self, connection: sqlite3.Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        # The thread waits for locks of other processes, the loop never does.
        ((self._lock_timeout,),) = connection.execute("PRAGMA busy_timeout").fetchall()
        self._wait_for_locks(0)
        self._loop = loop
        self._waiting: list[Write[Any]] = []
        self._is_busy = False
        self._closed = False
        self._ended: asyncio.Future[None] = loop.create_future()
        self._batches: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        # A daemon, so that a process that dies without closing its store does not hang. Commits are
        # atomic anyway.
        self._thread = threading.Thread(target=self._run, name="taskgate-store-writer", daemon=True)
        self._thread.start()

    def submit(
        self,
        work: Work[_Value],
        on_commit: Callable[[_Value], None] | None = None,
        *,
        on_failure: Callable[[], None] | None = None,
        is_brief: bool = False,
    ) -> "asyncio.Future[_Value]":
        """Run work and commit it, as `add`; the loop calls `on_commit` with the value, or
        `on_failure`.
        """
        return self.add(_Operation(work, on_commit, on_failure, is_brief))

    def add(self, job: Write[_Value]) -> "asyncio.Future[_Value]":
        """Run a write and commit it.

        Errors of its handlers are logged and change nothing. The future raises StoreUnavailable.
        """
        if self._closed:
            raise StoreUnavailable("The store is closed")
        future = job.future = self._loop.create_future()
        job.error = None
        self._waiting.append(job)
        if not self._is_busy:
            self._is_busy = True
            # Not at once: other work of this turn of the loop shares the commit.
            self._loop.call_soon(self._send)
        return future

    async def close(self) -> None:
        """Finish the submitted work, close the connection and end the thread."""
        if not self._closed:
            self._closed = True
            if not self._is_busy:
                self._batches.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    # --- on the loop ---------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Run the next jobs up to their commit if all are brief, and pass them to the thread."""
        jobs = self._waiting[:_LARGEST_BATCH]
        del self._waiting[:_LARGEST_BATCH]
        is_done = all(map(_IS_BRIEF, jobs))
        if is_done:
            try:
                self._perform(jobs)
            except Exception:
                # The thread tries again, and may wait for locks.
                with suppress(sqlite3.Error):
                    self._undo()
                is_done = False
        self._batches.put(_Batch(jobs, is_done))

    def _settle(self, batch: _Batch) -> None:
        if self._waiting:
            self._send()
        elif self._closed:
            self._batches.put(None)
        else:
            self._is_busy = False
        for job in batch.jobs:
            future, error = job.future, job.error
            # The error will refer to the frame of its caller, which has the job.
            del job.future, job.error
            try:
                if error is None:
                    job.committed(job.value)
                else:
                    job.failed()
            except Exception as failure:
                # The commit is done, and the rest of the batch is not affected.
                log.error("A callback failed after a write to the store", exc_info=failure)
            if future.done():
                continue
            if error is None:
                future.set_result(job.value)
            else:
                future.set_exception(error)

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
            # Rare, so it may be slow: each job in its own transaction, so that only the bad one
            # fails.
            for job in batch.jobs:
                self._write_alone(job)
        except Exception as error:
            for job in batch.jobs:
                job.error = self._unavailable(error)

    def _write_alone(self, job: Write[Any]) -> None:
        try:
            self._commit([job], False)
        except _WorkFailed as spoiled:
            job.error = self._unavailable(spoiled.__cause__)
        except Exception as error:
            job.error = self._unavailable(error)

    def _commit(self, jobs: list[Write[Any]], is_done: bool) -> None:
        try:
            if not is_done:
                self._wait_for_locks(self._lock_timeout)
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

    def _perform(self, jobs: list[Write[Any]]) -> None:
        cursor = self._cursor
        cursor.execute("BEGIN IMMEDIATE")
        for job in jobs:
            try:
                job.value = job.run(cursor)
            except Exception as error:
                raise _WorkFailed from error

    def _undo(self) -> None:
        if self._connection.in_transaction:
            self._connection.rollback()

    def _wait_for_locks(self, milliseconds: int) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {milliseconds}").fetchall()
