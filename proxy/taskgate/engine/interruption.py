"""Work that somebody else may interrupt: a host that cancels its request, or leaves."""

import asyncio
from types import TracebackType
from typing import Self


class Interrupted(Exception):
    """The work was given up from outside; it has been cancelled and is over."""


class Interruptible:
    """A block of work: `interrupt()` from anywhere cancels what it awaits, and the block raises Interrupted.

    Unlike cancelling the task, it ends this block and nothing around it. To interrupt a block that is over, or was
    interrupted before, does nothing.
    """

    def __init__(self) -> None:
        # The loop's own tool for turning a cancellation into an exception of one block, without a deadline.
        self._scope = asyncio.timeout(None)
        self._inside = False

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        self._inside = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside = False
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError:
            raise Interrupted from None

    def interrupt(self) -> None:
        """Give the work up."""
        if self._inside:
            self._inside = False
            self._scope.reschedule(asyncio.get_running_loop().time())
