"""One HTTP/1.1 connection: `Connection`, an asyncio protocol. `AnswerHeads` parses its heads.

It has one request at a time. `ask` sends it and returns a future of the answer's head; the caller
reads the body and then calls `release`. `Pool` owns the connection and is its `ConnectionObserver`;
`Dialer` opens it. A `Target` is one URL, and writes the head of a request. A connection is reused
only if its last answer was read to the end and nothing else arrived. Otherwise `release` drops it.

The body is counted here, or taken out of its chunks (`ChunkDecoder`). Its reader takes what has come,
and waits for more. Of a usual answer only the connection outlives its reading, with the last head.
"""

import asyncio
import math
import re
import select
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from typing import Final, Protocol, cast

from aiohttp.http_exceptions import LineTooLong
from aiohttp.http_parser import HttpResponseParser
from yarl import URL

from taskgate.egress import ForwardProxy
from taskgate.errors import UpstreamFailed
from taskgate.jsontext.large import JsonChunks
from taskgate.protocol.faults import protocol_violation
from taskgate.upstream import failures
from taskgate.upstream.base import Outgoing, SameHeaders, Sendable
from taskgate.upstream.wire.chunks import ChunkDecoder
from taskgate.upstream.wire.heads import (
    CHUNKED,
    HEAD_END,
    LENGTH,
    LONGEST_LENGTH,
    SWITCHED,
    UNTIL_CLOSE,
    AnswerHead,
    AnswerHeads,
    HeadTooLarge,
    remember,
)

LINGER: Final = 0.25
"""Seconds to wait for the end of a stream after its answer, so that the connection can be reused."""

_READ_AHEAD: Final = 2**19
"""Bytes of a body that wait for their reader; beyond them, no more is read from the server."""

_ONE_PIECE: Final = 2**18
"""Bytes given to the event loop at once: it copies what the network does not take."""

FRAMING: Final = 2**20
"""Bytes besides its body that every answer may have: heads, interim answers and chunk framing."""
FRAMING_SHARE: Final = 4
"""Further bytes besides its body, for each byte of it; a chunk of one byte has five."""

_HEAD_END: Final = b"\r\n\r\n"
"""The end of a head that can be remembered."""

_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_WITHOUT_LENGTH: Final = frozenset({"GET", "HEAD"})


class Target:
    """One URL within a server's origin. A user name in it is dropped. Its creation raises
    ValueError for an invalid URL.

    `proxy` leads to it. It gets the whole URL of an http target; to an https target it opens a tunnel.
    """

    __slots__ = ("_same", "url")

    def __init__(self, url: URL, proxy: ForwardProxy | None = None) -> None:
        authority, path = url.host_port_subcomponent, url.raw_path_qs
        if not authority or " " in path or not f"{authority}{path}".isprintable():
            raise ValueError("not an absolute URL")
        self.url = url
        credentials = ""
        if proxy is not None and url.scheme == "http":
            path = f"http://{authority}{path}"
            credentials = f"\r\nProxy-Authorization: {proxy.authorization}" if proxy.authorization else ""
        self._same = (
            f" {path} HTTP/1.1\r\nHost: {authority}{credentials}\r\nAccept-Encoding: identity\r\nUser-Agent: taskgate"
        )

    def head(self, outgoing: Outgoing) -> bytes:
        """Return the head of a request. Raises ValueError for control characters, which could
        inject another request."""
        verb, headers, body = outgoing.verb, outgoing.headers, outgoing.body
        if body is None and verb in _WITHOUT_LENGTH:
            return self._begin(verb, headers) + b"\r\n\r\n"
        if type(headers) is not SameHeaders or verb != "POST":
            begun = self._begin(verb, headers)
        elif headers.target is self:
            begun = headers.begun
        else:
            headers.target, headers.begun = self, self._begin(verb, headers)
            begun = headers.begun
        return begun + b"\r\nContent-Length: %d\r\n\r\n" % (0 if body is None else len(body))

    def _begin(self, verb: str, headers: Mapping[str, str]) -> bytes:
        """Return the head without its length and its end."""
        lines = list(map(": ".join, headers.items()))
        # Printable text contains no forbidden character, and that test is far cheaper.
        text = "".join((verb, *lines))
        if not text.isprintable() and _FORBIDDEN.search(text):
            raise ValueError("a header holds a control character")
        return "\r\n".join((verb + self._same, *lines)).encode(errors="ignore")


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


class Connection(asyncio.Protocol):
    """One connection. `ask` and `release` alternate; `drop` may be called at any time.

    If the connection fails or closes during an answer, `ask` or the reader of the body raises.
    `keeper` is its observer, the pool, and `heads` are those of the server.

    Of the body there are `length` (of a Content-Length, or negative), `received`, its bytes so far,
    and `has_ended`, whether it has come to its end. `take` returns what came since the last call,
    `more` waits.
    """

    __slots__ = (
        "_ahead",
        "_alarm",
        "_alarm_at",
        "_broken",
        "_came",
        "_chunks",
        "_enough",
        "_has_answer",
        "_head",
        "_head_tail",
        "_heads",
        "_input",
        "_is_paused",
        "_keeper",
        "_last",
        "_lingering",
        "_loop",
        "_more",
        "_parser",
        "_pieces",
        "_reusable",
        "_taken",
        "_unsent",
        "_until",
        "_within",
        "_writes",
        "has_ended",
        "idle_since",
        "length",
        "received",
        "taken_at",
        "transport",
        "was_unread",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, keeper: ConnectionObserver, heads: AnswerHeads) -> None:
        self._loop = loop
        self._keeper = keeper
        self._heads = heads
        self.transport: asyncio.Transport | None = None
        # While `ask` waits for the head of the answer; then, until `release`, there is an answer.
        self._head: asyncio.Future[AnswerHead] | None = None
        self._has_answer = False
        # The parser of a head that is not remembered, once some of it has come, with its last bytes.
        self._parser: HttpResponseParser | None = None
        self._head_tail = b""
        # The last remembered head with a length: what is before and behind its digits.
        self._last: tuple[bytes, bytes, AnswerHead] | None = None
        self.length = 0
        self.received = 0
        self.has_ended = False
        # How many bytes of the body were taken, and those that were not.
        self._taken = 0
        self._pieces: list[bytes] = []
        # Asks for bytes that the event loop has not read; made when it is first wanted.
        self._input: select.poll | None = None
        self._chunks: ChunkDecoder | None = None
        # Makes the failure of a body that will not come to its end.
        self._broken: Callable[[], UpstreamFailed] | None = None
        # While the reader waits for more of the body. Up to `_enough` bytes of it do not wake it, and
        # silence may last `_within` seconds.
        self._more: asyncio.Future[None] | None = None
        self._enough = 0
        self._within: float | None = None
        # Reads more of the body while the reader waits, and says whether that waits on.
        self._ahead: Callable[[Connection], bool] | None = None
        # The loop time at which a wait ends, and one timer for all waits. It runs on when a wait ends
        # in time, and is set anew when it fires.
        self._until = math.inf
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        # Runs after `release` with `linger`, until the end of the body or of the connection.
        self._lingering: asyncio.TimerHandle | None = None
        # False once the server has said that it closes the connection, or sent an answer too many.
        self._reusable = True
        self._is_paused = False
        # The rest of a large request body, and whether the network takes more of it.
        self._unsent: Iterator[bytes | memoryview] | None = None
        self._writes = True
        # Bytes that came since the request.
        self._came = 0
        self.idle_since = self.taken_at = 0.0
        """The loop times at which it was kept last, and taken again."""
        self.was_unread = False
        """Whether its end came so soon that the server had not read the last request."""

    # --- one request --------------------------------------------------------------------------------------------------

    def ask(
        self, head: bytes, body: bytes | JsonChunks | None, until: float | None, call: Sendable | None = None
    ) -> "asyncio.Future[AnswerHead]":
        """Send one request; return the future head of its answer.

        `until` is the loop time at which the wait ends. `call` is marked as sent right before
        the first byte is written. Raises UpstreamFailed, unreachable, if nothing was written. The
        future raises UpstreamFailed, and the connection is then dropped. A caller that waits no
        longer must drop it.
        """
        # It can close between the moment it is made and the one at which its maker continues.
        transport = self.transport
        if transport is None or transport.is_closing():
            raise failures.unreachable("connection closed")
        if call is not None:
            call.sent = True
        self._head = answer = self._loop.create_future()
        self._came = 0
        if body is None or (type(body) is bytes and len(body) <= _ONE_PIECE):
            transport.write(head + body if body else head)
        else:
            chunks = body.chunks if isinstance(body, JsonChunks) else (memoryview(body),)
            # One copy of the first piece costs less than a write of the head alone.
            self._unsent = JsonChunks((head, *chunks)).windows(_ONE_PIECE)
            self._send_more()
        if until is not None:
            self._wait_until(until)
        return answer

    @property
    def was_silent(self) -> bool:
        """Whether no byte has come since the request."""
        return not self._came

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that were not taken; the event loop may not have read them."""
        if self._pieces:
            return True
        transport = self.transport
        if transport is None:
            return False
        if self._input is None:
            # A connection that was just lost has none.
            socket = transport.get_extra_info("socket")
            if transport.is_closing() or socket is None or socket.fileno() < 0:
                return False
            self._input = select.poll()
            self._input.register(socket.fileno(), select.POLLIN)
        return bool(self._input.poll(0))

    def take(self) -> bytes:
        """Return what came of the body; empty if there is nothing new.

        Raises UpstreamFailed for a body that broke off or was silent for too long, behind what came
        of it.
        """
        pieces = self._pieces
        if not pieces:
            if self._broken is not None:
                raise self._broken()
            return b""
        self._taken = self.received
        taken = b"".join(pieces)
        pieces.clear()
        if self._is_paused:
            self._resume()
        return taken

    def more(
        self, within: float | None, above: int = 0, ahead: "Callable[[Connection], bool] | None" = None
    ) -> "asyncio.Future[None]":
        """Return a future that is done when more of the body has come, its end, or its failure.

        More is any byte, or so many that the body has more than `above`. Silence of `within` seconds
        is a failure. Only for a body that has not ended; without `above`, only if nothing waits to be
        taken. `ahead` is called first when more has come. If it returns True, it has taken all of it,
        and the wait goes on.
        """
        self._more = waiter = self._loop.create_future()
        self._enough, self._within, self._ahead = max(above, self._taken), within, ahead
        if self._is_paused:
            self._resume()
        if self._broken is not None:
            self._wake()
        elif within is not None:
            self._wait_until(self._loop.time() + within)
        return waiter

    def _resume(self) -> None:
        self._is_paused = False
        if self.transport is not None:
            # Data read from here on may belong to another request's context.
            Context().run(self.transport.resume_reading)

    def release(self, *, linger: bool = False) -> None:
        """End the reading of the answer, so that the connection can be reused.

        If the body has not ended, the connection is dropped; with `linger`, only if the end does
        not come within a moment. Then this is called again.
        """
        if not self.has_ended:
            self._ahead = None
            if linger and self._broken is None:
                self._lingering = self._loop.call_later(LINGER, self.drop)
            else:
                self.drop()
            return
        self._has_answer = False
        if self._pieces:
            self._pieces.clear()
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        transport = self.transport
        # One that is about to close is passed over when it is taken.
        if not self._reusable or transport is None or self._unsent is not None or transport.get_write_buffer_size():
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
        while self._unsent is not None and self._writes and self.transport is not None:
            piece = next(self._unsent, None)
            if piece is None:
                self._unsent = None
            else:
                self.transport.write(piece)

    # --- time limits and failures -------------------------------------------------------------------------------------

    def _wait_until(self, until: float) -> None:
        """Have the wait that begins end at a loop time."""
        self._until = until
        if self._alarm is not None:
            if self._alarm_at <= until:
                return
            self._alarm.cancel()
        # An empty context: the timer runs on in later requests.
        self._alarm, self._alarm_at = self._loop.call_at(until, self._on_alarm, context=Context()), until

    def _on_alarm(self) -> None:
        """Fail the wait for a head or for more of a body, if it is one that ends now."""
        self._alarm = None
        head, more, until = self._head, self._more, self._until
        if (head is None or head.done()) and (more is None or more.done()):
            return
        if until > self._alarm_at:
            if until < math.inf:
                self._wait_until(until)
            return
        if head is not None:
            self._fail(failures.silent())
            self.drop()
        else:
            self._break(failures.silent)

    def _fail(self, failure: Exception) -> None:
        """Fail the `ask` that waits, if any."""
        answer, self._head = self._head, None
        if answer is not None and not answer.done():
            answer.set_exception(failure)

    def _break(self, failure: Callable[[], UpstreamFailed]) -> None:
        """Fail the body, unless it has ended."""
        if self._has_answer and not self.has_ended and self._broken is None:
            self._broken = failure
            self._wake()

    def _wake(self) -> None:
        """Wake the reader of the body, if it waits."""
        waiter = self._more
        if waiter is not None:
            self._more = self._ahead = None
            self._until = math.inf
            if not waiter.done():
                waiter.set_result(None)

    # --- callbacks of the event loop ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A transport of uvloop is no subclass of the one in asyncio.
        self.transport = cast("asyncio.Transport", transport)
        self._keeper.made(self)

    def data_received(self, data: bytes) -> None:
        """Read a head, or more of the body; unrequested bytes end the connection."""
        self._came += len(data)
        try:
            if self._head is not None:
                self._read_head(data)
            elif not self._has_answer:
                self.drop()
                return
            elif not self.has_ended:
                before = self.received
                self._read_body(data, 0)
                if self.received > before and self._ahead is not None and self._ahead(self):
                    self._enough = self.received
                # Framing alone does not wake the reader: it is silence.
                if self.received > self._enough or self.has_ended:
                    self._wake()
                elif self.received > before and self._within is not None:
                    self._wait_until(self._loop.time() + self._within)
            else:
                self._read_surplus(data)
        except Exception as error:  # whatever the parser chokes on
            is_large = isinstance(error, HeadTooLarge | LineTooLong)
            self._fail(
                failures.large_head(self._heads.longest)
                if is_large
                else protocol_violation("its answer is not valid HTTP")
            )
            self._break(failures.broke_off)
            self._wake()
            self.drop()
            return
        if self._came > FRAMING:
            self._expect_body()
        if self._lingering is not None and self.has_ended:
            self.release()

    def _read_head(self, data: bytes) -> None:
        """Take the head of the answer, and what came of its body."""
        last, head, end = self._last, None, 0
        if last is not None and self._parser is None and data.startswith(last[0]):
            lead, tail, known = last
            stop = data.find(tail, len(lead))
            digits = data[len(lead) : stop]
            if 0 <= stop <= len(lead) + LONGEST_LENGTH and digits.isdigit():
                # Nearly always: the head of the last answer, but for its length.
                head, end = known, stop + len(tail)
                self.length = int(digits) if head.has_length else head.length
        if head is None:
            found = self._find_head(data)
            if found is None:
                return
            head, end = found
        self._parser = None
        self.received = self._taken = self._enough = 0
        self.has_ended, self._broken = False, None
        self._chunks = ChunkDecoder() if self.length == CHUNKED else None
        if head.closes:
            self._reusable = False
        if head.status == SWITCHED:
            self.has_ended = True
        elif self.length == len(data) - end:
            # Nearly always: the body came whole.
            self.has_ended, self.received = True, self.length
            self._pieces.append(data[end:])
        else:
            self._read_body(data, end)
        # Only now: what breaks in the first read of an answer fails its request.
        answer, self._head = self._head, None
        self._has_answer, self._until = True, math.inf
        if answer is not None and not answer.done():
            answer.set_result(head)

    def _find_head(self, data: bytes) -> tuple[AnswerHead, int] | None:
        """Find a head by its bytes, else parse it. Return it, and the place where it ends; None if
        that has not come. Sets the length of the body."""
        head, length, known, key = None, None, self._heads.others, b""
        end = data.find(_HEAD_END) if self._parser is None else -1
        if end >= 0:
            match = LENGTH(data, 0, end + 2)
            if match is None:
                key = data[:end]
                head = known.get(key)
            else:
                start, stop = match.span(1)
                known, key, length = self._heads.counted, data[:start] + data[stop:end], int(match[1])
                head = known.get(key)
                if head is not None:
                    self._last = data[:start], data[stop : end + len(_HEAD_END)], head
            end += len(_HEAD_END)
        if head is not None:
            self.length = head.length if length is None or not head.has_length else length
            return head, end
        found = self._parse(data)
        if found is None:
            return None
        head, ended = found
        # What the parser took for the head has the bytes of the key, and no others.
        if ended == end and (length is None or not head.has_length or head.length == length):
            remember(known, key, head)
        self.length = head.length
        return found

    def _parse(self, data: bytes) -> tuple[AnswerHead, int] | None:
        """Parse a head and the interim ones before it; return it and the place where it ends.

        None if its end has not come. Raises errors of many kinds.
        """
        at, size = 0, len(data)
        while True:
            if not self._head_tail:
                # Empty lines before a head are passed over.
                at = size - len(data[at:].lstrip(b"\r\n"))
            if at == size:
                return None
            parser = self._parser = self._parser or self._heads.parser()
            tail = self._head_tail
            match = HEAD_END(tail + data[at:] if tail else data, 0 if tail else at)
            if match is None:
                if self._came > self._heads.longest:
                    raise HeadTooLarge
                parser.feed_data(data[at:] if at else data)
                self._head_tail = (tail + data[max(at, size - 3) :])[-3:]
                return None
            end = at + match.end() - len(tail) if tail else match.end()
            if self._came - (size - end) > self._heads.longest:
                raise HeadTooLarge
            ((message, body),) = parser.feed_data(data[at:end])[0]
            if body.total_bytes:
                raise ValueError("a head that ends elsewhere for the parser")
            head, self._head_tail = AnswerHead(message), b""
            at = end
            if not head.is_interim:
                return head, end
            if head.closes:
                self._reusable = False

    def _read_body(self, data: bytes, at: int) -> None:
        """Take more of the body, which has not ended. Raises an error for invalid framing."""
        size, length, chunks = len(data), self.length, self._chunks
        if length >= 0:
            stop = at + length - self.received
            self.has_ended = stop <= size
        elif chunks is not None:
            piece = chunks.feed(data, at)
            if piece:
                self._pieces.append(piece)
                self.received += len(piece)
            if chunks.is_broken:
                raise ValueError("broken chunks")
            stop, at = chunks.end, size
            self.has_ended = stop >= 0
        else:
            stop = size
        if at < size and at < stop:
            piece = data[at:stop] if at or stop < size else data
            self._pieces.append(piece)
            self.received += len(piece)
        if self.has_ended:
            if stop < size:
                self._read_surplus(data[stop:])
        elif (
            self.received - self._taken > _READ_AHEAD
            and self.received > self._enough
            and not self._is_paused
            and self.transport is not None
        ):
            self._is_paused = True
            self.transport.pause_reading()

    def _read_surplus(self, data: bytes) -> None:
        """Take what follows an answer: no request asked for it, so the connection is not reused.

        Raises an error if it is no HTTP at all, or follows an answer that closes the connection.
        Empty lines are passed over.
        """
        data = data.lstrip(b"\r\n")
        if data:
            was_reusable, self._reusable = self._reusable, False
            if not was_reusable:
                raise ValueError("data after the last answer")
            self._heads.parser().feed_data(data)

    def _expect_body(self) -> None:
        """Drop the connection if little of what came belongs to a body: limits of bodies would not
        apply."""
        if self._came <= FRAMING + (1 + FRAMING_SHARE) * (self.received if self._has_answer else 0):
            return
        self._fail(failures.too_talkative())
        self._break(failures.too_talkative)
        self.drop()

    def pause_writing(self) -> None:
        self._writes = False

    def resume_writing(self) -> None:
        self._writes = True
        self._send_more()

    def eof_received(self) -> None:
        """Drop the connection: the server has closed its side."""
        self.drop()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Fail the request that waits for an answer, or for the rest of one."""
        self.transport = None
        self._keeper.lost(self)
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._fail(failures.closed())
        if self._has_answer and self.length == UNTIL_CLOSE and self._broken is None:
            self.has_ended = True
            self._wake()
        self._break(failures.broke_off)
        self._unsent = None
