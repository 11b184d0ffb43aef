"""The system calls of one request by what they do, counted by strace.

    python -m bench.system_calls

Each request is sent alone, over one connection that is kept. What is counted goes on until the next one is sent, so
the line of the audit log is in it. Of each kind of call the least of several requests is taken: what timers do besides
is in some of them. The gateway has to run on uvloop: the loop of asyncio is woken through a pair of sockets.
"""

import re
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from bench import host, targets, usual
from bench.budgets import SystemCalls

WARM: Final = 5
COUNTED: Final = 12
STRACE: Final = ["strace", "-D", "-f", "-q", "-y", "-ttt", "-o"]
_CALL: Final = re.compile(r"\d+ +([\d.]+) (\w+)\((?:\d+<([^>]*))?")
_TIMER: Final = re.compile(r"epoll_p?wait\(.*, [1-9]\d*(?:, NULL, \d+)?\) += 0$")
"""A poll that ended because a timer was due."""
_READS: Final = frozenset({"read", "readv", "recvfrom", "recvmsg"})
_WRITES: Final = frozenset({"pwrite64", "pwritev", "sendmsg", "sendto", "write", "writev"})
_KINDS: Final = {
    "clock_gettime": "",
    "epoll_pwait": "polls",
    "epoll_wait": "polls",
    "fdatasync": "syncs",
    "fsync": "syncs",
    "futex": "futexes",
}


class Call(NamedTuple):
    """A system call: when it was made, and the field of `SystemCalls` that counts it."""

    at: float
    kind: str


def measure() -> dict[str, SystemCalls]:
    """The system calls of each kind of request."""
    starts: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place, targets.started_stub(get_stream=False) as stub:
        folder = Path(place)
        trace = folder / "trace"
        with usual.started([*STRACE, str(trace)], stub, folder) as (program, requests):
            for kind, act in requests.kinds().items():
                for _ in range(WARM):
                    act()
                starts[kind] = [_started(act) for _ in range(COUNTED)] + [time.time()]
        # Its threads have ended before.
        ended = re.compile(rf"^{program.popen.pid} +[\d.]+ \+\+\+ (?:exited|killed)", re.MULTILINE)
        host.wait_until("strace wrote all", lambda: ended.search(trace.read_text(errors="replace")))
        calls = list(_read(trace.read_text(errors="replace")))
    return {kind: _least(calls, times) for kind, times in starts.items()}


def _started(act: usual.Act) -> float:
    """Do something, and wait for what it leaves to do; when it began."""
    began = time.time()
    act()
    time.sleep(usual.BETWEEN)
    return began


def _read(trace: str) -> Iterator[Call]:
    for line in trace.splitlines():
        # Memory is watched on a timer, by a file of /proc.
        if "/proc/" not in line and not _TIMER.search(line) and (found := _CALL.match(line)):
            yield Call(float(found[1]), _kind(found[2], found[3] or ""))


def _kind(name: str, file: str) -> str:
    """What a call does; `file` is what its first argument describes. A wakeup is read and written."""
    if name in _READS | _WRITES and file.startswith("anon_inode:[eventfd"):
        return "wakeups" if name in _WRITES else ""
    if name in _READS and file.startswith("socket:"):
        return "socket_reads"
    if name in _WRITES:
        return "socket_writes" if file.startswith("socket:") else "file_writes"
    return _KINDS.get(name, "others")


def _least(calls: list[Call], starts: list[float]) -> SystemCalls:
    """The least of each kind between two times that follow one another."""
    counts = [
        [sum(each.kind == kind and begin <= each.at < end for each in calls) for kind in SystemCalls._fields]
        for begin, end in pairwise(starts)
    ]
    return SystemCalls(*map(min, zip(*counts, strict=True)))


def main() -> None:
    """Count, and print a table."""
    print(f"| system calls of one request | {' | '.join(SystemCalls._fields).replace('_', ' ')} |")
    print(f"|---|{'--:|' * len(SystemCalls._fields)}")
    for kind, found in measure().items():
        print(f"| {kind} | {' | '.join(map(str, found))} |")


if __name__ == "__main__":
    main()
