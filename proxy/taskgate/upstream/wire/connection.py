"""One HTTP/1.1 connection: `Connection`, an asyncio protocol on aiohttp's response parser.

It has one request at a time. `ask` sends it and returns a future of the answer's head; the caller
reads the body and then calls `release`. `pool` owns the connection and is its `ConnectionObserver`;
`Dialer` opens it. A `Target` is one URL, and writes the head of a request. A connection is reused
only if its last answer was read to the end and nothing else arrived. Otherwise `release` drops it.

`HttpIncoming` reads an answer: `transport` and `sse` make one for each response when its head has
arrived. The reader takes the messages, and calls `release` in any case, which gives the connection
back or drops it. Limits on size, rate and noise apply while it is read and end in UpstreamFailed;
exceptions of aiohttp stay inside.
"""

import asyncio
import math
import re
from collections import deque
from collections.abc import Callable
from contextvars import Context
from datetime import timedelta
from typing import Final, Protocol, Self

from aiohttp import ClientError, ClientPayloadError, hdrs
from aiohttp.base_protocol import BaseProtocol
from aiohttp.helpers import parse_content_type
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpResponseParser, RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from multidict import istr
from yarl import URL

from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.sse import EventDecoder, EventTooLarge
from taskgate.protocol.vocabulary import SESSION_HEADER
from taskgate.upstream import failures
from taskgate.upstream.base import Outgoing, SameHeaders, Sendable
from taskgate.upstream.notification_limits import SAID_A_SECOND, LeftOut, NotificationBudget

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

_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_WITHOUT_LENGTH: Final = frozenset({"GET", "HEAD"})


class Target:
    """One URL within a server's origin. A user name in it is dropped. Its creation raises
    ValueError for an invalid URL."""

    __slots__ = ("_same", "url")

    def __init__(self, url: URL) -> None:
        authority, path = url.host_port_subcomponent, url.raw_path_qs
        if not authority or " " in path or not f"{authority}{path}".isprintable():
            raise ValueError("not an absolute URL")
        self.url = url
        self._same = f" {path} HTTP/1.1\r\nHost: {authority}\r\nAccept-Encoding: identity\r\nUser-Agent: taskgate\r\n"

    def head(self, outgoing: Outgoing) -> bytes:
        """Return the head of a request. Raises ValueError for control characters, which could
        inject another request."""
        verb, body, headers = outgoing.verb, outgoing.body, outgoing.headers
        lines = headers.lines if type(headers) is SameHeaders else None
        if lines is None:
            text = "".join((verb, *map(": ".join, headers.items())))
            # Printable text contains no forbidden character, and that test is far cheaper.
            if not text.isprintable() and _FORBIDDEN.search(text):
                raise ValueError("a header holds a control character")
            lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
            if type(headers) is SameHeaders:
                headers.lines = lines
        length = 0 if body is None else len(body)
        if body is None and verb in _WITHOUT_LENGTH:
            return f"{verb}{self._same}{lines}\r\n".encode(errors="ignore")
        return f"{verb}{self._same}{lines}Content-Length: {length}\r\n\r\n".encode(errors="ignore")


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

    __slots__ = ("_body", "_came", "_head", "_keeper", "_lingering", "_reusable", "_timer", "_unsent")

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
        # Runs while `ask` waits, if that wait has an end.
        self._timer: asyncio.TimerHandle | None = None
        # Runs after `release` with `linger`, until the end of the body or of the connection.
        self._lingering: asyncio.TimerHandle | None = None
        # False once the server has said that it closes the connection, or sent an answer too many.
        self._reusable = True
        # The rest of a large request body.
        self._unsent = _NOTHING
        # Bytes that came since the request.
        self._came = 0

    # --- one request --------------------------------------------------------------------------------------------------

    def ask(self, head: bytes, body: bytes | None, until: float | None, call: Sendable | None = None) -> _Head:
        """Send one request; return the future head of its answer, with a reader of its body.

        `until` is the loop time at which the wait ends. `call` is marked as sent right before
        the first byte is written. Raises UpstreamFailed, unreachable, if nothing was written. The
        future raises UpstreamFailed, and the connection is then dropped. A caller that waits no
        longer must drop it.
        """
        # It can close between the moment it is made and the one at which its maker continues.
        transport = self.transport
        if transport is None or transport.is_closing():
            raise failures.unreachable()
        if call is not None:
            call.sent = True
        answer: _Head = self._loop.create_future()
        self._head, self._came = answer, 0
        if body is None or len(body) <= _ONE_PIECE:
            transport.write(head + (body or b""))
        else:
            transport.write(head)
            self._unsent = memoryview(body)
            self._send_more()
        if until is not None:
            self._timer = self._loop.call_at(until, self._expire)
        return answer

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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
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
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
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


_SESSION: Final = istr(SESSION_HEADER)
# HttpProcessingError comes from the pure Python parser.
_BROKEN: Final = (ClientError, HttpProcessingError, OSError)


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
        "_body",
        "_connection",
        "_decoder",
        "_fed",
        "_fed_from",
        "_headers",
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
        message: RawResponseMessage,
        body: StreamReader,
        *,
        limit: int,
        idle: float | None,
        left_out: LeftOut,
        placed: Callable[[str], None] | None = None,
        target: Target,
    ) -> None:
        self._connection: Connection | None = connection
        self._headers = headers = message.headers
        self._body = body
        self._limit = limit
        self._idle = idle
        self._placed = placed
        self.has_more = False
        self._left_out = left_out
        # None before `messages`, as the messages to deliver.
        self._decoder: EventDecoder | None = None
        self._ready: deque[bytes] | None = None
        self._was_read = False
        self.target: Final = target
        self.status = message.code
        self.session = headers.get(_SESSION)
        self.streams = False
        self.has_valid_type = True
        written, encoding = headers.get(hdrs.CONTENT_TYPE), headers.get(hdrs.CONTENT_ENCODING)
        # Why the body must not be read. That is no failure for those who need the status only.
        self._unreadable = None if written == "application/json" else self._read_type(written)
        if encoding is not None and self._unreadable is None and encoding.lower() != "identity":
            self._unreadable = "its answer has a content encoding that was not requested"

    def _read_type(self, written: str | None) -> str | None:
        """Take another Content-Type than that of JSON, and return why the body must not be read."""
        try:
            media_type = None if written is None else parse_content_type(written)[0]
        except ValueError:
            self.has_valid_type, media_type = False, None
        self.streams = media_type == "text/event-stream"
        if self.streams or media_type == "application/json":
            return None
        return "its answer is neither JSON nor an event stream"

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
            chunk = self._rest or await self._chunk()
            if not chunk:
                raise StopAsyncIteration
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
        body = self._body
        if body.is_eof() and body.total_bytes <= self._limit:
            # Nearly always: all of it came with the head.
            try:
                return body.read_nowait()
            except _BROKEN:
                raise failures.broke_off() from None
        if self._limit < int(self._headers.get(hdrs.CONTENT_LENGTH, 0)):
            raise failures.too_large()
        pieces: list[bytes] = []
        room = self._limit
        while chunk := await self._chunk():
            room -= len(chunk)
            if room < 0:
                raise failures.too_large()
            pieces.append(chunk)
            if body.at_eof():
                break
        return b"".join(pieces)

    async def _chunk(self) -> bytes:
        """Return what has arrived of the body, or wait for more of it; empty at the end."""
        body, timer = self._body, None
        try:
            at_hand = body.read_nowait()
        except _BROKEN:
            raise failures.broke_off() from None
        if at_hand or body.is_eof():
            return at_hand
        if self._idle is not None:
            timer = asyncio.get_running_loop().call_later(self._idle, body.set_exception, TimeoutError())
        try:
            return await body.readany()
        except TimeoutError:
            raise failures.silent() from None
        except _BROKEN:
            raise failures.broke_off() from None
        finally:
            if timer is not None:
                timer.cancel()
