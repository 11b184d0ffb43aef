"""Sockets at configured listen addresses: `bind` for the public listener, `refused` for errors.

`Service` calls `bind` before it opens the store, so that who starts a second gateway by mistake is
told of the port. It calls `refused` for the operators' listener, which binds its own address.
"""

import os
import socket

from taskgate.config import BindAddress
from taskgate.listener.connection_limits import BoundedSocket, ConnectionBounds, ConnectionCounts


class ListenFailed(Exception):
    """An address is not available. The text is for the operator."""


def bind(listen: BindAddress, bounds: ConnectionBounds) -> socket.socket:
    """Bind the socket of the public listener, and return it. Raises ListenFailed.

    The system queues connections from now on; `PublicListener.start` takes the socket and accepts
    them, within `bounds`.
    """
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        listening = socket.create_server((listen.host, listen.port), family=family)
    except OSError as error:
        raise refused("server.listen", listen, error) from None
    return BoundedSocket(listening, ConnectionCounts(bounds))


def refused(key: str, listen: BindAddress, error: OSError) -> ListenFailed:
    """Return the error to raise when the system refused a listen address.

    `key` is the configuration key of the address, which begins the text.
    """
    # Only the system's reason. The text of `error` may repeat the address, as asyncio's does for
    # the operators' listener.
    reason = os.strerror(error.errno).lower() if error.errno is not None and error.errno > 0 else "no such address"
    return ListenFailed(f"{key}: cannot listen on {listen}: {reason}")
