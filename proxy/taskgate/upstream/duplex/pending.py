"""Requests that wait for an answer on a channel: `PendingRequest`; `Status` is a status alone.

Both are `Incoming`, so sessions read them like HTTP answers. `Dispatcher` adds the messages of a
request to its request, until the answer, a failure, or the end of the channel. The reader takes them,
and must `end` or `release` the request in any case. Messages that arrived before a failure are read
before it.
"""

import asyncio
from collections import deque
from datetime import timedelta
from typing import Final, Protocol, Self

from taskgate.domain.record import RequestId
from taskgate.errors import UpstreamFailed
from taskgate.upstream import failures

OK: Final = 200


class RequestOwner(Protocol):
    """Owner of a request: a `ChannelSession` or a `ModernRequest`.

    `id` is the id of its session, empty without one; `context` is its auth context.
    """

    id: str
    context: str

    def keep(self, size: int) -> None:
        """Count bytes that were stored in the request and wait to be read."""
        ...

    def read(self, size: int) -> None:
        """Count bytes that left the request: they were read, or dropped at its end."""
        ...

    def let_go(self, request: "PendingRequest") -> None:
        """The request has ended: its reader is done with it, whether or not it was answered. Called
        once."""
        ...


class Status:
    """An `Incoming` that is an HTTP status without a body."""

    __slots__ = ("status",)

    session: str | None = None
    streams: bool = False
    last_event: Final = None
    retry: Final = None
    unfinished: Final = 0

    def __init__(self, status: int) -> None:
        self.status = status

    async def document(self) -> None:
        """Return None: there is no body."""

    def messages(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        raise StopAsyncIteration

    def release(self, *, answered: bool = False) -> None:
        """Do nothing."""


class PendingRequest:
    """The answer to the request `id`. It is its own iterator, so that abandoning it half read costs
    nothing.

    `owner` is its observer. `idle` is the allowed silence within it. `status` is an HTTP status:
    200, or one by which an SSE server refused the request. `streams`: messages came before the
    answer, or none has arrived. `session` is set in the answer to `initialize`.
    """

    __slots__ = (
        "_failure",
        "_has_begun",
        "_idle",
        "_ready",
        "_waiter",
        "about",
        "id",
        "is_answered",
        "is_over",
        "owner",
        "session",
        "status",
        "streams",
        "was_sent",
    )

    last_event: Final = None
    retry: Final = None
    unfinished: Final = 0

    def __init__(self, id: RequestId, owner: RequestOwner, idle: timedelta | None) -> None:
        self.id = id
        self.status = OK
        self.streams = True
        self.session: str | None = None
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
        self.owner.keep(len(message))
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

    def refuse(self, status: int) -> None:
        """End it with the HTTP status by which the server did not accept the request."""
        if self._has_begun:
            # The reader already has another status.
            self.fail(failures.refused(status))
        elif not self.is_answered and self._failure is None:
            self.is_answered = True
            self.streams = False
            self.status = status
            self._wake()

    # --- calls of its reader ------------------------------------------------------------------------------------------

    async def begun(self, until: float | None) -> None:
        """Wait for the first message or the end, until the loop time `until` at most. Raises
        UpstreamFailed."""
        if not self._ready and not self.is_answered:
            await self._more(until)

    @property
    def first(self) -> bytes | None:
        """The next message, which is not taken; None if none is there."""
        return self._ready[0] if self._ready else None

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
            await self._more(None if idle is None else asyncio.get_running_loop().time() + idle)
            if not ready:
                raise StopAsyncIteration
        message = ready.popleft()
        self.owner.read(len(message))
        return message

    def release(self, *, answered: bool = False) -> None:
        self.end()

    def end(self) -> None:
        """Finish with it: drop what was not read, and call `let_go` of the observer. A second call
        does nothing."""
        if self.is_over:
            return
        self.is_over = True
        kept, self._ready = self._ready, deque()
        self.owner.read(sum(map(len, kept)))
        self.owner.let_go(self)

    async def _more(self, until: float | None) -> None:
        """Wait for a message or the end, until the loop time `until` at most. Raises
        UpstreamFailed."""
        if self._failure is not None:
            raise self._failure
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
            raise self._failure

    def _expire(self) -> None:
        self.fail(failures.silent())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
