"""File descriptors of the process: the limit, what is reserved of it, errors of exhaustion, and the
locks of files.

A system hands out the lowest free number, so a descriptor with number N shows that N others are in
use. To reserve descriptors it is enough to compare numbers with a ceiling.
"""

import fcntl
import os
import resource
import sys
import time
from contextlib import suppress
from errno import EMFILE, ENFILE
from logging import getLogger
from pathlib import Path
from typing import Final

from taskgate.system.log_throttle import ThrottledLog

_RESERVED_FROM_HOSTS: Final = 96
"""Descriptors that host connections leave free: for files, the store, operators and servers."""
_RESERVED_FROM_SERVERS: Final = 64
"""Descriptors that connections to servers leave free."""
_PER_HOST: Final = 3
"""Descriptors per host connection: its own, its call's at the server, its session's stream."""

_LOCK_WAIT: Final = 0.25
"""Seconds that a lock is waited for. A check of a configuration has it for less than a millisecond."""
_LOCK_PAUSE: Final = 0.005
_LOCKS: Final = Path("/proc/locks")
"""The locks of all files, on Linux."""

_EXHAUSTION_ERRORS: Final = frozenset({EMFILE, ENFILE})
_INITIAL_LIMIT: Final = resource.getrlimit(resource.RLIMIT_NOFILE)

EXHAUSTED_LOG: Final = ThrottledLog(
    getLogger("taskgate.system.descriptors"),
    "No file descriptor is left: raise the limit of open files (ulimit -n, LimitNOFILE) or lower "
    "server.max_connections; no server is blamed",
)
"""The log line for an operation that failed because no descriptor was left."""


def raise_limit() -> None:
    """Raise the soft limit of descriptors to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems report no hard limit, and allow less.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def restore_limit(pid: int) -> None:
    """Give a child the limit that this process started with: old programs fail with a large one."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _INITIAL_LIMIT)


def limit() -> int:
    """The current limit of descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def host_connections() -> int:
    """The host connections that the limit allows, each with a call; at least one."""
    return max(1, (limit() - _RESERVED_FROM_HOSTS) // _PER_HOST)


def limit_for(connections: int) -> int:
    """The limit that allows so many host connections."""
    return connections * _PER_HOST + _RESERVED_FROM_HOSTS


def host_ceiling() -> int:
    """The first descriptor number that no host connection may have."""
    return max(limit() - _RESERVED_FROM_HOSTS, limit() // 2)


def server_ceiling() -> int:
    """The first descriptor number that no connection to a server may have."""
    return max(limit() - _RESERVED_FROM_SERVERS, limit() // 2)


def is_exhaustion(error: OSError) -> bool:
    """Whether an operation failed because no descriptor was left."""
    # The resolver has negative error numbers and does not report the cause, so a descriptor is tried.
    return error.errno in _EXHAUSTION_ERRORS or (error.errno is not None and error.errno < 0 and not _is_any_left())


def _is_any_left() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in _EXHAUSTION_ERRORS
    return True


def lock(descriptor: int) -> None:
    """Lock a file for one owner. Blocks for a quarter of a second at most.

    The lock is that of the open file: it ends when the descriptor is closed. Raises BlockingIOError
    if another owner keeps it, or another OSError.
    """
    until = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
        else:
            return
        time.sleep(_LOCK_PAUSE)


def lock_owner(descriptor: int) -> int | None:
    """The process that keeps a file by `lock`; None if the system does not tell.

    A process of another container is not told.
    """
    inode = str(os.fstat(descriptor).st_ino)
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    # Number, kind, -, mode, process, device and inode, and the range. The device of some file systems is another.
    rows = (line.split() for line in lines if " FLOCK " in line)
    pids = {int(row[4]) for row in rows if row[5].rpartition(":")[2] == inode and row[3] == "WRITE"}
    return next(iter(pids)) if len(pids) == 1 and min(pids) > 0 else None


def is_locked(descriptor: int) -> bool:
    """Whether a file has an owner by `lock`. Raises OSError.

    No system tells that of every file without a lock. This one is shared, so two that ask do not
    take each other for an owner, and `lock` waits for its end.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
