"""Single flight: `SingleFlight` runs some work once for all who wait for its result.

Used for handshakes, tool lists and pings, so that concurrent calls share one request. The first
`get` starts the work, and others wait for the same. A result stays until `forget`, and a failure is
raised for those who wait and not stored. `renew` runs the work again while the result is used. `close`
stops the work.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, Generic, TypeVar

from taskgate.system.background import cancel_and_wait

Value = TypeVar("Value")


class Abandoned(Exception):
    """The work was stopped by `close` before it had a result."""


class SingleFlight(Generic[Value]):
    """The result of `make`, made on first use and stored until `forget`; a failure is not stored.

    The work runs in a task of its own: a waiter that is cancelled stops no other. It runs in an
    empty context, because it is done for all waiters and not for the first.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Value]]) -> None:
        self._make = make
        self._current: asyncio.Future[Value] | None = None
        self._running: set[asyncio.Task[Value]] = set()
        self.value: Value | None = None
        """The result if it exists, set before any waiter gets it."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no result and none is being made."""
        return self._current is None

    async def get(self) -> Value:
        """Return the result. Raises what `make` raises, or Abandoned."""
        task = self._current or self._start()
        try:
            if not task.done():
                await asyncio.wait((task,))
            if task.cancelled():
                raise Abandoned
            return task.result()
        finally:
            del task

    def put(self, value: Value) -> None:
        """Set a result that was made elsewhere; only allowed if `is_empty`."""
        assert self._current is None, "a present value is not replaced"
        self._current = asyncio.get_running_loop().create_future()
        self._current.set_result(value)
        self.value = value

    def forget(self) -> None:
        """Drop the result, so that the next `get` makes a new one.

        Work that runs goes on: those who wait for it get its result.
        """
        self._current = self.value = None

    def renew(self) -> "asyncio.Task[Value]":
        """Make a new result in the background, and return the task that does. The present one is used until
        then, and after a failure."""
        before = self._current
        task = asyncio.get_running_loop().create_task(self._make(), context=Context())
        self._running.add(task)
        task.add_done_callback(partial(self._renewed, before))
        return task

    async def close(self) -> None:
        """Stop the work that runs; its waiters get Abandoned."""
        self.forget()
        await cancel_and_wait(*self._running)

    def _start(self) -> "asyncio.Task[Value]":
        task = self._current = asyncio.get_running_loop().create_task(self._made(), context=Context())
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def _made(self) -> Value:
        value = await self._make()
        # Set before the task ends: a close at that moment must find the value.
        if self._current is asyncio.current_task():
            self.value = value
        return value

    def _renewed(self, before: asyncio.Future[Value] | None, task: "asyncio.Task[Value]") -> None:
        """Replace the result `before`, unless it was dropped meanwhile."""
        self._running.discard(task)
        # Retrieving the exception marks it as seen.
        if not task.cancelled() and task.exception() is None and self._current is before:
            self._current, self.value = task, task.result()

    def _ended(self, task: asyncio.Task[Value]) -> None:
        """Forget work that failed, so that the next `get` starts anew."""
        self._running.discard(task)
        # Retrieving the exception marks it as seen, even if there is no waiter any more.
        failed = task.cancelled() or task.exception() is not None
        if failed and self._current is task:
            self._current = None
