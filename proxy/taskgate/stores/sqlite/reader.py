"""The reads of a SQLite file: `SqliteReader` runs small ones on the event loop and long ones on one
thread.

It knows connections and threads, and nothing about records. Every failure is raised as
StoreUnavailable.
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
"""Instructions of SQLite's virtual machine that a read may take on the loop: about a millisecond."""

_STEPS: Final = 1_000

UNREADABLE: Final = "The store could not read"

_Value = TypeVar("_Value")
_Row = tuple[Any, ...]

Query = Callable[[sqlite3.Connection], _Value]
"""A read on a connection that decodes its rows."""


class SqliteReader:
    """Two read-only connections, which it owns and closes.

    `near` is for the event loop (`row`, `glance`), `far` for the reading thread (`look`).
    """

    def __init__(self, near: sqlite3.Connection, far: sqlite3.Connection) -> None:
        self._near = near
        self._far = far
        # One thread: a connection serves one statement at a time.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="taskgate-store-reader")
        self._closed = False

    def row(self, statement: str, values: _Row) -> _Row | None:
        """The only row of a statement that uses an index; None if there is none.

        Blocks the loop.
        """
        if self._closed:
            raise StoreUnavailable("The store is closed")
        try:
            # Fetch all, so that the statement ends and holds no snapshot.
            rows = self._near.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise unavailable(UNREADABLE, error) from error
        return rows[0] if rows else None

    async def glance(self, query: Query[_Value]) -> _Value:
        """Run a query on the loop; if it takes too many steps, run it again on the reading thread."""
        self._check()
        steps = count(1)
        self._near.set_progress_handler(lambda: next(steps) > _FEW_STEPS // _STEPS, _STEPS)
        try:
            return query(self._near)
        except (sqlite3.Error, ValueError):
            # Too long, or a lock: the thread has the time. A real fault occurs there again.
            pass
        finally:
            self._near.set_progress_handler(None, 0)
        return await self.look(query)

    async def look(self, query: Query[_Value]) -> _Value:
        """Run a query on the reading thread."""
        self._check()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, query, self._far)
        except (sqlite3.Error, ValueError) as error:
            raise unavailable(UNREADABLE, error) from error

    async def close(self) -> None:
        """Finish running reads, close both connections and end the thread."""
        self._closed = True
        self._near.close()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._far.close)
        self._thread.shutdown()

    def _check(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed")
