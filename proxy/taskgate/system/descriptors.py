"""File descriptors of the process: the limit, what is reserved of it, and errors of exhaustion.

A system hands out the lowest free number, so a descriptor with number N shows that N others are in
use. To reserve descriptors it is enough to compare numbers with a ceiling.
"""

import os
import resource
import sys
from contextlib import suppress
from errno import EMFILE, ENFILE
from logging import getLogger
from typing import Final

from taskgate.system.log_throttle import ThrottledLog

_RESERVED_FROM_HOSTS: Final = 96
"""Descriptors that host connections leave free: for files, the store, operators and servers."""
_RESERVED_FROM_SERVERS: Final = 64
"""Descriptors that connections to servers leave free."""
_PER_HOST: Final = 3
"""Descriptors per host connection: its own, its call's at the server, its session's stream."""

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
