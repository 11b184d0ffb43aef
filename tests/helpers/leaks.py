"""A test leaves nothing behind: two fixtures that every test gets, each comparing what was there before with what is.

What a fixture of wider scope holds was there before. What is only on its way out (a task being cancelled, a transport
being closed) gets a moment. Warnings of what the interpreter itself notices are errors by pytest's own configuration.
"""

import asyncio
import gc
import os
import subprocess
import threading
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop

from helpers.published import READER

_MOMENT = 1.0
_LOOPS_OWN_THREADS = ("asyncio_", "uvloop_", "AnyIO", "waitpid-", "taskgate-reader")
_QUICK = (Path(__file__).parent.parent / "unit", Path(__file__).parent.parent / "contract")
_programs: "Counter[str]" = Counter()
_open_sessions: "weakref.WeakSet[aiohttp.ClientSession]" = weakref.WeakSet()


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test after which a child process, a thread or an aiohttp client session is still there."""
    children, threads, sessions, started = _children(), set(threading.enumerate()), _sessions(), _programs["started"]
    if request.node.get_closest_marker("asyncio") is not None:
        request.getfixturevalue("no_task_left_behind")
    yield
    if _programs["started"] > started and _is_quick(request.node):
        pytest.fail("starts a program, and is not marked `program`, by which `make unit` leaves it out", pytrace=False)
    left = [f"process {pid}" for pid in _children() - children]
    left += [f"open {session!r}" for session in _sessions() - sessions]
    left += [f"thread {thread.name}" for thread in set(threading.enumerate()) - threads if _outlives(thread)]
    _expect_nothing(left)


@pytest.fixture
async def no_task_left_behind(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Fail a test after which its loop has a task or a connection still, or has met an exception nobody caught."""
    loop = asyncio.get_running_loop()
    uncaught: list[str] = []
    loop.set_exception_handler(lambda _, context: uncaught.append(f"uncaught {context!r}"))
    # What tests share on a loop of theirs may be connected to at any moment, a server for example.
    connections = _no_connections if _shares_a_loop(request.node) else _connections
    tasks, opened = asyncio.all_tasks(), connections()
    yield

    def left() -> list[str]:
        running = asyncio.all_tasks() - tasks - {asyncio.current_task()}
        now = connections()
        # At each run uvloop makes another pair of sockets for signals, in place of the last.
        renewed = len(opened - now) if isinstance(loop, uvloop.Loop) else 0
        return [f"running {task!r}" for task in running] + [f"open {each}" for each in sorted(now - opened)[renewed:]]

    end = time.monotonic() + _MOMENT
    while left() and time.monotonic() < end:
        await asyncio.sleep(0)
    # Young garbage only: enough for what the test dropped in a cycle, and cheap.
    gc.collect(1)
    if open_ones := left():
        transports = (each for each in gc.get_objects() if isinstance(each, asyncio.BaseTransport))
        open_ones += [f"perhaps {each!r}" for each in transports if not each.is_closing()]
    _expect_nothing(open_ones + uncaught)


def _expect_nothing(left: list[str]) -> None:
    if left:
        pytest.fail("left behind: " + "; ".join(left), pytrace=False)


def _is_quick(test: pytest.Item) -> bool:
    """Whether a test is one of those that `make unit` runs."""
    return test.get_closest_marker("program") is None and any(test.path.is_relative_to(folder) for folder in _QUICK)


def _children() -> set[int]:
    """The children of this process, dead ones that nobody waited for included; none where there is no /proc."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (ChildProcessError, AttributeError):
        return set()
    try:
        threads = os.listdir("/proc/self/task")
        return {int(pid) for thread in threads for pid in _children_of(thread)}
    except FileNotFoundError:
        return {int(place.name) for place in Path("/proc").glob("[0-9]*") if _parent(place) == os.getpid()}


def _children_of(thread: str) -> list[bytes]:
    """The children that a thread started. The file is there where the kernel has CONFIG_PROC_CHILDREN."""
    try:
        with open(f"/proc/self/task/{thread}/children", "rb") as children:
            return children.read().split()
    except FileNotFoundError:
        if not os.path.exists(f"/proc/self/task/{thread}"):
            return []  # the thread has ended since it was listed
        raise


def _parent(place: Path) -> int | None:
    try:
        # The command's name may hold anything; what follows its last bracket is state and parent.
        return int((place / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return None


def _sessions() -> set[aiohttp.ClientSession]:
    return {session for session in _open_sessions if not session.closed}


def _outlives(thread: threading.Thread) -> bool:
    if thread.name.startswith(_LOOPS_OWN_THREADS):
        return False
    thread.join(_MOMENT)
    return thread.is_alive()


def _shares_a_loop(test: pytest.Item) -> bool:
    marker = test.get_closest_marker("asyncio")
    return marker is not None and marker.kwargs.get("loop_scope", "function") != "function"


def _no_connections() -> set[str]:
    return set()


def _connections() -> set[str]:
    """The sockets and pipes of this process, and what it watches others with; none where there is no /proc."""
    found = set()
    for place in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):
            target = os.readlink(place)
            if target.startswith(("socket:", "pipe:", "anon_inode:")):
                found.add(f"{place.name} {target}")
    return found


def _count_programs() -> None:
    begun = subprocess.Popen.__init__

    @wraps(begun)
    def counted(self: "subprocess.Popen[Any]", *args: Any, **kwargs: Any) -> None:
        # Each process reads the published schemas once, for whichever test comes first.
        command = args[0] if args else ()
        _programs["started"] += not (isinstance(command, tuple) and READER in command)
        begun(self, *args, **kwargs)

    subprocess.Popen.__init__ = counted  # type: ignore[method-assign]


def _remember_sessions() -> None:
    opened = aiohttp.ClientSession.__init__

    @wraps(opened)
    def remembered(self: aiohttp.ClientSession, *args: Any, **kwargs: Any) -> None:
        opened(self, *args, **kwargs)
        _open_sessions.add(self)

    aiohttp.ClientSession.__init__ = remembered  # type: ignore[method-assign]


_remember_sessions()
_count_programs()
