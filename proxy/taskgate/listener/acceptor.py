"""The acceptor of a listening socket: `Acceptor`, with the socket filter that turns hosts away.

`PublicListener` creates it with a function that makes a protocol for a connection
(`HostConnection`, or `TlsWire` before it). It accepts from its creation until `stop`. Every
accepted connection gets its protocol or is closed. A shutdown calls `turn_away`, `stop` and
`settle`, in this order. So no connection that the system has completed is lost with its request,
unless file descriptors or memory run out.
"""

import asyncio
import ctypes
import errno
import logging
import socket
import struct
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

from taskgate.system.keep_alive import keep_alive

BACKLOG: Final = 512
"""Connections that may wait to be accepted; the system adds one."""
RETRY_DELAY: Final = 1.0
"""Seconds until the next attempt after the process or the system had no room for a connection."""

_log = logging.getLogger("taskgate.listener")

_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """The accept loop of one listening socket, `bound`, which it owns and closes.

    `make_protocol` is called for each accepted connection. Creating an acceptor raises OSError if
    the socket cannot listen. The system probes a connection after `silence`; None: never. The server
    of asyncio is not used: on close it loses connections that it has accepted and not yet set up.
    """

    def __init__(
        self, bound: socket.socket, make_protocol: Callable[[], asyncio.Protocol], silence: timedelta | None
    ) -> None:
        self._bound = bound
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        # The running `_set_up` of each accepted connection that has no protocol yet.
        self._set_ups: set[asyncio.Task[Any]] = set()
        self._retry: asyncio.TimerHandle | None = None
        bound.setblocking(False)
        # Accepted sockets inherit it: the system notices a host that disappeared while nothing is sent to it.
        if silence is not None:
            keep_alive(bound, silence)
        bound.listen(BACKLOG)
        self._loop.add_reader(bound.fileno(), self._on_readable)

    def turn_away(self) -> None:
        """Have the system ignore new connections; those that it has begun are still accepted.

        Called some time before `stop`, so that begun handshakes can complete. Does nothing after
        `stop`.
        """
        if not self._is_stopped:
            make_deaf(self._bound)

    def stop(self) -> None:
        """Accept what the system has completed, and close the socket. A second call does nothing.

        Connections for which there is no room are reset.
        """
        if self._is_stopped:
            return
        self._pause()
        # Closing the socket resets those that are not accepted, with the requests that they brought.
        self._accept_waiting()
        self._bound.close()

    async def settle(self) -> None:
        """After `stop`, wait until each accepted connection has its protocol or is closed."""
        if self._set_ups:
            await asyncio.wait(self._set_ups)

    @property
    def _is_stopped(self) -> bool:
        return self._bound.fileno() < 0

    def _on_readable(self) -> None:
        """Accept what waits; called when the socket is readable."""
        if (problem := self._accept_waiting()) is not None:
            # The socket stays readable while a connection waits: an immediate retry would keep the
            # loop busy.
            self._pause()
            self._retry = self._loop.call_later(RETRY_DELAY, self._accept_again)
            self._loop.call_exception_handler(
                {
                    "message": "cannot accept another connection: out of file descriptors or memory",
                    "exception": problem,
                    "socket": self._bound,
                }
            )

    def _accept_waiting(self) -> OSError | None:
        """Accept the connections that wait, at most as many as the system can have waiting.

        Returns the error if the process or the system has no room for the next one, else None. If
        more have come meanwhile, the socket stays readable.
        """
        for _ in range(BACKLOG + 1):
            try:
                peer, _ = self._bound.accept()
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno in _NO_ROOM:
                    return error
                # The peer disconnected while it waited; the next one may be there.
                continue
            peer.setblocking(False)
            set_up = self._loop.create_task(self._set_up(peer))
            self._set_ups.add(set_up)
            set_up.add_done_callback(self._set_ups.discard)
        return None

    async def _set_up(self, peer: socket.socket) -> None:
        """Give an accepted socket its transport and protocol, or close it."""
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, peer)
        except Exception as error:
            peer.close()
            # It is no news if a host disconnects before its connection has a transport.
            if not isinstance(error, OSError):
                _log.error("a connection failed", extra={"error": type(error).__name__})

    def _pause(self) -> None:
        """Stop accepting; `_accept_again` continues."""
        self._loop.remove_reader(self._bound.fileno())
        if self._retry is not None:
            self._retry.cancel()

    def _accept_again(self) -> None:
        self._loop.add_reader(self._bound.fileno(), self._on_readable)


class _Step(NamedTuple):
    """One instruction of a socket filter (linux/filter.h): code, jump if true, jump if false,
    operand.
    """

    code: int
    if_true: int
    if_false: int
    operand: int


_FLAGS: Final = 13
"""The offset of the flags in a TCP header."""
_SYN, _ACK = 0x02, 0x10
_DEAF: Final = (
    _Step(0x30, 0, 0, _FLAGS),  # load the flags
    _Step(0x54, 0, 0, _SYN | _ACK),  # keep SYN and ACK
    _Step(0x15, 0, 1, _SYN),  # SYN alone: next instruction; anything else: skip one
    _Step(0x06, 0, 0, 0),  # drop the packet
    _Step(0x06, 0, 0, 0xFFFFFFFF),  # accept the packet
)
_ATTACH_FILTER: Final = 26
"""SO_ATTACH_FILTER of Linux, missing in Python."""


def make_deaf(listening: socket.socket) -> bool:
    """Drop the packets that start new connections, until the socket is closed.

    Closing a listening socket resets every connection that the system has completed and no process
    has accepted; their hosts may have sent a request. With the filter, a peer tries again after a
    second, and is refused. `Acceptor.turn_away` uses it.

    Returns False if the system has no such filter: then nothing has changed.
    """
    steps = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _DEAF))
    try:
        program = struct.pack("HP", len(_DEAF), ctypes.addressof(steps))
        listening.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
    except OSError:
        return False
    return True
