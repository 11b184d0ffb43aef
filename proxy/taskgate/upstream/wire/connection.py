"""One HTTP/1.1 connection: `Connection`, an asyncio protocol on aiohttp's response parser.

It has one request at a time. `ask` sends it and returns the head of the answer; the caller reads
the body and then calls `release`. `pool` owns the connection and is its `ConnectionObserver`;
`dialing` opens it. A connection is reused only if its last answer was read to the end and nothing
else arrived. Otherwise `release` drops it.
"""

import asyncio
from contextvars import Context
from typing import Final, Protocol

from aiohttp import ClientPayloadError
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_parser import HttpResponseParser, RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from taskgate.protocol.faults import protocol_violation
from taskgate.upstream import failures
from taskgate.upstream.base import Sendable

LINGER: Final = 0.25
"""Seconds to wait for the end of a stream after its answer, so that the connection can be reused."""

_READ_AHEAD: Final = 2**18
"""Bytes of a body that wait for their reader; reading from the server stops at twice as many."""

_ONE_PIECE: Final = 2**18
"""Bytes given to the event loop at once: it copies what the network does not take."""

FRAMING: Final = 2**20
"""Bytes besides its body that every answer may have: heads, interim answers and chunk framing."""
FRAMING_SHARE: Final = 4
"""Further bytes besides its body, for each byte of it; a chunk of one byte has five."""

_NOTHING: Final = memoryview(b"")
_BODILESS: Final = frozenset({204, 304})
_SWITCHED: Final = 101

_Head = asyncio.Future[tuple[RawResponseMessage, StreamReader]]


class ConnectionObserver(Protocol):
    """The receiver of the events of a connection; implemented by the pool. No method waits."""

    def made(self, connection: "Connection") -> None:
        """The connection is open. Called once."""
        ...

    def keep(self, connection: "Connection") -> None:
        """The connection is idle and can be used for another request. Called after each answer for
        which this is so."""
        ...

    def forget(self, connection: "Connection") -> None:
        """The connection must not get another request: it is about to be closed."""
        ...

    def lost(self, connection: "Connection") -> None:
        """The connection is closed. Called once, and last."""
        ...


class Connection(BaseProtocol):
    """One connection. `ask` and `release` alternate; `drop` may be called at any time.

    If the connection fails or closes during an answer, `ask` or the reader of the body raises.
    `keeper` is its observer, the pool.
    """

    __slots__ = ("_body", "_came", "_head", "_keeper", "_lingering", "_reusable", "_unsent")

    def __init__(self, loop: asyncio.AbstractEventLoop, keeper: ConnectionObserver) -> None:
        super().__init__(loop)
        # One parser for all answers: it has no state between two of them.
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
        # While `ask` waits for the head of the answer; then, until `release`, the body.
        self._head: _Head | None = None
        self._body: StreamReader | None = None
        # Runs after `release` with `linger`, until the end of the body or of the connection.
        self._lingering: asyncio.TimerHandle | None = None
        # False once the server has said that it closes the connection, or sent an answer too many.
        self._reusable = True
        # The rest of a large request body.
        self._unsent = _NOTHING
        # Bytes that came since the request.
        self._came = 0

    # --- one request --------------------------------------------------------------------------------------------------

    async def ask(
        self, head: bytes, body: bytes | None, until: float | None, call: Sendable | None = None
    ) -> tuple[RawResponseMessage, StreamReader]:
        """Send one request; return the head of its answer and a reader of its body.

        `until` is the loop time at which the wait ends. `call` is marked as sent right before
        the first byte is written. Raises UpstreamFailed, unreachable if nothing was written. On failure or
        cancellation the connection is dropped.
        """
        # It can close between the moment it is made and the one at which its maker continues.
        if self.transport is None or self.transport.is_closing():
            raise failures.unreachable()
        if call is not None:
            call.sent = True
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
        """End the reading of the answer, so that the connection can be reused.

        If the body has not ended, the connection is dropped; with `linger`, only if the end does
        not come within a moment. Then this is called again.
        """
        if self._body is not None and not self._body.is_eof():
            if linger:
                self._lingering = self._loop.call_later(LINGER, self.drop)
            else:
                self.drop()
            return
        self._body = None
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        transport, parser = self.transport, self._parser
        if (
            not self._reusable
            or transport is None
            or parser is None
            or transport.is_closing()
            or self._unsent
            or transport.get_write_buffer_size()
        ):
            self.drop()
            return
        # The parser may have the start of an unrequested answer, which the next request would take
        # for its own.
        try:
            began_another = parser.feed_eof() is not None
        except Exception:  # whatever the parser chokes on
            began_another = True
        if began_another:
            self.drop()
        else:
            self._keeper.keep(self)

    def drop(self) -> None:
        """Abort the connection and what runs on it; a second call does nothing."""
        self._keeper.forget(self)
        if self.transport is not None:
            self.transport.abort()

    def _send_more(self) -> None:
        """Write as much as fits. The request does not wait: a server may answer before it has read
        everything."""
        while self._unsent and not self._paused and self.transport is not None:
            piece, self._unsent = self._unsent[:_ONE_PIECE], self._unsent[_ONE_PIECE:]
            self.transport.write(piece)
        if not self._unsent:
            # An empty slice would keep the whole body in memory.
            self._unsent = _NOTHING

    def _expire(self) -> None:
        """Called when the head of the answer did not come in time."""
        self._fail(failures.silent())
        self.drop()

    def _fail(self, failure: Exception) -> None:
        """Fail the `ask` that waits, if any."""
        answer, self._head = self._head, None
        if answer is not None and not answer.done():
            answer.set_exception(failure)

    # --- callbacks of the event loop ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._keeper.made(self)

    def data_received(self, data: bytes) -> None:
        """Parse the bytes; unrequested bytes end the connection."""
        if self._parser is None or self._upgraded:
            return
        if self._head is None and self._body is None:
            self.drop()
            return
        try:
            messages, self._upgraded, _ = self._parser.feed_data(data)
        except Exception:  # whatever the parser chokes on
            self._fail(protocol_violation("its answer is not valid HTTP"))
            self._break_off()
            self.drop()
            return
        # Nearly always one, or none: then more of a body came.
        for message, body in messages:
            status, answer = message.code, self._head
            if message.should_close or status == _SWITCHED:
                self._reusable = False
            if 100 <= status < 200 and status != _SWITCHED:
                # An interim answer is ignored.
                continue
            if answer is None:
                self._reusable = False
                continue
            self._head, self._body = None, body
            if not answer.done():
                answer.set_result((message, EMPTY_PAYLOAD if status in _BODILESS else body))
        self._came += len(data)
        if self._came > FRAMING:
            self._expect_body()
        if self._lingering is not None and self._body is not None and self._body.is_eof():
            self.release()

    def _expect_body(self) -> None:
        """Drop the connection if little of what came belongs to a body: limits of bodies would not
        apply."""
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
        super().resume_writing()
        self._send_more()

    def eof_received(self) -> None:
        """Drop the connection: the server has closed its side."""
        self.drop()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Fail the request that waits for an answer, or for the rest of one."""
        super().connection_lost(exc)
        self._keeper.lost(self)
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        self._fail(failures.closed())
        self._break_off()
        self._parser = None
        self._unsent = _NOTHING

    def _break_off(self) -> None:
        """End the body: no more of it arrives. For a body without a length, that is its end."""
        body, self._body = self._body, None
        if body is None or body.is_eof():
            return
        assert self._parser is not None
        try:
            self._parser.feed_eof()
        except Exception:  # the parser raises errors of many kinds
            body.set_exception(ClientPayloadError())
        if not body.is_eof() and body.exception() is None:
            body.set_exception(ClientPayloadError())

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Called by a reader whenever it has taken something."""
        if self._reading_paused:
            # Data read from here on may belong to another request's context.
            Context().run(super().resume_reading, resume_parser)
