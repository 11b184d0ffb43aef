"""One HTTP exchange as the engine sees it: what came in, and the two ways to answer.

The listener builds an `Exchange` for each request whose head it lets through and awaits the `Reply`. The body is there
for the asking, so that it is received for nobody who was not let in before. An engine that needs longer,
or has something to say before the answer, turns the exchange into an event stream; the reply is then its last event.
Knows no aiohttp.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

FEED_BYTES: Final = 4 * 1024 * 1024
"""How much may wait for a host that reads slowly before its stream is ended."""
UNKNOWN: Final = "unknown"
"""Where a request comes from when that cannot be told."""


class Verb(StrEnum):
    """The HTTP methods of an MCP endpoint."""

    POST = "POST"
    GET = "GET"
    DELETE = "DELETE"


class Inbound(NamedTuple):
    """The head of a request, which passed the listener's checks.

    `authorization` are all the fields of that name, and `query` what follows the path: both are for whoever finds out
    who asks, and for nobody else.
    """

    verb: Verb
    path: str
    host_session: str | None = None
    revision: str | None = None
    accepts_json: bool = True
    accepts_stream: bool = True
    authorization: tuple[str, ...] = ()
    query: str = ""


class ListenerRefused(Exception):
    """The listener does not take the request after all, and has an answer of its own: the engine lets this pass."""


class Reply(NamedTuple):
    """The answer: a JSON document, or no body at all."""

    status: int = 200
    body: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Feed:
    """The messages on their way to one event stream: bounded, one reader, any number of writers.

    `pass_on` is offered each message that finds the reader waiting, and so spares waking it; it must not block or
    raise, and says False to leave the message to the reader.
    """

    def __init__(self, limit: int = FEED_BYTES, *, pass_on: Callable[[str], bool] = lambda _: False) -> None:
        self._limit = limit
        self._pass_on = pass_on
        self._passed_on_at = 0.0
        self._waiting: deque[str] = deque()
        self._size = 0
        self._closed = False
        self._reader: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None

    @property
    def closed(self) -> bool:
        """Whether the stream ended, by its writers, by its host, or because too much was waiting."""
        return self._closed

    def put(self, message: str) -> bool:
        """Queue one message; False where the stream has ended. A host too slow for `limit` bytes ends it."""
        if self._closed:
            return False
        if self._reader is not None and not self._waiting and self._pass_on(message):
            self._passed_on_at = self._reader.get_loop().time()
            return True
        if self._waiting and self._size + len(message) > self._limit:
            self.close()
            return False
        self._waiting.append(message)
        self._size += len(message)
        self._wake()
        return True

    def close(self) -> None:
        """End the stream after what is already queued."""
        self._closed = True
        self._wake()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    async def ended(self) -> None:
        """Wait until the stream has ended, by whomever. For one waiter."""
        if not self._closed:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended

    async def next(self, patience: float) -> str | None:
        """The next message; None when `patience` seconds passed without any, or the stream ended: see `drained`."""
        loop = asyncio.get_running_loop()
        due = loop.time() + patience
        while not self._waiting and not self._closed:
            await self._news(loop, due)
            if self._passed_on_at + patience <= due:
                break
            due = self._passed_on_at + patience
        if not self._waiting:
            return None
        message = self._waiting.popleft()
        self._size -= len(message)
        return message

    @property
    def drained(self) -> bool:
        """Whether the stream ended and nothing is left to send."""
        return self._closed and not self._waiting

    async def _news(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
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


class Exchange(Protocol):
    """One request and the connection it came on, as the listener offers it to the engine."""

    @property
    def inbound(self) -> Inbound:
        """What came in."""
        ...

    @property
    def address(self) -> str:
        """Where the request comes from: an IP address or UNKNOWN. For operators to read; nothing is decided by it."""
        ...

    async def body(self) -> bytes:
        """The body, whole and within bounds, which may have to be waited for; to be asked for once.

        Not before it is known who asks: a host that waits is told to go on. Raises ListenerRefused. A reply without
        this ends the connection of a host that has more to send.
        """
        ...

    def stream(self) -> Feed:
        """Turn the answer into an event stream, at once; the same feed when called again.

        Only for a host that accepts one (`inbound.accepts_stream`). The feed is closed when the host leaves.
        """
        ...

    @property
    def streams(self) -> bool:
        """Whether the answer has become an event stream."""
        ...

    def when_gone(self, forget: Callable[[], None]) -> None:
        """Call `forget` once if the host leaves before the answer; at once if it has left already."""
        ...


Answer = Callable[[Exchange], Awaitable[Reply]]
"""What the listener asks of the engine: never raises but for cancellation and the listener's own ListenerRefused."""
