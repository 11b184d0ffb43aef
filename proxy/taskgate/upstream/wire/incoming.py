"""The answer of a server while it is read: `HttpIncoming`.

`transport` and `sse` get one for each response when its head has arrived. The reader takes the
messages, and calls `release` in any case, which gives the connection back or drops it. Limits on
size, rate and noise apply while it is read and end in UpstreamFailed.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Self

from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.sse import EventDecoder, EventTooLarge
from taskgate.upstream import failures
from taskgate.upstream.notification_limits import SAID_A_SECOND, LeftOut, NotificationBudget
from taskgate.upstream.wire.connection import Connection, Target
from taskgate.upstream.wire.heads import AnswerHead

A_TURN: Final = 32 * 1024
"""Bytes of an event stream that are processed before the event loop runs other tasks."""
NOISE: Final = 64 * 1024
"""Bytes of an event stream without messages (comments, empty lines, events of other types) that may
come within NOISE_WITHIN."""
NOISE_WITHIN: Final = 16.0
"""Seconds in which the noise limit may be reached once. The first time is allowed always, since the
start of the noise is unknown."""


class HttpIncoming:
    """An `Incoming` over HTTP. It is its own iterator, so that abandoning it half read costs
    nothing.

    - `status`, `session`, `streams`: from the head. `streams`: the body is an event stream.
    - `document`: the whole body of an answer that is no event stream.
    - `messages`: begins to read the body; then each iteration returns a message.
    - `last_event`, `retry`: the newest event id, and the pause before a reopening, as the server
      gave them; None without. `unfinished`: the bytes of an event that has not ended.
    - `release`: must be called once at the end; gives the connection back, or drops it.

    `limit` is the largest message in bytes. All bytes of an event stream count towards its limit,
    except answers, which its reader reports by `answered`. `idle` is the allowed silence in
    seconds. `left_out` logs messages that are dropped. `placed` is called with the newest event id,
    after the messages before it were taken. `target` is what gave the answer, as its user names it.
    `has_valid_type`: the Content-Type, if any, is valid.
    """

    __slots__ = (
        "_beside",
        "_connection",
        "_decoder",
        "_fed",
        "_fed_from",
        "_idle",
        "_left_out",
        "_limit",
        "_noise_from",
        "_place",
        "_placed",
        "_ready",
        "_rest",
        "_unreadable",
        "_wait",
        "_was_read",
        "has_more",
        "has_valid_type",
        "session",
        "status",
        "streams",
        "target",
    )

    def __init__(
        self,
        connection: Connection,
        head: AnswerHead,
        target: Target,
        limit: int,
        idle: float | None,
        left_out: LeftOut,
        placed: Callable[[str], None] | None = None,
    ) -> None:
        self._connection: Connection | None = connection
        self._limit = limit
        self._idle = idle
        self._placed = placed
        self._left_out = left_out
        # None before `messages`, as the messages to deliver.
        self._decoder: EventDecoder | None = None
        self._ready: deque[bytes] | None = None
        self._was_read = False
        self._unreadable = head.unreadable
        self.has_more = False
        self.target: Final = target
        self.status: int = head.status
        self.session: str | None = head.session
        self.streams: bool = head.streams
        self.has_valid_type: Final[bool] = head.has_valid_type

    def messages(self, other: Callable[[bytes, bytes], None] | None = None) -> Self:
        """Begin to read the body, and return the iterator of its messages. `other` is called with
        type and data of events that are no message.

        Raises UpstreamFailed if the body is neither JSON nor an event stream. So do iterations, for
        a body that breaks off, is silent for too long, or exceeds a limit.
        """
        if self._ready is None:
            if self._unreadable is not None:
                raise protocol_violation(self._unreadable)
            self._ready = deque()
            if self.streams:
                self._decoder = EventDecoder(self._limit, other)
                self._place: str | None = None
                # The part of a large chunk that is decoded later.
                self._rest = b""
                # Bytes of the stream that count towards the limit.
                self._fed = 0
                self._beside: NotificationBudget | None = None
                # Seconds to wait before more is read.
                self._wait = 0.0
                # The loop times since which the bytes, and the noise, are counted.
                self._fed_from = self._noise_from = -math.inf
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        assert self._ready is not None, "messages() comes before reading"
        if self._decoder is None:
            if self._was_read:
                raise StopAsyncIteration
            return await self.document()
        while not self._ready:
            place = self._decoder.last_id
            if place != self._place and place is not None and self._placed is not None:
                self._place = place
                self._placed(place)
            if self._wait:
                await asyncio.sleep(self._wait)
                self._wait = 0.0
            chunk = self._rest
            if not chunk:
                while True:
                    connection = self._connection or self._reads_from()
                    chunk = connection.take()
                    if chunk:
                        break
                    if connection.has_ended:
                        raise StopAsyncIteration
                    await connection.more(self._idle)
            if self._rest or len(chunk) > A_TURN:
                chunk = await self._some_of(chunk)
            self._fed += len(chunk)
            if self._fed > self._limit or self._decoder.noise > NOISE:
                self._expect_moderate(self._decoder)
            try:
                messages = self._decoder.feed(chunk)
            except EventTooLarge:
                raise failures.too_large() from None
            if messages and (self._fed > A_TURN or self._beside is not None):
                messages = self._passed_on(messages)
            if len(messages) == 1:
                self.has_more = False
                return messages[0]
            self._ready.extend(messages)
        message = self._ready.popleft()
        self.has_more = bool(self._ready)
        return message

    def answered(self, size: int) -> None:
        """Take `size` bytes off the count: an answer was among the messages of a stream that
        carries many."""
        self._fed -= size

    def _passed_on(self, messages: list[bytes]) -> list[bytes]:
        """Return the messages to deliver, and set the pause before more is read; not used in the
        first turn."""
        beside = self._beside
        if beside is None:
            beside = self._beside = NotificationBudget(self._left_out)
        now = asyncio.get_running_loop().time()
        self._wait = beside.wait(len(messages), now)
        return beside.heard(messages, now)

    async def _some_of(self, chunk: bytes) -> bytes:
        """Return the first part of a large chunk; other tasks run before the rest."""
        if self._rest:
            await asyncio.sleep(0)
        self._rest = chunk[A_TURN:]
        return chunk[:A_TURN]

    def _expect_moderate(self, decoder: EventDecoder) -> None:
        """Raise UpstreamFailed if a limit is reached again too soon; else start to count anew.

        An unfinished event is not counted: it may be the answer, which has a limit of its own.
        """
        now = asyncio.get_running_loop().time()
        if decoder.noise > NOISE:
            if now - self._noise_from < NOISE_WITHIN:
                raise failures.too_talkative()
            self._noise_from, decoder.noise = now, 0
        said = self._fed - decoder.unfinished
        if said > self._limit:
            if now - self._fed_from < self._limit / SAID_A_SECOND:
                raise failures.too_talkative()
            self._fed_from, self._fed = now, self._fed - said

    @property
    def last_event(self) -> str | None:
        return None if self._decoder is None else self._decoder.last_id

    @property
    def unfinished(self) -> int:
        return 0 if self._decoder is None else self._decoder.unfinished

    @property
    def retry(self) -> timedelta | None:
        milliseconds = None if self._decoder is None else self._decoder.retry
        return None if milliseconds is None else timedelta(milliseconds=milliseconds)

    def release(self, *, answered: bool = False) -> None:
        connection, self._connection = self._connection, None
        # A body that broke off may stay in a reference cycle, which must not keep the call alive.
        self._placed = None
        if connection is not None:
            connection.release(linger=answered)

    def drop(self) -> None:
        """Drop the connection, whatever of the body has arrived."""
        if self._connection is not None:
            self._connection.drop()

    async def document(self) -> bytes:
        if self._unreadable is not None:
            raise protocol_violation(self._unreadable)
        self._was_read = True
        connection, limit, pieces = self._connection or self._reads_from(), self._limit, list[bytes]()
        if connection.length > limit:
            raise failures.too_large()
        while True:
            piece = connection.take()
            if connection.received > limit:
                raise failures.too_large()
            if connection.has_ended:
                # Nearly always at once: all of it came with the head.
                return b"".join((*pieces, piece)) if pieces else piece
            pieces.append(piece)
            await connection.more(self._idle)
            connection = self._reads_from()

    def _reads_from(self) -> Connection:
        """Return the connection. Raises UpstreamFailed after `release`: it may have another request."""
        if self._connection is None:
            raise failures.broke_off()
        return self._connection
