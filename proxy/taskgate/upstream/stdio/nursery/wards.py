"""The programs that run here: started each in a session of its own, ended with all that they leave behind.

What holds: a program that was asked to end has ended when its time is up, and so have the processes of its session;
what left that session ends when no program is there any more that may have begun it. What must not live here: words
with the gateway (`program`).
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
"""Seconds between a SIGTERM and a SIGKILL for what a program left behind."""

_LOOK: Final = 0.02
"""Seconds after an end until orphans are looked for: ends come in numbers."""


class NotStarted(Exception):
    """The system did not start a program; `errno` is 0 where it did not say why."""

    def __init__(self, errno: int, *, cwd: bool) -> None:
        super().__init__(errno)
        self.errno = errno
        self.cwd = cwd


class Ward:
    """One program that runs, by its number."""

    __slots__ = ("began", "child", "number")

    def __init__(self, number: int, child: "subprocess.Popen[bytes]") -> None:
        self.number = number
        self.child = child
        self.began = kinship.began(child.pid)

    @property
    def pid(self) -> int:
        """Its process, which leads the group and the session of the same number."""
        return self.child.pid


class Wards:
    """All of them. `exited` hears the number of one that ended, and its status."""

    def __init__(self, timetable: Timetable, exited: Callable[[int, int], None]) -> None:
        self._timetable = timetable
        self._exited = exited
        self._by_pid: dict[int, Ward] = {}
        self._by_number: dict[int, Ward] = {}
        # Orphans that were asked to end, with their start, which tells them from a later process of the number.
        self._asked: dict[tuple[int, int], float] = {}
        self._looks_soon = False

    def start(self, message: Message, streams: list[int]) -> int:
        """Start a program; its process. Raises NotStarted."""
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
        """End a program in `soft` seconds, and by force `hard` seconds after; nothing where it has ended."""
        ward = self._by_number.get(number)
        if ward is not None:
            self._timetable.after(soft, partial(self._signal, ward, signal.SIGTERM))
            self._timetable.after(soft + hard, partial(self._signal, ward, signal.SIGKILL))

    def end_all(self, soft: float, hard: float) -> None:
        """End every program."""
        for number in tuple(self._by_number):
            self.end(number, soft, hard)

    def reap(self) -> bool:
        """Take note of what has ended; whether there is any child left."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                self._ended(pid, os.waitstatus_to_exitcode(status))
        return False

    def end_orphans(self) -> None:
        """Kill whatever of the children is no program of ours."""
        for kin in kinship.children():
            if kin.pid not in self._by_pid:
                _kill(kin.pid, signal.SIGKILL)

    def _signal(self, ward: Ward, signal_: signal.Signals) -> None:
        if self._by_number.get(ward.number) is ward:
            _kill_group(ward.pid, signal_)

    def _ended(self, pid: int, status: int) -> None:
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
        """Ask orphans to end whose program has ended, and kill those that were asked before."""
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
        """Whether a program that still runs may have begun it: by its session, else by their times."""
        if kin.session in self._by_pid or kin.group in self._by_pid:
            return True
        return any(ward.began <= kin.began for ward in self._by_pid.values())


def _kill(pid: int, signal_: signal.Signals) -> None:
    with suppress(OSError):
        os.kill(pid, signal_)


def _kill_group(group: int, signal_: signal.Signals) -> bool:
    """Send a signal to a group; whether there is one."""
    try:
        os.killpg(group, signal_)
    except OSError:
        return False
    return True
