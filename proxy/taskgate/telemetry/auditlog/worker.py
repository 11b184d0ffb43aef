"""The thread of one sink: does one errand after another, in their order, and tells the event loop how each ended.

What must not live here: what the errands are.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

_Value = TypeVar("_Value")


class _Job(NamedTuple):
    work: Callable[[], Any]
    future: "asyncio.Future[Any]"


class Worker:
    """One thread, from the first errand until `end`. A daemon, so that a sink that is stuck keeps no process alive."""

    def __init__(self, name: str) -> None:
        self._errands: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=f"taskgate-audit-{name}", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def do(self, work: Callable[[], _Value]) -> "asyncio.Future[_Value]":
        """What `work` returns or raises, done on the thread after everything before it."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._thread.start()
        future: asyncio.Future[_Value] = self._loop.create_future()
        self._errands.put(_Job(work, future))
        return future

    def end(self) -> None:
        """End the thread after what it was given; nothing more may be given. Does not wait for it."""
        self._errands.put(None)

    def _run(self) -> None:
        while (errand := self._errands.get()) is not None:
            try:
                done = partial(_succeed, errand.future, errand.work())
            except BaseException as error:
                done = partial(_fail, errand.future, error)
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


def _succeed(future: "asyncio.Future[Any]", value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
