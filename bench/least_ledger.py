"""The least gateway's task table: SQLite in WAL mode, every commit synced, one writer thread whose commits are shared.

A write is durable when its future is done; writes that arrive during a commit go into the next one together. Reads are
one select on the event loop's own connection. No rule about tasks lives here.
"""

import asyncio
import queue
import sqlite3
import threading
from pathlib import Path

_SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS task (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, status TEXT NOT NULL, created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL, ttl INTEGER NOT NULL, params BLOB NOT NULL, result BLOB
);
"""
_INSERT = "INSERT INTO task (id, status, created_at, updated_at, ttl, params) VALUES (?, 'working', ?, ?, ?, ?)"
_FINISH = "UPDATE task SET status = ?, updated_at = ?, result = ? WHERE id = ?"
_FIND = "SELECT id, status, created_at, updated_at, ttl FROM task WHERE id = ?"
_RESULT = "SELECT result FROM task WHERE id = ?"

Row = tuple[str, str, str, str, int]
_Write = tuple[str, tuple[object, ...], "asyncio.Future[None]"]


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.executescript(_SCHEMA)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _settle(waiting: "list[asyncio.Future[None]]") -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)


class Ledger:
    """Tasks at rest in one file."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._reader = _connect(path)
        self._loop = loop
        self._writes: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, args=(_connect(path),), name="ledger")
        self._writer.start()

    def close(self) -> None:
        """Commit what is queued and end the writer."""
        self._writes.put(None)
        self._writer.join()
        self._reader.close()

    def insert(self, *row: object) -> "asyncio.Future[None]":
        """Add a working task (id, created at, updated at, ttl, params); the future is done when it is committed."""
        return self._queue(_INSERT, row)

    def finish(self, *row: object) -> "asyncio.Future[None]":
        """Store an end (status, updated at, result, id); the future is done when it is committed."""
        return self._queue(_FINISH, row)

    def _queue(self, statement: str, row: tuple[object, ...]) -> "asyncio.Future[None]":
        committed: asyncio.Future[None] = self._loop.create_future()
        self._writes.put((statement, row, committed))
        return committed

    def find(self, task_id: str) -> Row | None:
        """The head of a task."""
        row: Row | None = self._reader.execute(_FIND, (task_id,)).fetchone()
        return row

    def result(self, task_id: str) -> bytes | None:
        """The stored result of a task that has one."""
        row = self._reader.execute(_RESULT, (task_id,)).fetchone()
        return row[0] if row else None

    def _write(self, connection: sqlite3.Connection) -> None:
        write = self._writes.get()
        while write is not None:
            waiting: list[asyncio.Future[None]] = []
            connection.execute("BEGIN IMMEDIATE")
            while write is not None:
                statement, row, committed = write
                connection.execute(statement, row)
                waiting.append(committed)
                if self._writes.empty():
                    break
                write = self._writes.get()
            connection.execute("COMMIT")
            self._loop.call_soon_threadsafe(_settle, waiting)
            if write is not None:
                write = self._writes.get()
        connection.close()
