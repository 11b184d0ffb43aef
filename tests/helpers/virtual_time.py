"""Virtual time: where nothing is ready to run, the time of a loop jumps to its next timer.

So no test waits for a timer, and none has to shorten one. Servers and hosts of a test run on the same loop: what one
sends is there at the next look. While a thread works, the loop waits by the machine's clock.
"""

import asyncio
import selectors
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import ClassVar, TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
_GRACE = 0.001
"""Seconds in which the machine brings what one socket sent to another."""
_IDLE = ("asyncio_", "ThreadPoolExecutor", "taskgate-reader")
"""How the names of threads begin that work only at what `run_in_executor` was given."""


@contextmanager
def virtual_time() -> Iterator[None]:
    """Have time be virtual in all loops for the length of a block."""
    before, _Selector.jumps = _Selector.jumps, True
    try:
        yield
    finally:
        _Selector.jumps = before


class _Selector(selectors.DefaultSelector):
    """What a loop waits with. `ahead` is how many seconds it jumped; `jobs` is what executors work at."""

    jumps: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0
        self.jobs = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self.jumps or timeout is None or timeout <= 0 or self._is_another_at_work():
            return super().select(timeout)
        found = super().select(min(timeout, _GRACE))
        if not found and not self._is_another_at_work():
            self.ahead += timeout
        return found

    def _is_another_at_work(self) -> bool:
        return self.jobs > 0 or any(
            each is not threading.current_thread() and not each.name.startswith(_IDLE) for each in threading.enumerate()
        )


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop of all tests but those on uvloop. Outside `virtual_time` it is as any other."""

    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        return super().time() + self._waits.ahead

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Arguments], T], *args: *Arguments
    ) -> "asyncio.Future[T]":
        job = super().run_in_executor(executor, func, *args)
        self._waits.jobs += 1
        job.add_done_callback(self._has_ended)
        return job

    def _has_ended(self, _: object) -> None:
        self._waits.jobs -= 1


class VirtualTimePolicy(asyncio.DefaultEventLoopPolicy):
    """Makes such loops."""

    def new_event_loop(self) -> VirtualTimeLoop:
        return VirtualTimeLoop()
