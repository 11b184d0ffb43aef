"""Ending a connection on which nothing is under way, though its host may be about to send something on it.

What must not live here: when that is done (`protocol`). What holds: what has come by then is not lost; how long
something on its way could still be is as short as it can be.
"""

import asyncio
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from taskgate.listener.wire import TlsWire

MOMENT: Final = 1.0
"""Seconds in which a host may use a connection that it was told it can use again."""


class Promise:
    """That a connection goes on after an answer, which was true when the answer began: kept for a moment."""

    __slots__ = ("_then", "is_kept")

    def __init__(self, then: Callable[[], None]) -> None:
        """`then` is called when the moment is over."""
        self._then = then
        self.is_kept = True
        asyncio.get_running_loop().call_later(MOMENT, self._end)

    def _end(self) -> None:
        self.is_kept = False
        self._then()


def hang_up(wire: asyncio.Transport | None, promise: Promise | None) -> bool:
    """Whether an idle connection is to be closed now; its host has heard of it then.

    It is not while a promise is kept, nor where something has come that the loop has not read yet.
    """
    if promise is not None and promise.is_kept:
        return False
    if wire is None or wire.is_closing():
        return True
    if _has_come(wire):
        return False
    # Under TLS there is a word to say before; and what is still on its way out goes first.
    if not isinstance(wire, TlsWire) and wire.get_write_buffer_size() == 0:
        # The transport closes its socket only after all else that the loop has to do.
        with suppress(OSError):
            _socket(wire).shutdown(socket.SHUT_WR)
    return True


def _has_come(wire: asyncio.Transport) -> bool:
    waiting = select.poll()
    try:
        waiting.register(_socket(wire).fileno(), select.POLLIN)
        return bool(waiting.poll(0))
    except (OSError, ValueError):
        # It is closed already.
        return False


def _socket(wire: asyncio.Transport) -> socket.socket:
    found: socket.socket = wire.get_extra_info("socket")
    return found
