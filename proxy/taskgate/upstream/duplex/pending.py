"""Requests that wait for an answer on a channel: `PendingRequest`, and `Receipt` of other messages.

`Dispatcher` adds the messages of a request to it, until the answer, a failure, or the end of the
channel. The reader takes them, and must `end` or `release` the request in any case. Messages that
arrived before a failure are read before it. `UnreadBytes` limits what waits for readers.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, NamedTuple, Protocol, Self

from taskgate.domain.record import RequestId
from taskgate.errors import UpstreamFailed
from taskgate.upstream import failures
from taskgate.upstream.duplex.base import ChannelRefusal, MessageChannel

OK: Final = 200
ACCEPTED: Final = 202
MAX_UNREAD: Final = 2**20
"""Bytes stored for readers at which reading pauses; it continues below a quarter of them."""


class RequestOwner(Protocol):
    """Owner of a request: a `ChannelSession` or a `ModernRequest`.

    `id` is the id of its session, empty without one; `context` is its auth context.
    """

    id: str
    context: str

    def on_ended(self, request: "PendingRequest") -> None:
        """The request has ended: its reader is done with it, whether or not it was answered. Called
        once."""
        ...


class UnreadBytes:
    """Bytes of a channel that wait for readers. While there are too many, the channel is paused."""

    __slots__ = ("_channel", "_is_paused", "_size")

    def __init__(self, channel: MessageChannel) -> None:
        self._channel = channel
        self._size = 0
        self._is_paused = False

    def add(self, size: int) -> None:
        """Count bytes that wait for a reader. Above MAX_UNREAD, reading from the channel pauses."""
        self._size += size
        if self._size > MAX_UNREAD and not self._is_paused:
            self._is_paused = True
            self._channel.pause()

    def remove(self, size: int) -> None:
        """Count bytes that a reader has taken or dropped. Below a quarter of MAX_UNREAD, reading
        from the channel continues. Every byte of `add` must be counted here once."""
        self._size -= size
        if self._is_paused and self._size < MAX_UNREAD // 4:
            self._is_paused = False
            self._channel.resume()


class Receipt(NamedTuple):
    """The HTTP status of a message or an event stream at an SSE server, and the pause that it asks for;
    `ACCEPTED` on other channels."""

    status: int
    retry_after: timedelta | None = None

    def release(self, *, answered: bool = False) -> None:
        """Do nothing: there is no more to read."""


class PendingRequest:
    """The answer to the request `id`. It is its own iterator, so that abandoning it half read costs
    nothing.

    `owner` is its observer. `idle` is the allowed silence within it. `status` is 200, or the HTTP
    status by which an SSE server refused the request, and `retry_after` the pause that it asks for.
    `streams`: messages came before the answer, or none has arrived. It is the `Incoming` of a modern
    request.
    """

    __slots__ = (
        "_failure",
        "_has_begun",
        "_idle",
        "_ready",
        "_unread",
        "_waiter",
        "about",
        "id",
        "is_answered",
        "is_over",
        "owner",
        "retry_after",
        "status",
        "streams",
        "was_sent",
    )

    session: str | None = None
    placed: Callable[[str], None] | None = None
    # No stream of a channel can be resumed.
    last_event: Final = None
    retry: Final = None
    unfinished: Final = 0

    def __init__(self, id: RequestId, owner: RequestOwner, unread: UnreadBytes, idle: timedelta | None) -> None:
        self.id = id
        self.status = OK
        self.retry_after: timedelta | None = None
        self.streams = True
        self.about: str | None = None
        """The server's id of the task whose result was requested."""
        self.is_answered = False
        """Whether no more messages follow: the last one arrived, or the server refused or ended the
        request."""
        self.is_over = False
        """Whether its reader is done with it (`end`)."""
        self.was_sent = False
        """Whether the server may be working on the request: it was sent, or is being sent."""
        self.owner = owner
        self._unread = unread
        self._idle = None if idle is None else idle.total_seconds()
        self._ready: deque[bytes] = deque()
        self._has_begun = False
        self._waiter: asyncio.Future[None] | None = None
        self._failure: UpstreamFailed | None = None

    # --- calls of its channel -----------------------------------------------------------------------------------------

    def arrive(self, message: bytes) -> None:
        """Add a message that comes before the answer."""
        self._has_begun = True
        self._ready.append(message)
        self._unread.add(len(message))
        self._wake()

    def answer(self, message: bytes) -> None:
        """Add the answer, the last message."""
        self.is_answered = True
        self.streams = self._has_begun
        self.arrive(message)

    def close(self) -> None:
        """End it without an answer: the server has ended its stream."""
        self.is_answered = True
        self._wake()

    def fail(self, failure: UpstreamFailed) -> None:
        """End it with a failure, which its reader gets after the stored messages; nothing if it is
        answered."""
        if not self.is_answered and self._failure is None:
            self._failure = failure
            self._wake()

    def refuse(self, refusal: ChannelRefusal) -> None:
        """End it: the server did not accept the request."""
        if self._has_begun:
            # The reader already has another status.
            self.fail(failures.refused(refusal.status, retry_after=refusal.retry_after))
        elif not self.is_answered and self._failure is None:
            self.is_answered = True
            self.streams = False
            self.status, self.retry_after = refusal
            self._wake()

    # --- calls of its reader ------------------------------------------------------------------------------------------

    async def wait(self, until: float | None) -> None:
        """Wait until a message can be taken, or for the end, until the loop time `until` at most.
        Raises UpstreamFailed."""
        if self._ready or self.is_answered:
            return
        if self._failure is not None:
            raise self._failure.copy()
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if until is None else loop.call_at(until, self._expire)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
        if self._failure is not None and not self._ready:
            raise self._failure.copy()

    @property
    def first(self) -> bytes | None:
        """The next message, which is not taken; None if none is there."""
        return self._ready[0] if self._ready else None

    @property
    def has_more(self) -> bool:
        return bool(self._ready)

    def offer_to(self, take: Callable[[Sequence[bytes]], int]) -> None:
        """Ignore it: a channel reads on for its other requests, whatever becomes of this one."""

    async def document(self) -> bytes | None:
        return await anext(self, None)

    def messages(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        ready = self._ready
        if not ready:
            if self.is_answered:
                raise StopAsyncIteration
            idle = self._idle
            await self.wait(None if idle is None else asyncio.get_running_loop().time() + idle)
            if not ready:
                raise StopAsyncIteration
        message = ready.popleft()
        self._unread.remove(len(message))
        return message

    def drop(self) -> None:
        """Do nothing: the channel has other requests, and finds each answer by its id."""

    def release(self, *, answered: bool = False) -> None:
        self.end()

    def end(self) -> None:
        """Finish with it: drop what was not read, and call `on_ended` of the observer. A second
        call does nothing."""
        if self.is_over:
            return
        self.is_over = True
        if self._ready:
            self._unread.remove(sum(map(len, self._ready)))
            self._ready.clear()
        self.owner.on_ended(self)

    def _expire(self) -> None:
        self.fail(failures.silent())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
