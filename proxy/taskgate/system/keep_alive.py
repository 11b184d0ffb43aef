"""TCP keep-alive: `keep_alive` has the system probe a connection that is silent.

A NAT or a load balancer keeps a flow that it sees, and a peer that is gone is noticed.
"""

import socket
from typing import Any, Final

SILENCE: Final = 60
"""Seconds of silence after which a connection is probed: load balancers forget a flow after 350 s, some after 120 s."""
PAUSE: Final = 15
"""Seconds between two probes."""
PROBES: Final = 4
"""Probes without an answer after which the connection is lost."""

_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", None), SILENCE),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", None), PAUSE),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", None), PROBES),
)


def keep_alive(peer: Any) -> None:
    """Have the system probe the connection of a TCP socket, as far as it can.

    `peer` is a socket, or what a transport has in place of one.
    """
    if peer.family not in (socket.AF_INET, socket.AF_INET6):
        return
    for level, option, value in _OPTIONS:
        if option is not None:
            peer.setsockopt(level, option, value)
