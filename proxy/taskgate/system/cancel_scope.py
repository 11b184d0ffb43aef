"""A block of a task that another task may cancel, such as a request whose host leaves:
`CancelScope`.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self


class ScopeCancelled(Exception):
    """The block was cancelled from outside, and has ended."""


class CancelScope:
    """A `with` block: `cancel()` cancels what it awaits, and the block raises ScopeCancelled.

    Unlike `Task.cancel`, it ends this block only. A cancellation of the task itself passes through.
    To cancel a block that has ended, or was cancelled before, does nothing.
    """

    drop_timer: Callable[[], object] | None = None
    """Cancels the timer that would cancel the block, if it has one. Called at the end of the block.
    """
    # The values before the block: a scope is made for every request, and needs no more than these.
    _task: asyncio.Task[object] | None = None
    _cancelling = 0
    _is_cancelled = False

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None, "a cancel scope needs a task"
        self._cancelling = self._task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task is not None
        if self.drop_timer is not None:
            self.drop_timer()
            self.drop_timer = None
        # As in asyncio.timeout: if the task itself was cancelled too, the CancelledError passes.
        if self._is_cancelled and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise ScopeCancelled from None

    def cancel(self) -> None:
        """Cancel the block."""
        # Not at once: a block that cancels itself may end before it awaits anything again.
        if self._task is not None:
            asyncio.get_running_loop().call_soon(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._task is not None and not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel()
