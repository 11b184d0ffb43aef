"""The end of an idle connection whose host may be about to send: `hang_up`, and `Promise`.

`HostConnection` uses both when the listener closes. A request that has already arrived must not be
lost. The time in which one could still be on its way is as short as possible.
"""

import asyncio
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from taskgate.listener.wire import TlsWire

MOMENT: Final = 1.0
"""Seconds in which a host may use a connection after an answer that promised keep-alive."""


class Promise:
    """The keep-alive that an answer promised before the connection had to close. It holds for a
    moment.
    """

    __slots__ = ("_then", "is_kept")

    def __init__(self, then: Callable[[], None]) -> None:
        """Start the moment; `then` is called at its end."""
        self._then = then
        self.is_kept = True
        asyncio.get_running_loop().call_later(MOMENT, self._end)

    def _end(self) -> None:
        self.is_kept = False
        self._then()


def hang_up(wire: asyncio.Transport | None, promise: Promise | None) -> bool:
    """Return whether to close an idle connection now. If so, the host has been notified.

    False while a promise holds, or if something has arrived that the loop has not read.
    """
    if promise is not None and promise.is_kept:
        return False
    if wire is None or wire.is_closing():
        return True
    if _has_come(wire):
        return False
    # TLS has a closing message of its own; and a full write buffer is sent first.
    if not isinstance(wire, TlsWire) and wire.get_write_buffer_size() == 0:
        # The transport would close its socket only after the loop's other work.
        with suppress(OSError):
            _socket(wire).shutdown(socket.SHUT_WR)
    return True


def _has_come(wire: asyncio.Transport) -> bool:
    waiting = select.poll()
    try:
        waiting.register(_socket(wire).fileno(), select.POLLIN)
        return bool(waiting.poll(0))
    except (OSError, ValueError):
        # It is already closed.
        return False


def _socket(wire: asyncio.Transport) -> socket.socket:
    found: socket.socket = wire.get_extra_info("socket")
    return found
