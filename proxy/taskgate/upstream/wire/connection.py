"""One connection over HTTP/1.1: one request at a time, and what comes back, as aiohttp's parser reads it.

What must not live here: where the connection goes, how it is made, and who gets it next. What holds: a connection is
kept only if its last answer came to its end, and nothing came besides.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Final, Protocol

from aiohttp import ClientPayloadError
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_parser import HttpResponseParser, RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from taskgate.upstream import failures

LINGER: Final = 0.25
"""Seconds that the end of a stream is waited for after its answer, so that the connection can serve the next call."""

_READ_AHEAD: Final = 2**18
"""Bytes of a body that wait for their reader; from twice as many on nothing is read from the server."""

_ONE_PIECE: Final = 2**18
"""Bytes that are handed to the event loop at once: it copies what the network does not take."""

FRAMING: Final = 2**20
"""Bytes beside its body that an answer may always have: heads, also of interim answers, and what frames chunks."""
FRAMING_SHARE: Final = 4
"""Bytes beside its body that it may have besides, for each byte of that; a chunk of one byte has five."""

_NOTHING: Final = memoryview(b"")
_BODILESS: Final = frozenset({204, 304})
_SWITCHED: Final = 101

_Head = asyncio.Future[tuple[RawResponseMessage, StreamReader]]


class ConnectionObserver(Protocol):
    """Whom a connection tells of itself."""

    def made(self, connection: "Connection") -> None:
        """It stands."""
        ...

    def keep(self, connection: "Connection") -> None:
        """It can carry another request."""
        ...

    def forget(self, connection: "Connection") -> None:
        """It must not be given another request."""
        ...

    def lost(self, connection: "Connection") -> None:
        """It is no more."""
        ...


class Connection(BaseProtocol):
    """One connection. `ask` and `release` take turns; `drop` may come at any time."""

    __slots__ = ("_body", "_came", "_head", "_keeper", "_lingering", "_reusable", "_unsent")

    def __init__(self, loop: asyncio.AbstractEventLoop, keeper: ConnectionObserver) -> None:
        super().__init__(loop)
        # Once for all answers: between two of them it has nothing to remember.
        self._parser = HttpResponseParser(
            self,
            loop,
            _READ_AHEAD,
            payload_exception=ClientPayloadError,
            read_until_eof=True,
            auto_decompress=False,
            max_line_size=8190,
            max_field_size=8190,
            max_headers=128,
        )
        self._keeper = keeper
        self._head: _Head | None = None
        self._body: StreamReader | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._reusable = True
        self._unsent = _NOTHING
        self._came = 0

    @property
    def usable(self) -> bool:
        """Whether it stands, as far as is known."""
        return self.transport is not None and not self.transport.is_closing()

    # The turn of a request.

    async def ask(
        self, head: bytes, body: bytes | None, until: float | None, left: Callable[[], None] | None = None
    ) -> tuple[RawResponseMessage, StreamReader]:
        """Send one request; the head of its answer, and a reader of its body.

        `until` is the loop's time at which the wait ends, `left` is told right before the first byte is written. Raises
        UpstreamFailed, unreachable where nothing was written; then, and where the wait is cancelled, the connection is
        dropped.
        """
        # It can end between the moment it is made and the one its maker goes on.
        if self.transport is None or self.transport.is_closing():
            raise failures.unreachable()
        if left is not None:
            left()
        answer: _Head = self._loop.create_future()
        self._head, self._came = answer, 0
        if body is None or len(body) <= _ONE_PIECE:
            self.transport.write(head + (body or b""))
        else:
            self.transport.write(head)
            self._unsent = memoryview(body)
            self._send_more()
        timer = None if until is None else self._loop.call_at(until, self._expire)
        try:
            return await answer
        except asyncio.CancelledError:
            self.drop()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def release(self, *, linger: bool = False) -> None:
        """The answer is not read any more. `linger` gives its end a moment to arrive; without its end it is dropped."""
        if self._body is None or self._body.is_eof():
            self._settle()
        elif linger:
            self._lingering = self._loop.call_later(LINGER, self.drop)
        else:
            self.drop()

    def drop(self) -> None:
        """End it now, with whatever is under way on it."""
        self._keeper.forget(self)
        if self.transport is not None:
            self.transport.abort()

    def _send_more(self) -> None:
        """As much as is taken now. Nobody waits for the rest: a server may answer before it has read everything."""
        while self._unsent and not self._paused and self.transport is not None:
            piece, self._unsent = self._unsent[:_ONE_PIECE], self._unsent[_ONE_PIECE:]
            self.transport.write(piece)
        if not self._unsent:
            # An empty piece of a body would hold the whole of it.
            self._unsent = _NOTHING

    def _settle(self) -> None:
        self._body = None
        self._stop_lingering()
        transport = self.transport
        if (
            self._reusable
            and transport is not None
            and not transport.is_closing()
            and not self._unsent
            and not transport.get_write_buffer_size()
            and not self._began_another()
        ):
            self._keeper.keep(self)
        else:
            self.drop()

    def _began_another(self) -> bool:
        """Whether the parser holds the beginning of an answer nobody asked for, which would be taken for the next."""
        assert self._parser is not None
        try:
            return self._parser.feed_eof() is not None
        except Exception:  # whatever the parser chokes on
            return True

    def _expire(self) -> None:
        self._fail(failures.silent())
        self.drop()

    def _fail(self, failure: Exception) -> None:
        answer, self._head = self._head, None
        if answer is not None and not answer.done():
            answer.set_exception(failure)

    def _stop_lingering(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        super().connection_made(transport)
        self._keeper.made(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came; what came unasked ends the connection."""
        if self._parser is None or self._upgraded:
            return
        if self._head is None and self._body is None:
            self.drop()
            return
        try:
            messages, self._upgraded, _ = self._parser.feed_data(data)
        except Exception:  # whatever the parser chokes on
            self._fail(failures.malformed("its answer is not valid HTTP"))
            self._break_off()
            self.drop()
            return
        for message, body in messages:
            self._hear(message, body)
        self._came += len(data)
        if self._came > FRAMING:
            self._expect_body()
        if self._lingering is not None and self._body is not None and self._body.is_eof():
            self._settle()

    def _hear(self, message: RawResponseMessage, body: StreamReader) -> None:
        status, answer = message.code, self._head
        if message.should_close or status == _SWITCHED:
            self._reusable = False
        if 100 <= status < 200 and status != _SWITCHED:
            return
        if answer is None:
            self._reusable = False
            return
        self._head, self._body = None, body
        if not answer.done():
            answer.set_result((message, EMPTY_PAYLOAD if status in _BODILESS else body))

    def _expect_body(self) -> None:
        """End the connection where little of what came is of a body: no bound of bodies would ever be reached."""
        body = self._body
        if self._came <= FRAMING + (1 + FRAMING_SHARE) * (0 if body is None else body.total_bytes):
            return
        failure = failures.too_talkative()
        self._fail(failure)
        self._body = None
        if body is not None and not body.is_eof():
            body.set_exception(failure)
        self.drop()

    def resume_writing(self) -> None:
        """The server takes more."""
        super().resume_writing()
        self._send_more()

    def eof_received(self) -> None:
        """The server says no more; there is nothing left to say to it."""
        self.drop()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell who waits for an answer, or for the rest of one."""
        super().connection_lost(exc)
        self._keeper.lost(self)
        self._stop_lingering()
        self._fail(failures.closed())
        self._break_off()
        self._parser = None
        self._unsent = _NOTHING

    def _break_off(self) -> None:
        """No more of the body comes, which is the end of one that has no other."""
        body, self._body = self._body, None
        if body is None or body.is_eof():
            return
        assert self._parser is not None
        try:
            self._parser.feed_eof()
        except Exception:  # whatever the parser misses
            body.set_exception(ClientPayloadError())
        if not body.is_eof() and body.exception() is None:
            body.set_exception(ClientPayloadError())

    def resume_reading(self, resume_parser: bool = True) -> None:
        """A reader asks for it whenever it has taken something."""
        if self._reading_paused:
            # What is read from here on may be of another's request.
            Context().run(super().resume_reading, resume_parser)
