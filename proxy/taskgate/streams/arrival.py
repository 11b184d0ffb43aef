"""The wait of one task for what arrives, over and over: `Arrival`."""

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any

from taskgate.system.current_task import current_task


def _nothing() -> None:
    """Continue no task, because none waits."""


@dataclass(slots=True, eq=False)
class Arrival:
    """The wait of a connection's task for its next request, over and over.

    A task can wait for any object that has these attributes of a future (`asyncio.isfuture`). A
    future for each request would cost a turn of the event loop too.

    - `wake_up` continues the task at once, if it waits. Not to be called within a task.
    - `_done` is any future that has a result: the task takes it as the end of its wait.
    """

    _loop: asyncio.AbstractEventLoop
    _done: asyncio.Future[None]
    wake_up: Callable[[], object] = _nothing
    _callback: Callable[[asyncio.Future[None]], object] | None = None
    _context: Context | None = None
    _asyncio_future_blocking: bool = False

    def notify(self) -> None:
        """Continue the task, if it waits."""
        if current_task(self._loop) is None:
            self.wake_up()
        else:
            # A task cannot continue within another one.
            self._loop.call_soon(self.notify)

    def __await__(self) -> Generator["Arrival", None, None]:
        self._asyncio_future_blocking = True
        try:
            yield self
        finally:
            self.wake_up = _nothing

    # What the task calls. Its loop it reads from `_loop`.

    def add_done_callback(self, callback: Callable[[asyncio.Future[None]], object], *, context: Context) -> None:
        self._callback, self._context = callback, context
        self.wake_up = partial(context.run, callback, self._done)

    def cancel(self, msg: Any = None) -> bool:
        if self.wake_up is _nothing or self._callback is None:
            return False
        self.wake_up = _nothing
        cancelled: asyncio.Future[None] = self._loop.create_future()
        cancelled.cancel(msg)
        self._loop.call_soon(self._callback, cancelled, context=self._context)
        return True
