"""Pipes to a program on the event loop: `PipeReader`, `PipeWriter`, and lines by `LineFraming`.

`ProgramChannel` and `StderrReader` use them. Callbacks run in an empty context, since a pipe serves
many callers. A writer that waits for room does not block other channels. Messages are lines
(U-STDIO-1): of one above the limit only its two ends are stored, however long it is.
"""

import asyncio
import os
import select
from collections.abc import Callable
from contextvars import Context
from typing import Final, NamedTuple, cast

from taskgate.upstream.base import Sendable

ENDS: Final = 512
"""Bytes that are stored of the beginning of such a line, and as many of its end."""

FURTHEST: Final = 16
"""Multiple of the limit up to which such a line is read to its end; a longer one counts as endless."""

BOM: Final = b"\xef\xbb\xbf"
"""Byte order mark that some programs on Windows write first; it is no part of a message."""

_GAP: Final = b"\0"
"""Stands for the omitted part: no message contains it, and parsers stop there."""


class Cut(NamedTuple):
    """A line that is too long: its `ends` with a zero byte between them, and its size in bytes."""

    ends: bytes
    size: int


class LineFraming:
    """Assembles lines of at most `limit` bytes without their end; a byte order mark before the
    first is removed.

    An unfinished line at the end of the stream is dropped.
    """

    __slots__ = ("_end", "_head", "_is_first", "_limit", "_pieces", "_size", "is_endless")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._is_first = True
        self._pieces: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None
        self._end = b""
        self.is_endless = False
        """Whether the current line is too long to wait for its end; nothing may be fed any more."""

    def feed(self, received: bytes) -> list[bytes | Cut]:
        """Return the lines that are complete now, without empty ones."""
        first, *ended = received.split(b"\n")
        lines: list[bytes | Cut] = []
        if not ended:
            self._add(first)
            return lines
        rest = ended.pop()
        # Empty lines are skipped before any work for them.
        for piece in (first, *filter(None, ended)):
            self._add(piece)
            if self.is_endless:
                return lines
            line = self._take()
            if isinstance(line, Cut) or (line and not line.isspace()):
                lines.append(line)
        if rest:
            self._add(rest)
        return lines

    def unfinished(self) -> Cut:
        """Return what is known of the current line once it is endless; its end is missing."""
        return Cut((self._head or b"") + _GAP, self._size)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._head is None:
            self._pieces.append(piece)
            if self._size <= self._limit:
                return
            self._head = _first(self._pieces)
        for each in self._pieces or (piece,):
            self._end = (self._end + each[-ENDS:])[-ENDS:]
        self._pieces = []
        self.is_endless = self._size > self._limit * FURTHEST

    def _take(self) -> bytes | Cut:
        """Return the line that ends now."""
        line = b"".join(self._pieces) if self._head is None else Cut(self._head + _GAP + self._end, self._size)
        self._pieces, self._size, self._head, self._end = [], 0, None, b""
        if self._is_first:
            self._is_first = False
            if not isinstance(line, Cut):
                return line.removeprefix(BOM)
        return line


def _first(pieces: list[bytes]) -> bytes:
    first = b""
    for piece in pieces:
        first += piece[: ENDS - len(first)]
        if len(first) == ENDS:
            break
    return first


_HIGH: Final = 2**16
"""Bytes that wait for the program to read; above it the next message waits."""


class PipeReader(asyncio.Protocol):
    """The reader of a pipe. `received` is called with all bytes that arrive, `ended` once when the
    pipe is closed by either side.

    It may be paused before it is connected.
    """

    def __init__(self, received: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._received = received
        self._ended = ended
        self._transport: asyncio.ReadTransport | None = None
        self._wants = True
        self.is_gone = False
        """Whether the pipe is closed."""

    async def connect(self, descriptor: int) -> None:
        """Start to read; the pipe is closed with this object, or if this raises OSError."""
        pipe = os.fdopen(descriptor, "rb", buffering=0)
        try:
            await asyncio.get_running_loop().connect_read_pipe(lambda: self, pipe)
        except OSError:
            pipe.close()
            raise
        self._apply()

    def pause(self) -> None:
        """Stop reading for now."""
        self._wants = False
        self._apply()

    def resume(self) -> None:
        """Continue reading."""
        self._wants = True
        self._apply()

    @property
    def is_paused(self) -> bool:
        """Whether reading is paused."""
        return not self._wants

    def close(self) -> None:
        """Close the pipe; `ended` is called then."""
        if self._transport is not None:
            self._transport.close()

    def _apply(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or transport.is_reading() == self._wants:
            return
        if self._wants:
            Context().run(transport.resume_reading)
        else:
            transport.pause_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        self._received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.is_gone = True
        self._ended()


class PipeWriter(asyncio.BaseProtocol):
    """The writer of a pipe, one message after another. `ended` is called once when the pipe is
    closed by either side."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._transport: asyncio.WriteTransport | None = None
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self._room.set()
        self._readers = select.poll()
        self.is_gone = False
        """Whether the pipe is closed."""

    @property
    def is_read(self) -> bool:
        """Whether the pipe has a reader now, even if the event loop has not noticed its end yet."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and not self._readers.poll(0)

    async def connect(self, descriptor: int) -> None:
        """Prepare to write; the pipe is closed with this object, or if this raises OSError."""
        pipe = os.fdopen(descriptor, "wb", buffering=0)
        # Polled for no event, a pipe still reports that its reader is gone.
        self._readers.register(descriptor, 0)
        try:
            transport, _ = await asyncio.get_running_loop().connect_write_pipe(lambda: self, pipe)
        except OSError:
            pipe.close()
            raise
        transport.set_write_buffer_limits(_HIGH)

    async def write(self, message: bytes, call: Sendable | None) -> bool:
        """Write a line in its turn, when there is room. False if there is no reader, and nothing
        was written.

        `call` is marked as sent right before the line is written. If the wait is cancelled, nothing
        is written.
        """
        async with self._turn:
            if not self._room.is_set():
                await self._room.wait()
            transport = self._transport
            if transport is None or not self.is_read:
                return False
            if call is not None:
                call.sent = True
            transport.write(message)
            return True

    def close(self) -> None:
        """Close the pipe: the program does not get what it has not read."""
        transport = self._transport
        if transport is None:
            return
        if transport.get_write_buffer_size():
            transport.abort()
        else:
            transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._room.set()
        self.is_gone = True
        self._ended()
