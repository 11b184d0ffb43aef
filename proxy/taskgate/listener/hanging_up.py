"""The close of an idle connection whose host may be about to send: `hang_up`, and `Promise`.

`HostConnection` uses both when the listener closes. A request that has already arrived must not be
lost. An answer with keep-alive promises the host that it can send another request on the
connection. If such an answer was just sent, the connection stays open for a moment (`Promise`).
"""

import asyncio
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from taskgate.listener.wire import TlsWire

MOMENT: Final = 1.0
"""Seconds for which an answer's promise of keep-alive holds when the connection has to close."""


class Promise:
    """The keep-alive that an answer promised before the connection had to close.

    It holds for MOMENT seconds from the creation; `is_kept` is True until then.
    """

    __slots__ = ("_on_end", "is_kept")

    def __init__(self, then: Callable[[], None]) -> None:
        """`then` is called once, when the promise ends."""
        self._on_end = then
        self.is_kept = True
        asyncio.get_running_loop().call_later(MOMENT, self._expire)

    def _expire(self) -> None:
        self.is_kept = False
        self._on_end()


def hang_up(wire: asyncio.Transport | None, promise: Promise | None) -> bool:
    """Return whether the caller is to close an idle connection now.

    If True, the socket is already shut down for sending where that is possible. So the host learns
    of the end at once, and sends nothing more. False while `promise` holds, or if bytes have arrived that the
    loop has not read: a request may begin. Then nothing has changed.
    """
    if promise is not None and promise.is_kept:
        return False
    if wire is None or wire.is_closing():
        return True
    if _has_unread_bytes(wire):
        return False
    # TLS has a closing message of its own; and a full write buffer is sent first.
    if not isinstance(wire, TlsWire) and wire.get_write_buffer_size() == 0:
        # The transport would close its socket only after the loop's other work.
        with suppress(OSError):
            _socket(wire).shutdown(socket.SHUT_WR)
    return True


def _has_unread_bytes(wire: asyncio.Transport) -> bool:
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
