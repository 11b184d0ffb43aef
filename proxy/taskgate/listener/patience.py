"""How long a connection may keep us waiting, and with how much.

What lives here: the bounds, and the two watches that hold a peer to them: one for a head that does not come to its end,
one for an answer that is not taken. What must not: HTTP, and what a peer is told. What holds: a watch that was stopped
does nothing any more.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

HEAD_TIMEOUT: Final = timedelta(seconds=10)
WRITE_TIMEOUT: Final = timedelta(seconds=30)

_LEAST_PROGRESS: Final = 64 * 1024
"""Bytes a host must take within the write timeout when more than that is waiting for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """What one connection is allowed; `max_header` is in bytes, the whole head together."""

    max_header: int
    idle_timeout: timedelta
    head_timeout: timedelta = HEAD_TIMEOUT
    write_timeout: timedelta = WRITE_TIMEOUT


class HeadWatch:
    """Counts and times what has come of a head that is not complete."""

    __slots__ = ("_expire", "_limit", "_loop", "_seconds", "_timer", "size")

    def __init__(self, bounds: ConnectionSettings, expire: Callable[[], None]) -> None:
        """`expire` is called once per head that takes too long."""
        self._loop = asyncio.get_running_loop()
        self._limit = bounds.max_header
        self._seconds = bounds.head_timeout.total_seconds()
        self._expire = expire
        self._timer: asyncio.TimerHandle | None = None
        self.size = 0

    def begin(self) -> None:
        """Start the time, unless it runs already."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._expire)

    def add(self, size: int) -> bool:
        """Count bytes of a head; False where they are too many."""
        self.size += size
        self.begin()
        return self.size <= self._limit

    def stop(self) -> None:
        """The head is complete, or nobody waits for it any more."""
        self.size = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class WriteWatch:
    """Aborts a transport whose peer takes next to nothing of what is waiting for it."""

    __slots__ = ("_loop", "_seconds", "_timer", "_transport", "_unsent")

    def __init__(self, bounds: ConnectionSettings, transport: asyncio.Transport) -> None:
        """Whoever writes to `transport` waits where it asks to, so that what is unsent shrinks by what is taken."""
        self._loop = asyncio.get_running_loop()
        self._seconds = bounds.write_timeout.total_seconds()
        self._transport = transport
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Watch, unless it does already."""
        if self._timer is None:
            self._watch()

    def stop(self) -> None:
        """Nothing is waiting any more."""
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
