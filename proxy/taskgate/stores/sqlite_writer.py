"""One thread that writes, and commits that are shared.

Work that is handed in while a commit runs goes into the next one together. A future is done only after the commit
that holds its work. Knows transactions and nothing of what is written.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from taskgate.errors import StoreUnavailable, TooManyTasks

_Value = TypeVar("_Value")

Work = Callable[[sqlite3.Cursor], _Value]
"""Statements of one verb, run inside a transaction; may run twice, the first time undone. TooManyTasks comes first."""

_LARGEST_BATCH: Final = 512
"""How many works share a commit at most: bounds how long the loop is busy with their ends."""


@dataclass(slots=True)
class _Errand:
    work: Work[Any]
    tell: Callable[[Any], None] | None
    future: "asyncio.Future[Any]"
    value: Any = None
    error: Exception | None = field(default=None)


class _Spoiled(Exception):
    """A work failed halfway, and with it the transaction that holds others too."""


class Writer:
    """Takes work on the event loop, does it on its own thread. Owns the connection from here on and closes it."""

    def __init__(self, connection: sqlite3.Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._loop = loop
        self._waiting: list[_Errand] = []
        self._is_busy = False
        self._closed = False
        self._ended: asyncio.Future[None] = loop.create_future()
        self._batches: queue.SimpleQueue[list[_Errand] | None] = queue.SimpleQueue()
        # A daemon, so that a process that dies without closing its store does not hang: commits are whole anyway.
        self._thread = threading.Thread(target=self._run, name="taskgate-store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work[_Value], tell: Callable[[_Value], None] | None = None) -> "asyncio.Future[_Value]":
        """Have work done and committed. `tell` is called on the loop with its value, also if nobody waits any more.

        The future raises StoreUnavailable, or TooManyTasks where the work did.
        """
        if self._closed:
            raise StoreUnavailable("The store is closed")
        future: asyncio.Future[_Value] = self._loop.create_future()
        self._waiting.append(_Errand(work, tell, future))
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
        batch = self._waiting[:_LARGEST_BATCH]
        del self._waiting[:_LARGEST_BATCH]
        self._batches.put(batch)

    def _settle(self, batch: list[_Errand]) -> None:
        if self._waiting:
            self._send()
        elif self._closed:
            self._batches.put(None)
        else:
            self._is_busy = False
        for errand in batch:
            _end(errand)

    # --- on the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            self._write(batch)
            self._loop.call_soon_threadsafe(self._settle, batch)
        self._connection.close()
        self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _write(self, batch: list[_Errand]) -> None:
        try:
            self._commit(batch)
        except _Spoiled:
            # Rare, so it may be slow: each by itself, and only the one that fails has failed.
            for errand in batch:
                self._write_alone(errand)
        except Exception as error:
            for errand in batch:
                errand.error = _unavailable(error)

    def _write_alone(self, errand: _Errand) -> None:
        try:
            self._commit([errand])
        except _Spoiled as spoiled:
            errand.error = _unavailable(spoiled.__cause__)
        except Exception as error:
            errand.error = _unavailable(error)

    def _commit(self, batch: list[_Errand]) -> None:
        cursor = self._cursor
        try:
            cursor.execute("BEGIN IMMEDIATE")
            for errand in batch:
                _perform(errand, cursor)
            cursor.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise


def _perform(errand: _Errand, cursor: sqlite3.Cursor) -> None:
    errand.error = None
    try:
        errand.value = errand.work(cursor)
    except TooManyTasks as refusal:
        errand.error = refusal
    except Exception as error:
        raise _Spoiled from error


def _end(errand: _Errand) -> None:
    future, error = errand.future, errand.error
    if error is None and errand.tell is not None:
        errand.tell(errand.value)
    if future.done():
        return
    if error is None:
        future.set_result(errand.value)
    else:
        future.set_exception(error)


def _unavailable(cause: BaseException | None) -> StoreUnavailable:
    error = StoreUnavailable("The store could not write")
    error.__cause__ = cause
    return error
