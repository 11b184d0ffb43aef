"""One run of some work that many wait for. Knows nothing of servers."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Abandoned(Exception):
    """The work was stopped before it came to anything."""


class SingleFlight(Generic[Value]):
    """What `make` comes to, made when first asked for and kept until it is forgotten; a failure is not kept.

    The work runs in a task of its own: whoever stops waiting for it stops nobody else. Nothing that is ambient where it
    is asked for first is ambient in it, for it is done for all of them.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Value]]) -> None:
        self._make = make
        self._current: asyncio.Future[Value] | None = None
        self._running: set[asyncio.Task[Value]] = set()
        self.value: Value | None = None
        """What is there without waiting: before whoever waits for it gets it."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is there, nor being made."""
        return self._current is None

    async def get(self) -> Value:
        """The value. Raises what `make` raises, or Abandoned."""
        task = self._current
        if task is None:
            task = self._current = making = asyncio.get_running_loop().create_task(self._made(), context=Context())
            self._running.add(making)
            making.add_done_callback(self._ended)
        if not task.done():
            await asyncio.wait((task,))
        if task.cancelled():
            raise Abandoned
        return task.result()

    def put(self, value: Value) -> None:
        """Have that from now on, which came about in another way; nothing may be there, nor being made."""
        assert self._current is None, "a present value is not replaced"
        self._current = asyncio.get_running_loop().create_future()
        self._current.set_result(value)
        self.value = value

    def forget(self) -> None:
        """Make it anew for whoever asks next; who waits now still gets the old one."""
        self._current = self.value = None

    async def close(self) -> None:
        """Stop what is being made; who waits for it gets Abandoned."""
        self.forget()
        running = tuple(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _made(self) -> Value:
        value = await self._make()
        # Before the task has ended: who closes in that moment has to find it.
        if self._current is asyncio.current_task():
            self.value = value
        return value

    def _ended(self, task: asyncio.Task[Value]) -> None:
        self._running.discard(task)
        # To look at the failure is to take note of it, even where nobody waits any more.
        failed = task.cancelled() or task.exception() is not None
        if failed and self._current is task:
            self._current = None
