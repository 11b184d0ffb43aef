"""Reading the file: at once on the event loop what is small, on one thread what may be long or turns out to be.

Knows connections and threads and nothing of what is read. Whatever goes wrong leaves as StoreUnavailable.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, Final, TypeVar

from taskgate.errors import StoreUnavailable
from taskgate.stores.sqlite.faults import unavailable

_FEW_STEPS: Final = 20_000
"""Instructions of SQLite's machine that the loop may be kept from other work for: about a millisecond."""

_STEPS: Final = 1_000

UNREADABLE: Final = "The store could not read"

_Value = TypeVar("_Value")
_Row = tuple[Any, ...]

Query = Callable[[sqlite3.Connection], _Value]
"""One reading statement and what is made of its rows."""


class SqliteReader:
    """Two connections that only read. Owns them from here on and closes them."""

    def __init__(self, near: sqlite3.Connection, far: sqlite3.Connection) -> None:
        self._near = near
        self._far = far
        # One thread: a connection serves one statement at a time.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="taskgate-store-reader")
        self._closed = False

    def row(self, statement: str, values: _Row) -> _Row | None:
        """The only row of a statement that finds it by an index. Blocks the loop for as long as that takes."""
        self._check()
        try:
            # All of it, so that the statement ends and no snapshot is held.
            rows = self._near.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise unavailable(UNREADABLE, error) from error
        return rows[0] if rows else None

    async def glance(self, look: Query[_Value]) -> _Value:
        """What `look` makes of a connection: on the loop if that takes few steps, else again on the reading thread."""
        self._check()
        steps = count(1)
        self._near.set_progress_handler(lambda: next(steps) > _FEW_STEPS // _STEPS, _STEPS)
        try:
            return look(self._near)
        except (sqlite3.Error, ValueError):
            # Given up, or waiting for a lock: the thread has the time, and meets again what is really wrong.
            pass
        finally:
            self._near.set_progress_handler(None, 0)
        return await self.look(look)

    async def look(self, look: Query[_Value]) -> _Value:
        """What `look` makes of a connection, on the reading thread."""
        self._check()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, look, self._far)
        except (sqlite3.Error, ValueError) as error:
            raise unavailable(UNREADABLE, error) from error

    async def close(self) -> None:
        """Finish the reads that have begun, close both connections and end the thread."""
        self._closed = True
        self._near.close()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._far.close)
        self._thread.shutdown()

    def _check(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed")
