"""The send queue of one connection that carries an event stream: `SseConnection`.

It holds encoded pieces for a host until the listener, its only reader, has written them to the
socket. `event_stream` has the streams, which may outlive a connection. A connection ends once: with
`close`, after which the rest of the queue is still sent, or with `abort`, which drops the queue. A
host that disconnects is reported to the stream (`EventStream.connection_lost`), which closes it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar, Final

QUEUE_BYTES: Final = 4 * 1024 * 1024
"""Bytes that may wait for a slow host before its connection ends, plus one message of any size."""


class SseConnection:
    """The pieces on their way to one connection: bounded, one reader, any number of writers.

    `write_through` writes a piece directly to the socket. It is called if the queue is empty and the
    reader waits, and saves waking the reader. It must not block or raise, and returns False if the
    piece must be queued. Pieces of one read of a server are queued (`more_follows`) and joined, up
    to `joined` bytes.

    `_size` is the queued bytes that count towards the limit, `_weight` all queued bytes.
    `_written_at` is when `write_through` last wrote a piece. `_joins`: pieces are queued until the
    next turn of the event loop, which writes them.
    """

    __slots__ = (
        "_ended",
        "_joined",
        "_joins",
        "_limit",
        "_loop",
        "_reader",
        "_room_waiters",
        "_size",
        "_waiting",
        "_weight",
        "_write_through",
        "_written_at",
        "is_aborted",
        "is_closed",
        "is_congested",
    )

    is_remote: ClassVar[bool] = False
    """Whether another replica has the connection, and reads the events in the shared log."""

    def __init__(
        self,
        limit: int = QUEUE_BYTES,
        *,
        joined: int = 0,
        write_through: Callable[[bytes], bool] = lambda _: False,
    ) -> None:
        self._limit = limit
        self._joined = joined
        self._joins = False
        # Kept: to ask for the running loop is a system call in Python 3.11.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._write_through = write_through
        self._written_at = 0.0
        # Each piece has the size that it counts towards the limit.
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._room_waiters: list[asyncio.Future[None]] = []
        self._size = 0
        self._weight = 0
        self._reader: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self.is_closed = False
        """Whether it accepts no more pieces."""
        self.is_congested = False
        """Whether so much waits, counted or not, that writers should pause; see `writable`."""
        self.is_aborted = False
        """Whether it ended because another connection took over the stream."""

    @property
    def has_pieces(self) -> bool:
        """Whether pieces wait to be sent."""
        return bool(self._waiting)

    @property
    def is_drained(self) -> bool:
        """Whether it accepts no more pieces and none is left to send."""
        return self.is_closed and not self._waiting

    def send(self, piece: bytes) -> bool:
        """Queue one piece; False if too much waits already, so that the connection should end.

        The size of the piece itself does not count: a host that keeps up gets messages of any size.
        """
        reader = self._reader
        if reader is not None and not self._joins and not self._waiting and self._write_through(piece):
            self._written_at = reader.get_loop().time()
            return True
        if self._size >= self._limit:
            return False
        self._queue(piece, len(piece))
        if not self._joins:
            self._wake()
        return True

    def more_follows(self) -> None:
        """Expect several pieces in this turn of the event loop: they are written together in the next."""
        reader = self._reader
        if reader is not None and not self._joins:
            self._joins = True
            reader.get_loop().call_soon(self._write_joined)

    def send_unbounded(self, pieces: Iterable[bytes]) -> None:
        """Queue pieces of any size that do not count: replayed events, and answers."""
        for piece in pieces:
            self._queue(piece, 0)
        self._wake()

    def writable(self) -> asyncio.Future[None]:
        """A future that is done when most of the queue was sent, or the connection has ended."""
        waiter = asyncio.get_running_loop().create_future()
        if self.is_congested and not self.is_closed:
            self._room_waiters.append(waiter)
        else:
            waiter.set_result(None)
        return waiter

    def close(self, last: bytes = b"") -> None:
        """End the connection after what is queued, and after `last`, whatever its size."""
        if self.is_closed:
            return
        self.is_closed = True
        if last:
            self._queue(last, 0)
        self._wake()
        self._release_writers()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def abort(self) -> None:
        """End the connection now and drop the queue: another connection carries the stream."""
        self.is_aborted = True
        self._waiting.clear()
        self._size = self._weight = 0
        self.is_congested = False
        self.close()

    async def wait_closed(self) -> None:
        """Wait until it accepts no more pieces. For one waiter."""
        if not self.is_closed:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended

    async def receive(self, timeout: float) -> bytes | None:
        """Wait for the next piece; for the reader. Pieces behind it are joined to it.

        Returns None at the end, or after `timeout` seconds in which nothing was sent, not even by
        `write_through`. Then the reader sends a keep-alive.
        """
        self._loop = loop = self._loop or asyncio.get_running_loop()
        due = loop.time() + timeout
        while not self._waiting and not self.is_closed:
            await self._wait_for_piece(loop, due)
            if self._written_at + timeout <= due:
                # Nothing was written meanwhile, so this is silence. Else it lasts until later.
                break
            due = self._written_at + timeout
        if not self._waiting:
            return None
        piece, counted = self._waiting.popleft()
        if self._waiting:
            piece, counted = self._join(piece, counted, self._joined - len(piece))
        self._take(len(piece), counted)
        return piece

    def _write_joined(self) -> None:
        """Write what waits, or leave it to the reader."""
        self._joins = False
        waiting, reader = self._waiting, self._reader
        if waiting and reader is not None and not reader.done():
            if self._weight <= self._joined and self._write_through(b"".join([piece for piece, _ in waiting])):
                waiting.clear()
                self._take(self._weight, self._size)
                self._written_at = reader.get_loop().time()
            else:
                self._wake()

    def _queue(self, piece: bytes, counted: int) -> None:
        self._waiting.append((piece, counted))
        self._size += counted
        self._weight += len(piece)
        self.is_congested = self._weight > self._limit // 4

    def _take(self, weight: int, counted: int) -> None:
        """Count what has left the queue."""
        self._size -= counted
        self._weight -= weight
        self.is_congested = self._weight > self._limit // 4
        if self._room_waiters and self._weight <= self._limit // 16:
            self._release_writers()

    def _join(self, piece: bytes, counted: int, room: int) -> tuple[bytes, int]:
        """Take further pieces off the queue, for which there is `room`, and join them."""
        waiting, pieces = self._waiting, [piece]
        while waiting and (room := room - len(waiting[0][0])) >= 0:
            piece, size = waiting.popleft()
            pieces.append(piece)
            counted += size
        return b"".join(pieces), counted

    def _release_writers(self) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _wait_for_piece(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
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
