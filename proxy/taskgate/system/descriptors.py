"""File descriptors of the process: how many there are, who may take the last ones, and which failure is their lack.

A system gives out the lowest number that is free. So a descriptor of number N tells that at least N are in use. To
compare a number with a ceiling is all the accounting that a reserve needs.
"""

import os
import resource
import sys
from contextlib import suppress
from errno import EMFILE, ENFILE
from logging import getLogger
from typing import Final

from taskgate.system.log_throttle import ThrottledLog

_HOSTS_LEAVE: Final = 96
"""Descriptors that hosts leave to the gateway: its files, its store, its operators, and what servers leave."""
_SERVERS_LEAVE: Final = 64
"""Descriptors that connections to servers leave."""
_EACH: Final = 3
"""Descriptors for one connection of a host: its own, its call's at the server, and its session's stream there."""

_LACKS: Final = frozenset({EMFILE, ENFILE})
_AT_START: Final = resource.getrlimit(resource.RLIMIT_NOFILE)

LACK: Final = ThrottledLog(
    getLogger("taskgate.system.descriptors"),
    "No file descriptor is left: raise the limit of open files (ulimit -n, LimitNOFILE) or lower "
    "server.max_connections; no server is blamed",
)
"""Told where something could not be done for want of a descriptor."""


def raise_limit() -> None:
    """Have as many descriptors as the system allows this process: the soft limit becomes the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems have no hard limit, and allow less.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def restore_limit(pid: int) -> None:
    """Give a child the limit that this process began with: old programs choke on a large one."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _AT_START)


def limit() -> int:
    """How many there can be."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def host_connections() -> int:
    """So many connections of hosts can be served at once, each with a call; at least one."""
    return max(1, (limit() - _HOSTS_LEAVE) // _EACH)


def needed_for(connections: int) -> int:
    """The limit of open files with which so many connections of hosts can be served."""
    return connections * _EACH + _HOSTS_LEAVE


def host_ceiling() -> int:
    """The first number that no connection of a host may have."""
    return max(limit() - _HOSTS_LEAVE, limit() // 2)


def server_ceiling() -> int:
    """The first number that no connection to a server may have."""
    return max(limit() - _SERVERS_LEAVE, limit() // 2)


def ran_out(error: OSError) -> bool:
    """Whether an operation failed for want of a descriptor."""
    # The resolver does not say why it could not ask.
    return error.errno in _LACKS or (error.errno is not None and error.errno < 0 and not _is_any_left())


def _is_any_left() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in _LACKS
    return True
