"""The task that an event loop runs now: `current_task`, without a frame of Python."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

current_task: Callable[[asyncio.AbstractEventLoop], asyncio.Task[Any] | None]
if sys.version_info >= (3, 12):
    current_task = asyncio.current_task
else:
    # There asyncio's own function is Python, and this dict is all that it reads.
    current_task = asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]
