"""TCP keep-alive: `keep_alive` has the system probe a connection that is silent.

A NAT or a load balancer keeps a flow that it sees, and a peer that is gone is noticed.
"""

import socket
from datetime import timedelta
from typing import Any, Final

PROBES: Final = 4
"""Probes without an answer after which the connection is lost. Together they take as long as the silence."""


def keep_alive(peer: Any, silence: timedelta) -> None:
    """Have the system probe the connection of a TCP socket, as far as it can, after `silence`: whole
    seconds.

    `peer` is a socket, or what a transport has in place of one.
    """
    if peer.family not in (socket.AF_INET, socket.AF_INET6):
        return
    seconds = silence // timedelta(seconds=1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", seconds),
        ("TCP_KEEPINTVL", max(1, seconds // PROBES)),
        ("TCP_KEEPCNT", PROBES),
    ):
        if (option := getattr(socket, name, None)) is not None:
            peer.setsockopt(socket.IPPROTO_TCP, option, value)
