"""Work that would block the event loop: `offload` runs it in a thread if its input is large, and
`Turns` divides the thread among callers.

The work must use values that do not change meanwhile. There is one thread: two would compete for
the interpreter lock, and delay the loop more. No other work runs in it, such as the resolution of
host names.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Value = TypeVar("Value")


async def offload(size: int, work: Callable[[], Value]) -> Value:
    """The result of `work`, or its error; `size` is the length of its input in characters."""
    return work() if size <= LARGE else await in_thread(work)


def in_thread(work: Callable[[], Value]) -> "asyncio.Future[Value]":
    """Run `work` in the thread, after all work that was submitted before."""
    return asyncio.get_running_loop().run_in_executor(_THREAD, work)


class _Turn:
    """The turn of one caller, and how much work has it or waits for it."""

    __slots__ = ("lock", "works")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.works = 0


class Turns:
    """The turns of callers in the thread, which has one work of each at a time.

    So a caller with much work waits behind its own, and any other behind one work of each. A caller
    without work takes no memory.
    """

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    async def run(self, caller: str, work: Callable[[], Value]) -> Value:
        """Run `work` in the thread, after the earlier work of the caller. Raises what it raises."""
        turn = self._turns.get(caller) or self._turns.setdefault(caller, _Turn())
        turn.works += 1
        try:
            async with turn.lock:
                return await in_thread(work)
        finally:
            turn.works -= 1
            if not turn.works:
                del self._turns[caller]


LARGE: Final = 256 * 1024
"""Characters up to which parsing or changing a message takes a few milliseconds."""
COPIED: Final = 4 * 2**20
"""Characters up to which copying a message does: less than a thread costs."""
_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="taskgate-reader")
"""The thread for work with large inputs."""
