"""The acceptor of a listening socket: `Acceptor`.

`PublicListener` creates it with a function that makes a protocol for a connection
(`HostConnection`, or `TlsWire` before it). Every accepted connection gets its protocol or is
closed, also while the acceptor stops.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from taskgate.listener.turning_away import make_deaf

BACKLOG: Final = 512
"""Connections that may wait to be accepted; the system adds one."""
RETRY_DELAY: Final = 1.0
"""Seconds until the next attempt after the process or the system had no room for a connection."""

_log = logging.getLogger("taskgate.listener")

_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """The accept loop of one listening socket, which it owns.

    asyncio's own server is not used: on close it loses connections that it has accepted and not yet
    set up.
    """

    def __init__(self, bound: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._bound = bound
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._making: set[asyncio.Task[Any]] = set()
        self._retry: asyncio.TimerHandle | None = None
        bound.setblocking(False)
        bound.listen(BACKLOG)
        self._loop.add_reader(bound.fileno(), self._accept)

    def turn_away(self) -> None:
        """Let the system start no more connections, before `stop`. Those being made can still be
        accepted.
        """
        if not self._is_stopped:
            make_deaf(self._bound)

    def stop(self) -> None:
        """Accept what the system has completed, and close the socket. May be called again."""
        if self._is_stopped:
            return
        self._pause()
        # Closing the socket would reset them, together with the requests that they brought.
        self._take_up()
        self._bound.close()

    async def settle(self) -> None:
        """After `stop`, wait until each accepted connection has its protocol or is closed."""
        if self._making:
            await asyncio.wait(self._making)

    @property
    def _is_stopped(self) -> bool:
        return self._bound.fileno() < 0

    def _accept(self) -> None:
        if (problem := self._take_up()) is not None:
            # The socket stays readable while a connection waits: an immediate retry would keep the
            # loop busy.
            self._pause()
            self._retry = self._loop.call_later(RETRY_DELAY, self._resume)
            self._loop.call_exception_handler(
                {
                    "message": "cannot accept another connection: out of file descriptors or memory",
                    "exception": problem,
                    "socket": self._bound,
                }
            )

    def _take_up(self) -> OSError | None:
        """Accept all waiting connections; return the error if there is no room."""
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
            making = self._loop.create_task(self._make(peer))
            self._making.add(making)
            making.add_done_callback(self._making.discard)
        return None

    async def _make(self, peer: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, peer)
        except Exception as error:
            peer.close()
            # It is no news if a host disconnects before its connection has a transport.
            if not isinstance(error, OSError):
                _log.error("a connection failed", extra={"error": type(error).__name__})

    def _pause(self) -> None:
        self._loop.remove_reader(self._bound.fileno())
        if self._retry is not None:
            self._retry.cancel()

    def _resume(self) -> None:
        self._loop.add_reader(self._bound.fileno(), self._accept)
