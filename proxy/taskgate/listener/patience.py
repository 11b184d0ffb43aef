"""The time limits of one connection: `HeadWatch` for a request head that does not complete,
`WriteWatch` for an answer that the peer does not read.

Both listeners use `HeadWatch`, and `HostConnection` also `WriteWatch`. A watch runs from `begin` to
`stop`, and may begin again. Only while it runs does its time limit apply.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from taskgate.system.timer_wheel import Cancel, TimerWheel

HEAD_TIMEOUT: Final = timedelta(seconds=10)
WRITE_TIMEOUT: Final = timedelta(seconds=30)
WAITING_BYTES: Final = 32 * 2**20

_LEAST_PROGRESS: Final = 64 * 1024
"""Bytes that a host must read within the write timeout if more than that waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The limits of one connection. `max_header` is the size of the whole head, in bytes.

    `waiting_bytes` is a limit of all connections together: the bytes that wait behind requests.
    """

    max_header: int
    idle_timeout: timedelta
    head_timeout: timedelta = HEAD_TIMEOUT
    write_timeout: timedelta = WRITE_TIMEOUT
    waiting_bytes: int = WAITING_BYTES


class HeadWatch:
    """The size and the time of a head that is not complete yet.

    A connection begins it when it awaits a head, adds what arrives, and stops it at the head's end.
    `timer`, which cancels it, is None while it does not run.
    """

    __slots__ = ("_expire", "_limit", "_seconds", "_wheel", "size", "timer")

    def __init__(self, bounds: ConnectionSettings, wheel: TimerWheel, expire: Callable[[], None]) -> None:
        """`expire` is called if the head is not complete in time."""
        self._wheel = wheel
        self._limit = bounds.max_header
        self._seconds = bounds.head_timeout.total_seconds()
        self._expire = expire
        self.timer: Cancel | None = None
        self.size = 0

    def begin(self) -> None:
        """Start the time limit, if it does not run yet."""
        if self.timer is None:
            self.timer = self._wheel.call_later(self._seconds, self._expire)

    def begin_anew(self) -> None:
        """Start the time limit again after it has passed."""
        self.timer = self._wheel.call_later(self._seconds, self._expire)

    def add(self, size: int) -> bool:
        """Count bytes of a head, and return whether it may grow on. Starts the time limit too."""
        self.size += size
        self.begin()
        return self.size <= self._limit

    def stop(self) -> None:
        """Stop, because the head is complete or no longer awaited."""
        self.size = 0
        if self.timer is not None:
            self.timer()
            self.timer = None


class WriteWatch:
    """The progress of writes. It aborts a transport whose peer reads next to nothing.

    A connection begins it when the peer is slow, and stops it when the peer has caught up.
    """

    __slots__ = ("_loop", "_seconds", "_timer", "_transport", "_unsent")

    def __init__(self, bounds: ConnectionSettings, transport: asyncio.Transport) -> None:
        """Writers of `transport` must pause when asked, so that the unsent bytes shrink by what is
        read.
        """
        self._loop = asyncio.get_running_loop()
        self._seconds = bounds.write_timeout.total_seconds()
        self._transport = transport
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start to watch, if it does not yet."""
        if self._timer is None:
            self._watch()

    def stop(self) -> None:
        """Stop, because nothing waits to be sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        self._unsent = self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(self._seconds, self._check)

    def _check(self) -> None:
        if self._unsent - self._transport.get_write_buffer_size() < _LEAST_PROGRESS:
            self._transport.abort()
        else:
            self._watch()
