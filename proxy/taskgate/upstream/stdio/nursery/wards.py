"""Child programs of the supervisor process: `Wards` starts and ends them.

A program that was told to end is gone when its time is up, with all processes of its session. When
a program has exited, its process group gets SIGTERM, and SIGKILL after `GRACE`. A process that left
that session is ended once no running program can have started it. `Nursery` calls it.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final

from taskgate.upstream.stdio.nursery import kinship
from taskgate.upstream.stdio.nursery.kinship import Kin
from taskgate.upstream.stdio.nursery.timetable import Timetable
from taskgate.upstream.stdio.nursery.words import Message, program_of

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


class Ward:
    """One running program, by its number."""

    __slots__ = ("began", "child", "number")

    def __init__(self, number: int, child: "subprocess.Popen[bytes]") -> None:
        self.number = number
        self.child = child
        self.began = kinship.began(child.pid)

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its process group and session."""
        return self.child.pid


class Wards:
    """All programs. `exited` is called with the number and the status of each one that exited."""

    def __init__(self, timetable: Timetable, exited: Callable[[int, int], None]) -> None:
        self._timetable = timetable
        self._exited = exited
        self._by_pid: dict[int, Ward] = {}
        self._by_number: dict[int, Ward] = {}
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
                preexec_fn=kinship.dies_with(os.getpid()),  # noqa: PLW1509 - there is one thread
            )
        except OSError as refused:
            raise NotStarted(refused.errno or 0, cwd=cwd is not None and refused.filename == cwd) from None
        except (ValueError, subprocess.SubprocessError):
            raise NotStarted(0, cwd=False) from None
        ward = Ward(message["id"], child)
        self._by_pid[ward.pid] = self._by_number[ward.number] = ward
        return ward.pid

    def end(self, number: int, soft: float, hard: float) -> None:
        """Send a program SIGTERM after `soft` seconds and SIGKILL `hard` seconds later; nothing if
        it has exited by then."""
        ward = self._by_number.get(number)
        if ward is not None:
            self._timetable.after(soft, partial(self._signal, ward, signal.SIGTERM))
            self._timetable.after(soft + hard, partial(self._signal, ward, signal.SIGKILL))

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
        for kin in kinship.children():
            if kin.pid not in self._by_pid:
                _kill(kin.pid, signal.SIGKILL)

    def _signal(self, ward: Ward, signal_: signal.Signals) -> None:
        if self._by_number.get(ward.number) is ward:
            _kill_group(ward.pid, signal_)

    def _ended(self, pid: int, status: int) -> None:
        """Handle the exit of a child: report it if it was a program, and look for orphans soon."""
        ward = self._by_pid.pop(pid, None)
        if ward is not None:
            del self._by_number[ward.number]
            ward.child.returncode = status
            if _kill_group(pid, signal.SIGTERM):
                self._timetable.after(GRACE, partial(_kill_group, pid, signal.SIGKILL))
            self._exited(ward.number, status)
        if not self._looks_soon:
            self._looks_soon = True
            self._timetable.after(_LOOK, self._look)

    def _look(self) -> None:
        """Send SIGTERM to orphans whose program has exited, and SIGKILL to those that had it
        before."""
        self._looks_soon = False
        asked, self._asked = self._asked, {}
        now = monotonic()
        for kin in kinship.children():
            if kin.is_dead or kin.pid in self._by_pid or self._may_stay(kin):
                continue
            name = (kin.pid, kin.began)
            since = self._asked[name] = asked.get(name, now)
            _kill(kin.pid, signal.SIGKILL if now - since >= GRACE else signal.SIGTERM)
        if self._asked:
            self._looks_soon = True
            self._timetable.after(GRACE, self._look)

    def _may_stay(self, kin: Kin) -> bool:
        """Whether a running program may have started it: it is in the session or group of one, or
        is not older than one."""
        if kin.session in self._by_pid or kin.group in self._by_pid:
            return True
        return any(ward.began <= kin.began for ward in self._by_pid.values())


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
