"""The listen address of the public listener: `bind`.

`Service` binds it before it opens anything else, so that an address in use is the first error.
"""

import os
import socket

from taskgate.config import BindAddress
from taskgate.listener.connection_limits import BoundedSocket, ConnectionBounds, ConnectionCounts


class ListenFailed(Exception):
    """An address is not available. The text is for the operator."""


def bind(listen: BindAddress, bounds: ConnectionBounds) -> socket.socket:
    """Bind the socket of the public listener, which accepts nothing yet. Raises ListenFailed."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        listening = socket.create_server((listen.host, listen.port), family=family)
    except OSError as error:
        raise refused("server.listen", listen, error) from None
    return BoundedSocket(listening, ConnectionCounts(bounds))


def refused(key: str, listen: BindAddress, error: OSError) -> ListenFailed:
    """Return the error for a listen address, configured at `key`, that the system refused."""
    # Only the system's reason: asyncio's text around it repeats the address.
    reason = os.strerror(error.errno).lower() if error.errno is not None and error.errno > 0 else "no such address"
    return ListenFailed(f"{key}: cannot listen on {listen}: {reason}")
