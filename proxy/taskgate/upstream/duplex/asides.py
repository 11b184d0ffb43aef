"""Buffer of a session's messages that are no answers: `BufferedNotifications` and `AsideStream`.

Over HTTP a session reads such messages from a GET stream; on a channel this takes its place.
`ChannelSession` has one buffer from its beginning to its end, and stores the server's notifications
and requests in it. The legacy session reads them through one `AsideStream` at a time.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from taskgate.errors import UpstreamFailed
from taskgate.upstream.duplex.replies import OK

MOST_UNHEARD: Final = 256
BYTES_UNHEARD: Final = 2**20
"""At most MOST_UNHEARD messages and BYTES_UNHEARD bytes wait without a reader. A session reads
right after its handshake, or never."""


class BufferedNotifications:
    """Messages of one session that wait for its reader, the newest `AsideStream`.

    `released` is called whenever the reader is released, also after `end`; not when a newer one
    replaces it.
    """

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
        """Whether there is a reader now."""
        return self._stream is not None

    def say(self, message: bytes) -> bool:
        """Store a message for the reader. False if there is neither a reader nor room: it is
        dropped."""
        size = self._bytes + len(message)
        if self._stream is None and (len(self._ready) >= MOST_UNHEARD or size > BYTES_UNHEARD):
            return False
        self._bytes = size
        self._ready.append(message)
        self._wake()
        return True

    def listen(self) -> "AsideStream":
        """Return a stream of the stored and all further messages, the new reader. The iteration of
        the reader before it ends."""
        self._stream = AsideStream(self)
        self._wake()
        return self._stream

    def end(self, failure: UpstreamFailed | None = None) -> None:
        """End the buffer with its session: after the stored messages the reader gets `failure`, or
        without one the end of the stream."""
        self._is_over, self._failure = True, failure
        self._wake()

    async def next(self, stream: "AsideStream") -> bytes:
        """Wait for the next message of `stream`.

        Raises StopAsyncIteration once the buffer has ended or `stream` is not the reader any more,
        and the failure of `end`.
        """
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
        """Detach `stream` and call `released`; nothing if it is not the reader any more."""
        if stream is self._stream:
            self._stream = None
            self._released()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class AsideStream:
    """An `Incoming`, as the answer to a GET, that yields the messages of a buffer. It is its own
    iterator."""

    __slots__ = ("_asides",)

    status: int = OK
    session: str | None = None
    streams: bool = True
    last_event: Final = None
    retry: Final = None
    unfinished: Final = 0

    def __init__(self, asides: BufferedNotifications) -> None:
        self._asides = asides

    async def document(self) -> None:
        """Return None: it is a stream."""

    def messages(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return await self._asides.next(self)

    def release(self, *, answered: bool = False) -> None:
        self._asides.let_go(self)
