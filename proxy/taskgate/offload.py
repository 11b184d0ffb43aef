"""Work that would hold the event loop for long: done in a thread where its input is large, at once where it is not.

Only for work on values that do not change meanwhile.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

Value = TypeVar("Value")


async def offloaded(size: int, work: Callable[[], Value]) -> Value:
    """What `work` comes to, or raises; `size` is that of its input, in characters."""
    return work() if size <= LARGE else await asyncio.to_thread(work)


LARGE: Final = 256 * 1024
"""Characters up to which reading and amending a message takes some milliseconds."""
