"""What a server says in a session beside its answers: kept until somebody listens, heard on one stream.

What must not live here: what is said to which session (`company`).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from taskgate.errors import UpstreamFailed
from taskgate.upstream.duplex.replies import OK

MOST_UNHEARD: Final = 256
BYTES_UNHEARD: Final = 2**20
"""What is kept of a session that does not listen: a session listens right after its handshake, or not at all."""


class BufferedNotifications:
    """What was said and not heard yet. `released` is told when nobody listens any more."""

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
        """Whether somebody listens."""
        return self._stream is not None

    def say(self, message: bytes) -> bool:
        """Keep a message for whoever listens; False where there is no room for it."""
        size = self._bytes + len(message)
        if self._stream is None and (len(self._ready) >= MOST_UNHEARD or size > BYTES_UNHEARD):
            return False
        self._bytes = size
        self._ready.append(message)
        self._wake()
        return True

    def listen(self) -> "AsideStream":
        """Hear what was said, and what is from now on; whoever heard it before hears no more."""
        self._stream = AsideStream(self)
        self._wake()
        return self._stream

    def end(self, failure: UpstreamFailed | None = None) -> None:
        """Nothing more is said, for that reason if there is one."""
        self._is_over, self._failure = True, failure
        self._wake()

    async def next(self, stream: "AsideStream") -> bytes:
        """What was said next. StopAsyncIteration for who has nothing more to hear; raises what `end` was told."""
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
        """Who listens does so no more."""
        if stream is self._stream:
            self._stream = None
            self._released()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class AsideStream:
    """The stream on which it is heard; see Incoming. It is its own iterator."""

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
        """See Incoming."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return await self._asides.next(self)

    async def release(self, *, answered: bool = False) -> None:
        """See Incoming."""
        self._asides.let_go(self)
