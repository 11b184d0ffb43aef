"""What is on its way to one connection of a host.

What must not live here: what is said, and what outlives the connection (`event_stream`). Knows bytes and no messages.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar, Final

FEED_BYTES: Final = 4 * 1024 * 1024
"""How much may wait for a host that reads slowly before its stream ends; one message more may, whatever its size."""


class SseConnection:
    """The pieces on their way to one connection: bounded, one reader, any number of writers.

    `pass_on` is offered each piece that finds the reader waiting, and so spares waking it; it must not block or raise,
    and says False to leave the piece to the reader.
    """

    __slots__ = (
        "_closed",
        "_ended",
        "_limit",
        "_pass_on",
        "_passed_on_at",
        "_reader",
        "_rooms",
        "_size",
        "_waiting",
        "_weight",
        "is_cut",
    )

    is_distant: ClassVar[bool] = False
    """Whether it is a connection of another process, which reads in the log what is kept there."""

    def __init__(self, limit: int = FEED_BYTES, *, pass_on: Callable[[bytes], bool] = lambda _: False) -> None:
        self._limit = limit
        self._pass_on = pass_on
        self._passed_on_at = 0.0
        # Each with what it counts against the bound.
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._rooms: list[asyncio.Future[None]] = []
        self._size = 0
        self._weight = 0
        self._closed = False
        self._reader: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self.is_cut = False
        """Whether it was ended for the sake of another connection."""

    @property
    def closed(self) -> bool:
        """Whether nothing more is taken."""
        return self._closed

    @property
    def drained(self) -> bool:
        """Whether nothing more is taken and nothing is left to send."""
        return self._closed and not self._waiting

    def put(self, piece: bytes) -> bool:
        """Queue one piece; False where too much waits already: the connection should end.

        The size of the piece itself does not count: a host that reads in time gets a message of any size.
        """
        if self._reader is not None and not self._waiting and self._pass_on(piece):
            self._passed_on_at = self._reader.get_loop().time()
            return True
        if self._size >= self._limit:
            return False
        self._queue(piece, len(piece))
        self._wake()
        return True

    def load(self, pieces: Iterable[bytes]) -> None:
        """Queue pieces whatever their size: they are kept anyway, or leave no choice."""
        for piece in pieces:
            self._queue(piece, 0)
        self._wake()

    @property
    def is_clogged(self) -> bool:
        """Whether so much waits, loaded or not, that who can should say nothing more for now; see `room`."""
        return self._weight > self._limit // 4

    async def room(self) -> None:
        """Wait until most of what waits has left, or the end."""
        if self.is_clogged and not self._closed:
            room = asyncio.get_running_loop().create_future()
            self._rooms.append(room)
            await room

    def end(self, last: bytes = b"") -> None:
        """End the connection after what is queued, and after `last`, whatever its size."""
        if self._closed:
            return
        self._closed = True
        if last:
            self._queue(last, 0)
        self._wake()
        self._let_on()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def cut(self) -> None:
        """End the connection now: what is queued goes another way."""
        self.is_cut = True
        self._waiting.clear()
        self._size = self._weight = 0
        self.end()

    async def ended(self) -> None:
        """Wait until nothing more is taken. For one waiter."""
        if not self._closed:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended

    async def next(self, patience: float) -> bytes | None:
        """The next piece; None when `patience` seconds passed without any, or the end is reached: see `drained`."""
        loop = asyncio.get_running_loop()
        due = loop.time() + patience
        while not self._waiting and not self._closed:
            await self._news(loop, due)
            if self._passed_on_at + patience <= due:
                break
            due = self._passed_on_at + patience
        if not self._waiting:
            return None
        piece, counted = self._waiting.popleft()
        self._size -= counted
        self._weight -= len(piece)
        if self._rooms and self._weight <= self._limit // 16:
            self._let_on()
        return piece

    def _queue(self, piece: bytes, counted: int) -> None:
        self._waiting.append((piece, counted))
        self._size += counted
        self._weight += len(piece)

    def _let_on(self) -> None:
        rooms, self._rooms = self._rooms, []
        for room in rooms:
            if not room.done():
                room.set_result(None)

    async def _news(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._reader = reader = loop.create_future()
        timer = loop.call_at(due, self._wake)
        try:
            await reader
        finally:
            timer.cancel()
            self._reader = None

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
