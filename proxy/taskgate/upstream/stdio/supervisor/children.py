"""Child programs of the supervisor process: `Children` starts and ends them, by `Timers`.

A program that was told to end is gone when its time is up, with all processes of its session. When
a program has exited, its process group gets SIGTERM, and SIGKILL after `GRACE`. A process that left
that session is ended once no running program can have started it. `SupervisorLoop` calls it.
"""

import heapq
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from time import monotonic
from typing import Final

from taskgate.upstream.stdio.supervisor import process_tree
from taskgate.upstream.stdio.supervisor.messages import Message, program_of
from taskgate.upstream.stdio.supervisor.process_tree import ProcessStat


class Timers:
    """Calls functions at their time; the main loop calls `run`."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """Call `act` once, so many seconds from now."""
        heapq.heappush(self._due, (monotonic() + seconds, next(self._numbers), act))

    def run(self) -> float | None:
        """Call what is due; returns the seconds until the next, None without one."""
        while self._due:
            left = self._due[0][0] - monotonic()
            if left > _AT_ONCE:
                return left
            heapq.heappop(self._due)[2]()
        return None


_AT_ONCE: Final = 0.001
"""Seconds that are not worth another wait."""


GRACE: Final = 2.0
"""Seconds between SIGTERM and SIGKILL for processes that a program left behind."""

_LOOK: Final = 0.02
"""Seconds from an exit to the check for orphans: exits come in groups."""


class NotStarted(Exception):
    """The system did not start a program; `errno` is 0 if unknown, `cwd`: its directory is the
    cause."""

    def __init__(self, errno: int, *, cwd: bool) -> None:
        super().__init__(errno)
        self.errno = errno
        self.cwd = cwd


class ChildProgram:
    """One running program, by its number."""

    __slots__ = ("began", "child", "number")

    def __init__(self, number: int, child: "subprocess.Popen[bytes]") -> None:
        self.number = number
        self.child = child
        self.began = process_tree.began(child.pid)

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its process group and session."""
        return self.child.pid


class Children:
    """All programs. `exited` is called with the number and the status of each one that exited."""

    def __init__(self, timers: Timers, exited: Callable[[int, int], None]) -> None:
        self._timers = timers
        self._exited = exited
        self._by_pid: dict[int, ChildProgram] = {}
        self._by_number: dict[int, ChildProgram] = {}
        # Orphans that got SIGTERM, by pid and start time: the pid may be reused.
        self._asked: dict[tuple[int, int], float] = {}
        self._looks_soon = False

    def start(self, message: Message, streams: list[int]) -> int:
        """Start a program; returns its process id. Raises NotStarted."""
        argv, env, cwd = program_of(message)
        stdin, stdout, stderr = streams
        try:
            child = subprocess.Popen(  # noqa: S603 - the operator's own command, never a shell
                argv,
                env=env,
                cwd=cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=process_tree.dies_with(os.getpid()),  # noqa: PLW1509 - there is one thread
            )
        except OSError as refused:
            raise NotStarted(refused.errno or 0, cwd=cwd is not None and refused.filename == cwd) from None
        except (ValueError, subprocess.SubprocessError):
            raise NotStarted(0, cwd=False) from None
        program = ChildProgram(message["id"], child)
        self._by_pid[program.pid] = self._by_number[program.number] = program
        return program.pid

    def end(self, number: int, soft: float, hard: float) -> None:
        """Send a program SIGTERM after `soft` seconds and SIGKILL `hard` seconds later; nothing if
        it has exited by then."""
        program = self._by_number.get(number)
        if program is not None:
            self._timers.after(soft, partial(self._signal, program, signal.SIGTERM))
            self._timers.after(soft + hard, partial(self._signal, program, signal.SIGKILL))

    def end_all(self, soft: float, hard: float) -> None:
        """End every program."""
        for number in tuple(self._by_number):
            self.end(number, soft, hard)

    def reap(self) -> bool:
        """Collect exited children; returns whether any child is left."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                self._ended(pid, os.waitstatus_to_exitcode(status))
        return False

    def end_orphans(self) -> None:
        """Kill every child that is no program of the gateway."""
        for child_process in process_tree.children():
            if child_process.pid not in self._by_pid:
                _kill(child_process.pid, signal.SIGKILL)

    def _signal(self, program: ChildProgram, signal_: signal.Signals) -> None:
        if self._by_number.get(program.number) is program:
            _kill_group(program.pid, signal_)

    def _ended(self, pid: int, status: int) -> None:
        """Handle the exit of a child: report it if it was a program, and look for orphans soon."""
        program = self._by_pid.pop(pid, None)
        if program is not None:
            del self._by_number[program.number]
            program.child.returncode = status
            if _kill_group(pid, signal.SIGTERM):
                self._timers.after(GRACE, partial(_kill_group, pid, signal.SIGKILL))
            self._exited(program.number, status)
        if not self._looks_soon:
            self._looks_soon = True
            self._timers.after(_LOOK, self._look)

    def _look(self) -> None:
        """Send SIGTERM to orphans whose program has exited, and SIGKILL to those that had it
        before."""
        self._looks_soon = False
        asked, self._asked = self._asked, {}
        now = monotonic()
        for child_process in process_tree.children():
            if child_process.is_dead or child_process.pid in self._by_pid or self._may_stay(child_process):
                continue
            name = (child_process.pid, child_process.began)
            since = self._asked[name] = asked.get(name, now)
            _kill(child_process.pid, signal.SIGKILL if now - since >= GRACE else signal.SIGTERM)
        if self._asked:
            self._looks_soon = True
            self._timers.after(GRACE, self._look)

    def _may_stay(self, child_process: ProcessStat) -> bool:
        """Whether a running program may have started it: it is in the session or group of one, or
        is not older than one."""
        if child_process.session in self._by_pid or child_process.group in self._by_pid:
            return True
        return any(program.began <= child_process.began for program in self._by_pid.values())


def _kill(pid: int, signal_: signal.Signals) -> None:
    with suppress(OSError):
        os.kill(pid, signal_)


def _kill_group(group: int, signal_: signal.Signals) -> bool:
    """Send a signal to a process group; returns whether it exists."""
    try:
        os.killpg(group, signal_)
    except OSError:
        return False
    return True
