"""Buffer of a session's messages besides answers: `BufferedNotifications` and `AsideStream`.

It takes the place of the GET stream of Streamable HTTP. `ChannelSession` fills it, and the legacy
session reads it like such a stream.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from taskgate.errors import UpstreamFailed
from taskgate.upstream.duplex.replies import OK

MOST_UNHEARD: Final = 256
BYTES_UNHEARD: Final = 2**20
"""MOST_UNHEARD messages and so many bytes are stored without a reader: a session reads right after
its handshake, or never."""


class BufferedNotifications:
    """Messages that were not read yet. `released` is called when the reader leaves."""

    __slots__ = ("_bytes", "_failure", "_is_over", "_ready", "_released", "_stream", "_waiter")

    def __init__(self, released: Callable[[], None]) -> None:
        self._ready: deque[bytes] = deque()
        self._bytes = 0
        self._released = released
        self._stream: AsideStream | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._failure: UpstreamFailed | None = None
        self._is_over = False

    @property
    def are_heard(self) -> bool:
        """Whether there is a reader."""
        return self._stream is not None

    def say(self, message: bytes) -> bool:
        """Store a message for the reader; False if there is no room."""
        size = self._bytes + len(message)
        if self._stream is None and (len(self._ready) >= MOST_UNHEARD or size > BYTES_UNHEARD):
            return False
        self._bytes = size
        self._ready.append(message)
        self._wake()
        return True

    def listen(self) -> "AsideStream":
        """Return a stream of the stored and all further messages; an earlier stream ends."""
        self._stream = AsideStream(self)
        self._wake()
        return self._stream

    def end(self, failure: UpstreamFailed | None = None) -> None:
        """End the buffer; after the stored messages the reader gets `failure`, if given."""
        self._is_over, self._failure = True, failure
        self._wake()

    async def next(self, stream: "AsideStream") -> bytes:
        """Return the next message. StopAsyncIteration for an ended stream; raises the failure of
        `end`."""
        while stream is self._stream:
            if self._ready:
                message = self._ready.popleft()
                self._bytes -= len(message)
                return message
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                break
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            await waiter
        raise StopAsyncIteration

    def let_go(self, stream: "AsideStream") -> None:
        """Detach the reader."""
        if stream is self._stream:
            self._stream = None
            self._released()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class AsideStream:
    """An `Incoming` that yields the messages of a buffer. It is its own iterator."""

    __slots__ = ("_asides",)

    status: int = OK
    session: str | None = None
    streams: bool = True
    last_event: Final = None
    retry: Final = None
    unfinished: Final = 0

    def __init__(self, asides: BufferedNotifications) -> None:
        self._asides = asides

    def messages(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return await self._asides.next(self)

    async def release(self, *, answered: bool = False) -> None:
        self._asides.let_go(self)
