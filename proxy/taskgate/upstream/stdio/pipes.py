"""Pipes to a program on the event loop: `Reading` for its output, `Writing` for its input.

`ProgramChannel` and `Chatter` use them. Callbacks run in an empty context, since a pipe serves many
callers. A writer that waits for room does not block other channels.
"""

import asyncio
import os
import select
from collections.abc import Callable
from contextvars import Context
from typing import Final

from taskgate.upstream.base import Sendable

_HIGH: Final = 2**16
"""Bytes that wait for the program to read; above it the next message waits."""


class Reading(asyncio.Protocol):
    """The reader of a pipe. `received` is called with all bytes that arrive, `ended` once when the pipe is
    closed by either side.

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
        self._obey()

    def pause(self) -> None:
        """Stop reading for now."""
        self._wants = False
        self._obey()

    def resume(self) -> None:
        """Continue reading."""
        self._wants = True
        self._obey()

    @property
    def is_paused(self) -> bool:
        """Whether reading is paused."""
        return not self._wants

    def close(self) -> None:
        """Close the pipe; `ended` is called then."""
        if self._transport is not None:
            self._transport.close()

    def _obey(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or transport.is_reading() == self._wants:
            return
        if self._wants:
            Context().run(transport.resume_reading)
        else:
            transport.pause_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.is_gone = True
        self._ended()


class Writing(asyncio.BaseProtocol):
    """The writer of a pipe, one message after another. `ended` is called once when the pipe is closed by
    either side."""

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

        `call` is marked as sent right before the line is written. If the wait is cancelled, nothing is
        written.
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
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._room.set()
        self.is_gone = True
        self._ended()
