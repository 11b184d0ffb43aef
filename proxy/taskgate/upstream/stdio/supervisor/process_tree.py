"""Process trees of the system: adopting orphans, death signals, and the children of this process.

It uses prctl and /proc of Linux; on other systems the functions do nothing. An orphan is a process
whose parent has exited: one that a server's program started and left behind. `children` uses this to
find and end orphans.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PROC: Final = Path("/proc")


class ProcessStat(NamedTuple):
    """A child of this process; `began` is its start in clock ticks."""

    pid: int
    group: int
    session: int
    began: int
    is_dead: bool


def _prctl() -> Callable[..., Any] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes  # noqa: PLC0415 - builds of Python may lack it

        found: Callable[..., Any] = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return found


_call: Final = _prctl()


def take_in_orphans() -> None:
    """Become the parent of descendants that lose theirs (child subreaper)."""
    if _call is not None:
        _call(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def dies_with(parent: int) -> Callable[[], None]:
    """Return a function for a child to call before exec: it is then killed when `parent` ends."""

    def before() -> None:
        if _call is not None:
            _call(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            # The parent ended before the call.
            os._exit(1)

    return before


def began(pid: int) -> int:
    """Return the start of a process in clock ticks; 0 if unknown."""
    fields = _fields(_PROC / str(pid))
    return 0 if fields is None else int(fields[19])


def children() -> Iterator[ProcessStat]:
    """Yield the children of this process, adopted ones too; none where the system does not tell."""
    own = os.getpid()
    try:
        names = os.listdir(_PROC)
    except OSError:
        return
    for name in names:
        fields = _fields(_PROC / name) if name.isdigit() else None
        if fields is not None and int(fields[1]) == own:
            yield ProcessStat(int(name), int(fields[2]), int(fields[3]), int(fields[19]), fields[0] in "ZX")


def _fields(place: Path) -> list[str] | None:
    """Return state, parent, group, session and so on: proc_pid_stat(5) from the third field."""
    try:
        # The program's name comes before, and may contain anything.
        return (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
