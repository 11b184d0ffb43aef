"""Work that would block the event loop: `offload` runs it in a thread if its input is large.

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


LARGE: Final = 256 * 1024
"""Characters up to which parsing or changing a message takes a few milliseconds."""
COPIED: Final = 4 * 2**20
"""Characters up to which copying a message does: less than a thread costs."""
_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="taskgate-reader")
"""The thread for work with large inputs."""
