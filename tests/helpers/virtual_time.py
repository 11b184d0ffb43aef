"""Virtual time: that of a loop stands still while something is ready to run, and then jumps to its next timer.

So no test waits for a timer, none has to shorten one, and a slow machine changes nothing. Servers and hosts of a test
run on the same loop: what one sends is there at the next look. While a thread works, or a program that the test started
runs, time goes by the machine's clock. A test that would fail, since its longest wait is next, waits for a while first.
"""

import asyncio
import os
import queue
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar, TypeVarTuple

from helpers.loop_pace import has_timeout_between

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
_GRACE = 0.001
"""Seconds in which the machine brings what one socket sent to another."""
_LAST_GRACE = 2.0
"""The same before the end of `waiting.bounded`, which no test reaches that passes."""
_LOOK = 0.02
"""Seconds after which a thread that works is looked at again."""
_TURN = 0.00002
"""Seconds that one turn of a loop takes, so that code which never waits reaches its deadline."""
_IDLE = ("asyncio_", "ThreadPoolExecutor", "taskgate-reader", "taskgate-store-", "taskgate-audit-")
"""How the names of threads begin that work only at what `run_in_executor` or a queue gave them."""


@contextmanager
def virtual_time(grace: float = _GRACE) -> Iterator[None]:
    """Have time be virtual in all loops for the length of a block.

    A second or more is jumped over only after so much `grace`: what sockets send takes longer on a busy machine.
    Programs that run already are those of other tests.
    """
    before, _Selector.grace, _Selector.standing = (_Selector.jumps, queue.SimpleQueue), grace, _children()
    _Selector.jumps, queue.SimpleQueue = True, _JobQueue  # type: ignore[misc]
    _JobQueue.unfinished, _JobQueue.ending = set(), set()
    try:
        yield
    finally:
        _Selector.jumps, queue.SimpleQueue = before  # type: ignore[misc]


def is_virtual() -> bool:
    """Whether the running loop has virtual time."""
    return _Selector.jumps and isinstance(asyncio.get_running_loop(), VirtualTimeLoop)


async def pass_time(seconds: float) -> None:
    """Let so much virtual time go by."""
    assert is_virtual()
    await asyncio.sleep(seconds)


def keep_busy(seconds: float) -> None:
    """Have so much time of the running loop go by within its present turn: nothing else runs meanwhile."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.keep_busy(seconds)


async def turns(count: int = 100) -> None:
    """Let what is on the running loop do all that it can without a wait: next to no time goes by meanwhile."""
    for _ in range(count):
        await asyncio.sleep(0)


class _Job:
    """What a queue has, until the thread that took it asks for more."""

    __slots__ = ("work",)

    def __init__(self, work: Any) -> None:
        self.work = work


class _JobQueue(queue.SimpleQueue[Any]):
    """A queue of which is known what is still worked at. None ends the threads that take from it."""

    unfinished: ClassVar[set[_Job]] = set()
    """Jobs of all queues. Threads change it, by methods that none of them interrupts."""
    ending: ClassVar[set[threading.Thread]] = set()
    """Threads that have got None, or soon will."""

    def __init__(self) -> None:
        super().__init__()
        self._taken: dict[threading.Thread, _Job | None] = {}

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        job = None if item is None else _Job(item)
        if job is None:
            self.ending.update(list(self._taken))
        else:
            self.unfinished.add(job)
        super().put(job, block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        thread = threading.current_thread()
        before = self._taken.get(thread)
        self._taken[thread] = None
        if before is not None:
            self.unfinished.discard(before)
        job: _Job | None = super().get(block, timeout)
        if job is None:
            self.ending.add(thread)
            return None
        self._taken[thread] = job
        work, job.work = job.work, None
        return work

    def get_nowait(self) -> Any:
        return self.get(block=False)


class _Selector(selectors.DefaultSelector):
    """What a loop waits with. `jobs` is what executors work at."""

    jumps: ClassVar[bool] = False
    grace: ClassVar[float] = _GRACE
    standing: ClassVar[frozenset[str]] = frozenset()
    """Programs that ran before time was virtual, by id."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = 0
        self._ahead = 0.0
        """Seconds that time is ahead of the machine's clock where it is not virtual."""
        self._now: float | None = None
        """Virtual time; None where it is not."""

    def time(self) -> float:
        """The time of the loop, in seconds."""
        real = time.monotonic()
        if self.jumps and self._now is None:
            self._now = real + self._ahead
        elif not self.jumps and self._now is not None:
            self._ahead, self._now = self._now - real, None
        return real + self._ahead if self._now is None else self._now

    def keep_busy(self, seconds: float) -> None:
        """Have so much time go by."""
        self._now = self.time() + seconds

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        now = self.time() + _TURN
        if not self.jumps:
            return super().select(timeout)
        began = time.monotonic()
        if timeout == 0:
            found = super().select(0)
        elif timeout is not None and not self._is_another_at_work():
            found = super().select(self._grace_before(now, timeout))
            if not found and not self._is_another_at_work():
                now += timeout
        else:
            # A thread that has reported may take another moment to be idle, and does not say so.
            found = super().select(timeout and min(timeout, _LOOK))
            now += time.monotonic() - began
        self._now = now
        return found

    def _grace_before(self, now: float, timeout: float) -> float:
        """The seconds of the machine that what is under way has before time jumps so far."""
        if has_timeout_between(now, now + timeout):
            return _LAST_GRACE
        return min(timeout, _GRACE if timeout < 1 else self.grace)

    def _is_another_at_work(self) -> bool:
        is_busy = self.jobs > 0 or len(_JobQueue.unfinished) > 0 or any(map(_is_at_work, threading.enumerate()))
        return is_busy or not _children() <= self.standing


def _is_at_work(thread: threading.Thread) -> bool:
    is_idle = thread.name.startswith(_IDLE) and thread not in _JobQueue.ending
    return not is_idle and thread is not threading.current_thread()


def _children() -> frozenset[str]:
    """The programs that run, or have ended and are not waited for yet, by id."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return frozenset()
    found: set[str] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found.update((thread / "children").read_text().split())
    return frozenset(found)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop of all tests but those on uvloop. Outside `virtual_time` it is as any other."""

    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        return self._waits.time()

    def keep_busy(self, seconds: float) -> None:
        """Have so much virtual time go by in one turn."""
        self._waits.keep_busy(seconds)

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
