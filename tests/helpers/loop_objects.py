"""What code makes of the event loop, tasks, futures and timers, while a function of the package runs."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import currentframe
from pathlib import Path
from typing import Any

MAKERS = {"task": "create_task", "future": "create_future", "timer": "call_at"}


@contextmanager
def counted_loop_objects(folder: Path) -> Iterator["Counter[str]"]:
    """Count for the length of a block what the running loop makes while a function of that folder runs."""
    loop, made = asyncio.get_running_loop(), Counter[str]()

    def counting(kind: str, make: Callable[..., Any]) -> Callable[..., Any]:
        def made_and_counted(*args: Any, **kwargs: Any) -> Any:
            if _is_asked_for_by(folder):
                made[kind] += 1
            return make(*args, **kwargs)

        return made_and_counted

    for kind, name in MAKERS.items():
        setattr(loop, name, counting(kind, getattr(loop, name)))
    try:
        yield made
    finally:
        for name in MAKERS.values():
            delattr(loop, name)


def _is_asked_for_by(folder: Path) -> bool:
    frame = currentframe()
    while frame is not None:
        if frame.f_code.co_filename.startswith(f"{folder}/"):
            return True
        frame = frame.f_back
    return False
