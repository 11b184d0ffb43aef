"""Addresses that the gateway listens on: taken before anything else is opened, or refused in words for the operator.

What must not live here: what listens there.
"""

import os
import socket

from taskgate.config import BindAddress
from taskgate.listener.connection_limits import BoundedSocket, ConnectionBounds, ConnectionCounts


class ListenFailed(Exception):
    """An address cannot be had; the text is for the operator."""


def bind(listen: BindAddress, bounds: ConnectionBounds) -> socket.socket:
    """The socket of the public listener, which takes no connection yet. Raises ListenFailed."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        listening = socket.create_server((listen.host, listen.port), family=family)
    except OSError as error:
        raise refused("server.listen", listen, error) from None
    return BoundedSocket(listening, ConnectionCounts(bounds))


def refused(key: str, listen: BindAddress, error: OSError) -> ListenFailed:
    """What is said of an address, which stands under that key, that the system refused."""
    # The system's reason alone: what asyncio says around it repeats the address in other words.
    reason = os.strerror(error.errno).lower() if error.errno is not None and error.errno > 0 else "no such address"
    return ListenFailed(f"{key}: cannot listen on {listen}: {reason}")
