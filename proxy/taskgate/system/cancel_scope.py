"""A block of a task that another task may cancel, such as a request whose host leaves:
`CancelScope`.
"""

import asyncio
from types import TracebackType
from typing import Final, Self

from taskgate.system.current_task import current_task
from taskgate.system.timer_wheel import TimerWheel

END_WITHIN: Final = 0.1
"""The seconds that `end` waits, at most."""


class ScopeCancelled(Exception):
    """The block was cancelled from outside, and has ended."""


class CancelScope:
    """A `with` block: `cancel()` cancels what it awaits, and the block raises ScopeCancelled.

    Unlike `Task.cancel`, it ends this block only. A cancellation of the task itself passes through.
    To cancel a block that has ended, or was cancelled before, does nothing.
    """

    __slots__ = ("_alarms", "_cancelling", "_exit", "_is_cancelled", "_loop", "_task")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        # The timers, if one of them is that of the block. It is stopped at the end of the block.
        self._alarms: TimerWheel | None = None
        # The running loop, if it is at hand: to ask for it is a system call in Python 3.11.
        self._loop = loop
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._is_cancelled = False
        self._exit: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        self._task = task = current_task(self._loop or asyncio.get_running_loop())
        assert task is not None, "a cancel scope needs a task"
        self._cancelling = task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task is not None
        if self._alarms is not None:
            self._alarms.stop(self)
            self._alarms = None
        if self._exit is not None:
            self._exit.set_result(None)
            self._exit = None
        # As in asyncio.timeout: if the task itself was cancelled too, the CancelledError passes.
        is_ours = self._is_cancelled and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError
        # The task may end with the error, which refers to this frame.
        del task
        if is_ours:
            raise ScopeCancelled from None

    def cancel(self) -> None:
        """Cancel the block."""
        # Not at once: a block that cancels itself may end before it awaits anything again.
        if self._task is not None:
            asyncio.get_running_loop().call_soon(self._cancel_task)

    def on_alarm(self) -> None:
        """Handle that the time of the block is up."""
        self.cancel()

    async def end(self) -> None:
        """Cancel the block, and wait until it has ended, at most END_WITHIN seconds.

        For a cancellation that is answered: the next request of its host then finds what the end of
        the block has done.
        """
        self.cancel()
        if self._task is None or self._task is asyncio.current_task():
            return
        if self._exit is None:
            self._exit = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._exit,), timeout=END_WITHIN)

    def _cancel_task(self) -> None:
        if self._task is not None and not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel()
