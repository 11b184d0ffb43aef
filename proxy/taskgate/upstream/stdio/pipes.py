"""The gateway's ends of a program's standard streams, on the event loop.

What must not live here: what is read (`channel`, `chatter`). What holds: nothing that is ambient where a pipe is made
or read on is ambient in what it tells; and nobody who writes holds up anybody else.
"""

import asyncio
import os
import select
from collections.abc import Callable
from contextvars import Context
from typing import Final

_HIGH: Final = 2**16
"""Bytes that wait for the program to read; with more of them, the next message waits until there are fewer."""


class Reading(asyncio.Protocol):
    """Reads a pipe. `received` gets the bytes, `ended` is told once that no more come."""

    def __init__(self, received: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._received = received
        self._ended = ended
        self._transport: asyncio.ReadTransport | None = None
        self._wants = True
        self.is_gone = False
        """Whether the pipe is closed."""

    async def connect(self, descriptor: int) -> None:
        """Begin to read; the pipe is closed with this."""
        await asyncio.get_running_loop().connect_read_pipe(lambda: self, os.fdopen(descriptor, "rb", buffering=0))
        self._obey()

    def pause(self) -> None:
        """Read no further."""
        self._wants = False
        self._obey()

    def resume(self) -> None:
        """Read on."""
        self._wants = True
        self._obey()

    @property
    def is_paused(self) -> bool:
        """Whether it was told to read no further."""
        return not self._wants

    def close(self) -> None:
        """Read no more; `ended` is told where it was not."""
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
        """See asyncio."""
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._transport = None
        self.is_gone = True
        self._ended()


class Writing(asyncio.BaseProtocol):
    """Writes a pipe, one message after another. `ended` is told once that nobody reads it any more."""

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
        """Whether there is somebody to read what is written now, also where the loop has not heard of their end yet."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and not self._readers.poll(0)

    async def connect(self, descriptor: int) -> None:
        """Be able to write; the pipe is closed with this."""
        pipe = os.fdopen(descriptor, "wb", buffering=0)
        # Of a pipe that is watched for nothing the system tells that nobody reads it any more.
        self._readers.register(descriptor, 0)
        transport, _ = await asyncio.get_running_loop().connect_write_pipe(lambda: self, pipe)
        transport.set_write_buffer_limits(_HIGH)

    async def write(self, message: bytes, left: Callable[[], None] | None) -> bool:
        """Write a line when it is its turn; False where nobody reads it, and nothing was told or written.

        `left` is told before. Where the wait is cancelled nothing is written.
        """
        async with self._turn:
            if not self._room.is_set():
                await self._room.wait()
            transport = self._transport
            if transport is None or not self.is_read:
                return False
            if left is not None:
                left()
            transport.write(message)
            return True

    def close(self) -> None:
        """Write no more: what the program has not read by now, it does not get."""
        transport = self._transport
        if transport is None:
            return
        if transport.get_write_buffer_size():
            transport.abort()
        else:
            transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def pause_writing(self) -> None:
        """See asyncio."""
        self._room.clear()

    def resume_writing(self) -> None:
        """See asyncio."""
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._transport = None
        self._room.set()
        self.is_gone = True
        self._ended()
