"""Work that would hold the event loop for long: done in a thread where its input is large, at once where it is not.

Only for work on values that do not change meanwhile. There is one such thread: two would take turns with the
interpreter and be no faster together, and the loop would wait for both. Nothing else waits for it, such as a lookup of
a name.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Value = TypeVar("Value")


async def offloaded(size: int, work: Callable[[], Value]) -> Value:
    """What `work` comes to, or raises; `size` is that of its input, in characters."""
    return work() if size <= LARGE else await aside(work)


def aside(work: Callable[[], Value]) -> "asyncio.Future[Value]":
    """What `work` comes to, done in the thread after what that was given before."""
    return asyncio.get_running_loop().run_in_executor(_THREAD, work)


LARGE: Final = 256 * 1024
"""Characters up to which reading and amending a message takes some milliseconds."""
_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="taskgate-reader")
