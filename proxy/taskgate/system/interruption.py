"""Work that somebody else may interrupt: a host that cancels its request, or leaves."""

import asyncio
from types import TracebackType
from typing import Self


class Interrupted(Exception):
    """The work was given up from outside; it has been cancelled and is over."""


class Interruptible:
    """A block of work: `interrupt()` from anywhere cancels what it awaits, and the block raises Interrupted.

    Unlike cancelling the task, it ends this block and nothing around it; a cancellation of the task itself passes. To
    interrupt a block that is over, or was interrupted before, does nothing.
    """

    __slots__ = ("_before", "_interrupted", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._before = 0
        self._interrupted = False

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None, "only a task can be interrupted"
        self._before = self._task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task is not None
        # As in asyncio.timeout: a cancellation that is not ours alone is the task's own, and goes on.
        if self._interrupted and task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise Interrupted from None

    def interrupt(self) -> None:
        """Give the work up."""
        # Not at once: a block that interrupts itself may be over before it waits for anything again.
        if self._task is not None:
            asyncio.get_running_loop().call_soon(self._strike)

    def _strike(self) -> None:
        if self._task is not None and not self._interrupted:
            self._interrupted = True
            self._task.cancel()
