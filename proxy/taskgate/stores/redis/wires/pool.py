"""The connections of one process: as many as are needed at once, up to a bound; whoever comes then waits.

What must not live here: what is said over them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from redis import asyncio as redis
from redis.exceptions import RedisError

from taskgate.errors import StoreUnavailable

_LONGEST_IDLE: Final = 45.0
"""Seconds: what lay unused for longer may have been forgotten by something on the way, without a word."""


class RedisPool:
    """Lends connections, the one that was used last first. Belongs to one event loop."""

    def __init__(self, make: Callable[[], redis.Connection], *, limit: int, wait: timedelta) -> None:
        self._make = make
        self._limit = limit
        self._wait = wait.total_seconds()
        self._free: list[tuple[redis.Connection, float]] = []
        self._lent: set[redis.Connection] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._promised = 0
        self._closed = False

    async def take(self) -> redis.Connection:
        """A connection that nobody else has: open and without a word in it, or still to be opened.

        Raises StoreUnavailable when none gets free in time.
        """
        if len(self._lent) + self._promised >= self._limit:
            await self._turn()
        if self._closed:
            raise StoreUnavailable("The task store is closed")
        since = asyncio.get_running_loop().time() - _LONGEST_IDLE
        while self._free:
            wire, given_back = self._free.pop()
            # Lent before anything is awaited: the bound holds.
            self._lent.add(wire)
            if given_back > since and await _is_silent(wire):
                return wire
            self._lent.discard(wire)
            await _hang_up(wire)
        wire = self._make()
        self._lent.add(wire)
        return wire

    def give(self, wire: redis.Connection) -> None:
        """Take a connection back; one that is not open is dropped."""
        if wire not in self._lent:
            return
        self._lent.discard(wire)
        if wire.is_connected:
            self._free.append((wire, asyncio.get_running_loop().time()))
        self._wake()

    async def drop_idle(self) -> None:
        """Close what nobody uses just now: it leads to where the server is no more."""
        idle, self._free = self._free, []
        for wire, _ in idle:
            await _hang_up(wire)

    async def close(self) -> None:
        """Close everything; whoever still waits for an answer has none."""
        self._closed = True
        while self._waiting:
            self._wake()
        lent, self._lent = self._lent, set()
        for wire in lent:
            await _hang_up(wire)
        await self.drop_idle()

    async def _turn(self) -> None:
        """Wait for a connection to be given back; whoever comes later does not get it first."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._wait):
                await turn
        except TimeoutError:
            self._decline(turn)
            raise StoreUnavailable("Too much is asked of the task store at once") from None
        except BaseException:
            self._decline(turn)
            raise
        self._promised -= 1

    def _decline(self, turn: "asyncio.Future[None]") -> None:
        if turn in self._waiting:
            self._waiting.remove(turn)
        elif not turn.cancelled():
            self._promised -= 1
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._promised += 1
                return


async def _is_silent(wire: redis.Connection) -> bool:
    """Whether it is open, and nothing came over it that nobody asked for: its end, too, would be something."""
    try:
        return wire.is_connected and not await wire.can_read()
    except (RedisError, OSError):
        return False


async def _hang_up(wire: redis.Connection) -> None:
    with suppress(RedisError, OSError, TimeoutError):
        await wire.disconnect(nowait=True)
