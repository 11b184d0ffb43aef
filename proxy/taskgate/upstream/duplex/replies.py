"""What comes back for one request on a line, as it is waited for and read; and answers that are a status alone.

What must not live here: which message belongs to the request (`channel`). What holds: what was heard before a failure
is read before it.
"""

import asyncio
from collections import deque
from datetime import timedelta
from typing import Final, Protocol, Self

from taskgate.domain.record import RequestId
from taskgate.errors import UpstreamFailed
from taskgate.upstream import failures

OK: Final = 200


class ReplyObserver(Protocol):
    """Whom a reply tells of itself. `id` is the session that it is of, empty where there is none; `context` whose."""

    id: str
    context: str

    def keep(self, size: int) -> None:
        """So many bytes more wait to be read."""
        ...

    def read(self, size: int) -> None:
        """So many bytes do not wait any more."""
        ...

    def let_go(self, reply: "ChannelReply") -> None:
        """Nobody reads it any more, whether or not its answer came."""
        ...


class Status:
    """An answer that is a status, and nothing else; see Incoming."""

    __slots__ = ("status",)

    session: str | None = None
    streams: bool = False
    last_event: Final = None
    retry: Final = None
    unfinished: Final = 0

    def __init__(self, status: int) -> None:
        self.status = status

    def messages(self) -> Self:
        """None; see Incoming."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        raise StopAsyncIteration

    async def release(self, *, answered: bool = False) -> None:
        """Nothing; see Incoming."""


class ChannelReply:
    """The answer to one request; see Incoming. It is its own iterator, so that leaving it half read costs nothing.

    `idle` are the seconds of silence within it that are borne. `session` is for who asked to have one.
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
        "keeper",
        "session",
        "status",
        "streams",
        "was_sent",
    )

    last_event: Final = None
    retry: Final = None
    unfinished: Final = 0

    def __init__(self, id: RequestId, keeper: ReplyObserver, idle: timedelta | None) -> None:
        self.id = id
        self.status = OK
        self.streams = True
        self.session: str | None = None
        self.about: str | None = None
        """The server's id of the task whose result was asked for."""
        self.is_answered = False
        """Whether nothing follows on what was heard."""
        self.is_over = False
        """Whether nobody reads it any more."""
        self.was_sent = False
        """Whether the server may be at work at it."""
        self.keeper = keeper
        self._idle = None if idle is None else idle.total_seconds()
        self._ready: deque[bytes] = deque()
        self._has_begun = False
        self._waiter: asyncio.Future[None] | None = None
        self._failure: UpstreamFailed | None = None

    # What the line tells.

    def arrive(self, message: bytes) -> None:
        """The server said that on the way to its answer."""
        self._has_begun = True
        self._ready.append(message)
        self.keeper.keep(len(message))
        self._wake()

    def answer(self, message: bytes) -> None:
        """The server's answer."""
        self.is_answered = True
        self.streams = self._has_begun
        self.arrive(message)

    def close(self) -> None:
        """The server says no more, and ends it without an answer."""
        self.is_answered = True
        self._wake()

    def fail(self, failure: UpstreamFailed) -> None:
        """No more comes."""
        if not self.is_answered and self._failure is None:
            self._failure = failure
            self._wake()

    def refuse(self, status: int) -> None:
        """The server did not take the request."""
        if self._has_begun:
            # Its head is known by now, and was another.
            self.fail(failures.refused(status))
        elif not self.is_answered and self._failure is None:
            self.is_answered = True
            self.streams = False
            self.status = status
            self._wake()

    # What its reader asks.

    async def begun(self, until: float | None) -> None:
        """Wait for the first of it; no longer than until the loop's time `until`. Raises UpstreamFailed."""
        if not self._ready and not self.is_answered:
            await self._more(until)

    @property
    def first(self) -> bytes | None:
        """What is read next, where it is there."""
        return self._ready[0] if self._ready else None

    def messages(self) -> Self:
        """See Incoming."""
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
        self.keeper.read(len(message))
        return message

    async def release(self, *, answered: bool = False) -> None:
        """Be done with it; see Incoming."""
        self.end()

    def end(self) -> None:
        """Be done with it; a second time does nothing."""
        if self.is_over:
            return
        self.is_over = True
        kept, self._ready = self._ready, deque()
        self.keeper.read(sum(map(len, kept)))
        self.keeper.let_go(self)

    async def _more(self, until: float | None) -> None:
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
