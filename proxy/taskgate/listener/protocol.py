"""One connection of a host: `HostConnection`, an asyncio protocol on aiohttp's request parser.

aiohttp's parser reads heads and bodies, each alone: what is read is cut at their ends. This class
does keep-alive and pipelining, and limits slow and oversized peers (`patience`). It answers bytes
that are not HTTP, and reports to the exchange under way when its host disconnects. `PublicListener`
makes one for each accepted connection. It passes each `HostRequest` to `Endpoint`, one at a time
and in order.

A connection ends when the host closes it, or when it is idle for too long. It also ends after an
answer to invalid bytes, and while the listener closes (`wind_down`, `drop`). Every connection ends,
whatever its peer does. Nothing that a peer sent reaches a log or comes back to it.

An answer with keep-alive promises the host that it may send a next request. A connection that has
to close right after such an answer first waits a second for that request (`keep_promise`).

The module stays whole because the class is one protocol with one state, and the rest is its own.
"""

import asyncio
import logging
import select
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from aiohttp import HttpVersion, hdrs
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from multidict import CIMultiDictProxy

from taskgate.listener.chunks import ChunkFraming
from taskgate.listener.door import (
    BAD_REQUEST,
    HEAD_TOO_LARGE,
    LONGEST_LENGTH,
    TOO_SLOW,
    Rejection,
    RememberedHead,
    declared_length,
)
from taskgate.listener.patience import ConnectionSettings, HeadWatch, WriteWatch
from taskgate.listener.tls import TlsWire
from taskgate.system.arrival import Arrival
from taskgate.system.timer_wheel import Cancel, TimerWheel
from taskgate.telemetry.request_context import no_request

SERVER_NAME: Final = "taskgate"

FIRST_REQUEST: Final = 1.0
"""Seconds in which a host that connects during the close may send its request."""

MOMENT: Final = 1.0
"""Seconds for which an answer's promise of keep-alive holds when the connection has to close."""

MOST_READ: Final = 256 * 1024
"""Bytes that asyncio reads at once."""
_READ_AHEAD: Final = 256 * 1024
"""Bytes of a body that wait for their reader; reading stops at twice as many."""
_MOST_FIELDS: Final = 100
_MOST_WAITING: Final = 32
"""Parsed requests of a connection that wait for their turn; then nothing more is read."""
_HEAD_END: Final = b"\r\n\r\n"
_LINE_END: Final = b"\r\n"
_UNKNOWN: Final = -1
_LINGER: Final = 1.0
"""Seconds in which a rejected peer may finish sending. An immediate close would reset the
connection and lose the answer."""
_FAULT: Final = f"HTTP/1.1 500 Internal Server Error\r\nServer: {SERVER_NAME}\r\nContent-Length: 0\r\n"

_log = logging.getLogger("taskgate.listener")


class Departing(Protocol):
    """The exchange under way, as its connection sees it; each method may be called without effect.

    When the listener closes, `wind_down` comes first. A second later `send_elsewhere` follows for
    exchanges that still run, and at last the connection is aborted.
    """

    def host_left(self) -> None:
        """Handle that the host has disconnected: nothing more can be sent to it."""
        ...

    def wind_down(self) -> None:
        """Handle that the listener closes: end a GET stream, which would not end by itself.

        The answer to a call is not ended: it ends with the call.
        """
        ...

    def send_elsewhere(self) -> None:
        """End a stream of a running call, if the host can resume it in another process.

        Other exchanges continue.
        """
        ...


@dataclass(slots=True, eq=False, repr=False)
class HostRequest:
    """One parsed request; its body may still arrive, and is read from `content`.

    - `remote` is the address of the peer; None if it disconnected before it was accepted.
    - `keep_alive` is whether the host wants to send another request on the connection.
    - `is_answered` is set when the head of the answer is written.
    """

    method: str
    raw_path: str
    version: HttpVersion
    headers: CIMultiDictProxy[str]
    raw_headers: tuple[tuple[bytes, bytes], ...]
    keep_alive: bool
    content: StreamReader
    connection: "HostConnection"
    remote: str | None
    is_answered: bool = False


class HttpResponse(Protocol):
    """The answer to a request, as its connection sees it; implemented in `answers`.

    `keep_alive` is False if the connection closes after it, and None if the host decides.
    """

    @property
    def status(self) -> int: ...

    keep_alive: bool | None

    async def send(self, request: HostRequest) -> None:
        """Write what is not written yet, and wait for a slow host.

        Sets `keep_alive`. Raises ConnectionError if the host has disconnected.
        """
        ...


class BrokenBody(Exception):
    """The body of a request does not arrive whole."""


@dataclass(slots=True, kw_only=True, eq=False)
class ConnectionTerms:
    """The parts that all connections of a listener share.

    - `answer` is called for each request. `answer_garbage` is called for bytes that are no request,
      and sends their answer, the last one.
    - `heads` and `idles` have the timers for heads and for idle connections.
    - `woken` is a future that has a result (`Arrival`).
    - `open` are the connections, from the moment that they can be lost until they are.
    - `tasks` has the task of each connection, also while its host has disconnected and the request
      is still being answered.
    - `is_retired`: each connection closes after its next answer. `is_closing`: idle ones at once.
    """

    bounds: ConnectionSettings
    answer: Callable[[HostRequest], Awaitable[HttpResponse]]
    answer_garbage: Callable[["HostConnection", Rejection], Awaitable[object]]
    heads: TimerWheel
    idles: TimerWheel
    woken: asyncio.Future[None]
    open: "set[HostConnection]" = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    is_retired: bool = False
    is_closing: bool = False


class HostConnection(asyncio.Protocol):
    """One connection, from its first byte to its last.

    - `leaving` is set by the listener when hosts are to find another replica. `Endpoint` and
      `HostExchange` read it, and let the next answer close the connection.
    - `closing` is set by `wind_down`: the listener closes. `Endpoint` lets the answer of the
      exchange under way close the connection.
    - `request` is the one that is being answered; None between requests.
    - `exchange` is the one that the gateway works on, set by `Endpoint`; None between requests.
    - `heads` are those of admitted requests, the oldest first, which `Endpoint` remembers.
    - `long_heads`: a head may be too large, so that `Endpoint` measures each. Never unset.
    - `writing_paused`: the host reads too slowly, so that who writes should `drain`.
    - `lost` is done when the connection is gone.

    One task answers the requests in `_waiting`, and waits on `_arrival` for the next. It starts with
    the first request.

    - `_is_idle`: no request waits or is being answered. `_was_used`: the task was started.
    - `_is_ending`: no further request is answered. `_deaf`: what arrives is dropped.
    - `_latest_body` is the body of the request that was parsed last, complete or not.
    - `_body_left` are its bytes that are to come, or _UNKNOWN while `_chunks` looks for its end.
    - `_head_tail` are the last bytes of a head that is not complete.
    - `_reading_paused`, `_is_queue_full`: why the transport does not read.
    - `_bytes_waiting` have arrived while requests wait. `_unparsed` are the last of them if they are
      too many, or too many requests.
    - `_promises` is the number of keep-alive promises that hold (`keep_promise`).
    - `_write_watch` is made when the host first reads too slowly.
    """

    __slots__ = (
        "_arrival",
        "_body_left",
        "_bytes_waiting",
        "_cancel_idle",
        "_chunks",
        "_connected_at",
        "_deaf",
        "_drain_waiter",
        "_head",
        "_head_tail",
        "_idle_seconds",
        "_idle_until",
        "_is_ending",
        "_is_idle",
        "_is_queue_full",
        "_latest_body",
        "_loop",
        "_max_header",
        "_parser",
        "_promises",
        "_reading_paused",
        "_terms",
        "_unparsed",
        "_waiting",
        "_was_used",
        "_write_watch",
        "closing",
        "exchange",
        "heads",
        "leaving",
        "long_heads",
        "lost",
        "remote",
        "request",
        "transport",
        "writing_paused",
    )

    transport: asyncio.Transport
    remote: str | None

    def __init__(self, terms: ConnectionTerms) -> None:
        self._terms = terms
        self._loop = loop = asyncio.get_running_loop()
        self._max_header = terms.bounds.max_header
        self._parser = self._new_parser()
        # Few wait, and most often none: an empty list is a tenth of an empty deque.
        self._waiting: list[HostRequest | Rejection] = []
        self._arrival = Arrival(loop, terms.woken)
        self.request: HostRequest | None = None
        self._is_idle = True
        self._was_used = self._is_ending = self._deaf = False
        self._reading_paused = self._is_queue_full = self.writing_paused = False
        self._head = HeadWatch(terms.bounds, terms.heads, self._on_head_timeout)
        self._latest_body: StreamReader = EMPTY_PAYLOAD
        self._idle_seconds = terms.bounds.idle_timeout.total_seconds()
        self._connected_at = self._idle_until = 0.0
        self._cancel_idle: Cancel | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._promises = 0
        self._head_tail = self._unparsed = b""
        self._bytes_waiting = self._body_left = 0
        self._chunks: ChunkFraming | None = None
        self._write_watch: WriteWatch | None = None
        self.closing = self.leaving = self.long_heads = False
        self.exchange: Departing | None = None
        self.heads: list[RememberedHead] = []
        self.lost: asyncio.Future[None] = loop.create_future()

    def _new_parser(self) -> HttpRequestParser:
        """Return a parser of which the next head is the first."""
        return HttpRequestParser(
            self,  # type: ignore[arg-type]
            self._loop,
            _READ_AHEAD,
            max_line_size=self._max_header,
            max_field_size=self._max_header,
            max_headers=_MOST_FIELDS,
            payload_exception=BrokenBody,
            auto_decompress=False,
        )

    # Start and end.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to serve, with a time limit for the first head."""
        # A transport of another event loop may be of no class of asyncio.
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.remote = str(peer[0]) if isinstance(peer, tuple) else None if peer is None else str(peer)
        at: socket.socket = transport.get_extra_info("socket")
        # It may be closed already.
        with suppress(OSError):
            # The system notices a host that disappeared while nothing is sent to it.
            at.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # An answer must not wait until the host has acknowledged the one before. For accepted
            # sockets asyncio leaves this unset.
            at.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connected_at = self._loop.time()
        terms = self._terms
        terms.open.add(self)
        self.leaving = terms.is_retired
        self._head.begin()
        self._idle_until = self._connected_at + self._idle_seconds
        self._cancel_idle = terms.idles.call_later(self._idle_seconds, self._on_idle_timeout)
        if terms.is_closing:
            # Its handshake began before the close.
            self.wind_down()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the time limits, and report the disconnect to the exchange under way.

        Whether the gateway's work on it ends depends on what that work registered for a disconnect.
        """
        self._terms.open.discard(self)
        self._deaf = self._is_ending = True
        # It refers back to this object.
        del self._parser
        if self._head.timer is not None:
            self._head.stop()
        if self._cancel_idle is not None:
            self._cancel_idle()
        if self._write_watch is not None:
            self._write_watch.stop()
        if self.request is not None:
            self.request.content.set_exception(exc or ConnectionResetError("Connection lost"))
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)
        self.lost.set_result(None)
        if self._is_idle:
            self._arrival.notify()
        if self.exchange is not None:
            self.exchange.host_left()

    def eof_received(self) -> None:
        """Let the transport close, because the host sends nothing more, and limit the time of that."""
        self._watch_closing()

    def wind_down(self) -> None:
        """Close the connection after the exchange under way, or at once if it is idle.

        A new connection first has FIRST_REQUEST seconds to bring its request. May be called again,
        and calls itself again when such a delay is over.
        """
        self.closing = True
        if self._is_ending:
            return
        until = self._connected_at + FIRST_REQUEST
        if self._is_idle and not self._was_used and self._loop.time() < until:
            self._loop.call_at(until, self.wind_down)
        elif self._is_idle:
            # If not, there are two cases. Bytes of a next request have arrived, and its answer closes
            # the connection; or a promise still holds, and calls this when it ends.
            if not self._promises and not self._head.size and hang_up(self.transport):
                self._end()
        elif self.exchange is not None:
            self.exchange.wind_down()
        else:
            # An exchange is about to begin, or just ended with an answer that promised keep-alive.
            self.keep_promise()

    def keep_promise(self) -> None:
        """Stay open for MOMENT, because the answer just sent promised keep-alive.

        Then the connection closes if it is idle and the listener closes. `Endpoint` calls this if
        `leaving` was set after the head of an answer had been sent.
        """
        self._promises += 1
        self._loop.call_later(MOMENT, self._end_promise)

    def _end_promise(self) -> None:
        self._promises -= 1
        if self.closing:
            self.wind_down()

    def drop(self) -> None:
        """Abort the connection: what is unsent is lost. The last step of the listener's close."""
        self.transport.abort()

    def _end(self) -> None:
        """Close the connection of which no request is being answered, and end its task."""
        self.close()
        self._arrival.notify()

    # Answering.

    def _start(self) -> None:
        """Start the task of the connection, with its first request."""
        self._was_used = True
        tasks = self._terms.tasks
        task = self._loop.create_task(self._serve())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _serve(self) -> None:
        """Answer the requests, one after another, and close the connection after the last."""
        waiting, answer = self._waiting, self._terms.answer
        try:
            while not self._is_ending:
                if not waiting:
                    self._is_idle = True
                    self._bytes_waiting = 0
                    self._idle_until = self._loop.time() + self._idle_seconds
                    if self._cancel_idle is None:
                        self._cancel_idle = self._terms.idles.call_later(self._idle_seconds, self._on_idle_timeout)
                    await self._arrival
                    continue
                request = waiting.pop(0)
                if isinstance(request, Rejection):
                    await self._terms.answer_garbage(self, request)
                    return
                if self._is_queue_full and not waiting:
                    self._read_on()
                self.request = request
                try:
                    response = await answer(request)
                except Exception as error:
                    self._answer_fault(request, error)
                    return
                finally:
                    self.request = None
                await response.send(request)
                if not response.keep_alive or not request.content.is_eof():
                    return
                # The next wait may be long: they hold what the host sent.
                del request, response
                if waiting:
                    # A host that sends many requests at once must not make the others wait.
                    await asyncio.sleep(0)
        except ConnectionError:
            # The host has disconnected.
            return
        except Exception as error:
            _report("a connection failed", error)
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection after what is written, and limit the time of that."""
        self._deaf = self._is_ending = True
        self.transport.close()
        self._watch_closing()

    def _answer_fault(self, request: HostRequest, error: Exception) -> None:
        """Answer a request on which the listener failed, unless an answer has begun."""
        _report("a request failed", error)
        if not request.is_answered and not self.transport.is_closing():
            date = f"Date: {rfc822_formatted_time()}\r\n"
            self.transport.write(f"{_FAULT}{date}Connection: close\r\n\r\n".encode())

    def _hold(self, data: bytes) -> None:
        """Read nothing more, and parse this when no request waits."""
        self._unparsed = data
        self._is_queue_full = True
        self.transport.pause_reading()

    def _read_on(self) -> None:
        """Parse and read on, because no request waits."""
        self._is_queue_full = False
        self._bytes_waiting = 0
        data, self._unparsed = self._unparsed, b""
        self.data_received(data)
        if not self._is_queue_full and not self._reading_paused:
            self.transport.resume_reading()

    def _on_idle_timeout(self) -> None:
        """Close the connection if it is idle; wait on if a request has come meanwhile."""
        self._cancel_idle = None
        left = self._idle_until - self._loop.time()
        if left > 0:
            self._cancel_idle = self._terms.idles.call_later(left, self._on_idle_timeout)
        elif self._is_idle and not self._head.size:
            self._end()

    # Reading.

    def data_received(self, data: bytes) -> None:
        """Parse what arrives: a head, its body, and so on, while few requests wait.

        A request behind which invalid bytes arrive is answered before them.
        """
        if self._deaf:
            return
        waiting = self._waiting
        was_waiting, at, size = len(waiting), 0, len(data)
        try:
            while at < size:
                if waiting and (len(waiting) >= _MOST_WAITING or self._bytes_waiting > _READ_AHEAD):
                    self._hold(data[at:])
                    break
                at = self._parse_body(data, at) if self._body_left else self._parse_head(data, at)
        except HttpProcessingError as error:
            self._reject_input(HEAD_TOO_LARGE if _is_too_large(error) else BAD_REQUEST)
            return
        except Exception:  # asyncio would log the error together with the peer's bytes
            self._reject_input(BAD_REQUEST)
            return
        if len(waiting) > was_waiting:
            self._is_idle = False
            if not self._was_used:
                self._start()
            elif asyncio.current_task(self._loop) is None:
                self._arrival.wake_up()
            else:
                self._loop.call_soon(self._arrival.notify)
        if waiting:
            self._bytes_waiting += size

    def _parse_head(self, data: bytes, at: int) -> int:
        """Parse the bytes of one head, and return where they end.

        The parser limits each line and the number of lines, but not the size of a head. This method
        sets `long_heads` if one with the empty lines before it is larger than `max_header`.
        """
        watch = self._head
        earlier = watch.size
        # The end of a head may have begun in an earlier read.
        end = data.find(_HEAD_END, at) + 4 if not earlier else (self._head_tail + data).find(_HEAD_END) + 4
        if end < 4:
            self._parse_part_of_head(data[at:])
            return len(data)
        if earlier:
            end -= len(self._head_tail)
        messages, is_upgraded, _ = self._parser.feed_data(data if end - at == len(data) else data[at:end])
        if not messages:
            # Empty lines before a request belong to none: some hosts send one after a body.
            if earlier or data[at:end].strip(_LINE_END):
                raise BadHttpMessage("a head without an end")
            return len(data) - len(data[end:].lstrip(_LINE_END))
        ((head, body),) = messages
        if watch.timer is not None:
            watch.stop()
        if earlier + end - at > self._max_header:
            self.long_heads = True
        self._latest_body = body
        self._waiting.append(
            HostRequest(
                head.method,
                head.path,
                head.version,
                head.headers,
                head.raw_headers,
                not (head.should_close or head.upgrade),
                body,
                self,
                self.remote,
            )
        )
        if is_upgraded:
            # What follows would be of another protocol. `Door` refuses it.
            self._deaf = True
            return len(data)
        if head.chunked:
            self._body_left, self._chunks = _UNKNOWN, ChunkFraming()
        elif body is not EMPTY_PAYLOAD:
            # The parser has checked that these are digits.
            length = head.headers[hdrs.CONTENT_LENGTH]
            self._body_left = int(length) if len(length) <= LONGEST_LENGTH else declared_length(length)
        return end

    def _parse_part_of_head(self, data: bytes) -> None:
        """Parse bytes that do not end a head, and limit the size and the time of the whole."""
        messages, _, _ = self._parser.feed_data(data)
        if messages:
            raise BadHttpMessage("a head without an empty line")
        if self._head.size or data.strip(_LINE_END):
            self._head_tail = (self._head_tail + data)[-3:] if self._head.size else data[-3:]
            if not self._head.add(len(data)):
                raise LineTooLong(b"", self._max_header)

    def _parse_body(self, data: bytes, at: int) -> int:
        """Parse bytes of the latest body, and return where they end. The parser must find its end
        where this method does.
        """
        chunks = self._chunks
        if chunks is not None:
            end = chunks.find_end(data, at)
            if chunks.is_ended:
                self._body_left = 0
                # All but the last byte, so that the parser cannot have found an earlier end.
                self._parser.feed_data(data[at : end - 1])
                if self._latest_body.is_eof():
                    raise BadHttpMessage("a body with an earlier end")
                at = end - 1
        else:
            end = min(at + self._body_left, len(data))
            self._body_left -= end - at
        messages, is_upgraded, _ = self._parser.feed_data(data if end - at == len(data) else data[at:end])
        if messages or self._latest_body.is_eof() is not (not self._body_left):
            raise BadHttpMessage("a body without a certain end")
        if chunks is not None and chunks.is_ended:
            # The parser may keep a field of the trailer for the next head.
            self._chunks, self._parser = None, self._new_parser()
        if is_upgraded:
            self._deaf = True
            return len(data)
        return end

    @property
    def connected(self) -> bool:
        """Whether more of a body can arrive; its reader asks."""
        return not self.lost.done()

    def pause_reading(self) -> None:
        """Stop reading, because much of a body waits for its reader, which calls this.

        What was read is still parsed: it takes as much memory in the parser.
        """
        self._reading_paused = True
        self.transport.pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Resume reading if it was paused. A reader calls this after every read."""
        if self._reading_paused:
            self._reading_paused = False
            if not self._is_queue_full:
                # What is read from here on may belong to another request than the present one.
                with no_request():
                    self.transport.resume_reading()

    def _on_head_timeout(self) -> None:
        """Answer a head that does not complete; close a connection that sent nothing."""
        if self._is_queue_full:
            # Its rest may have come: it is not read now.
            self._head.begin_anew()
        elif self._head.size:
            self._reject_input(TOO_SLOW)
        else:
            self._end()

    def _reject_input(self, refusal: Rejection) -> None:
        """Read nothing more, and answer the invalid bytes with `refusal`.

        It waits for its turn like a request, so its answer comes after those to the requests
        before, and closes the connection.
        """
        self._deaf = True
        self._is_idle = False
        self._head.stop()
        if not self._latest_body.is_eof():
            # A turn later: a reader that the end of a chunk has just woken takes none before its step.
            self._loop.call_soon(self._latest_body.set_exception, BrokenBody())
        self._waiting.append(refusal)
        if self._was_used:
            self._arrival.notify()
        else:
            self._start()

    # Writing.

    def pause_writing(self) -> None:
        """Handle that the peer reads too slowly."""
        self.writing_paused = True
        self._watch_writes()

    def resume_writing(self) -> None:
        """Handle that the peer has caught up."""
        self.writing_paused = False
        if self._write_watch is not None:
            self._write_watch.stop()
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)

    async def drain(self) -> None:
        """Wait until a slow host has caught up. Raises ConnectionError if it disconnects."""
        if self.writing_paused and not self.lost.done():
            self._drain_waiter = self._loop.create_future()
            await self._drain_waiter
            if self.lost.done():
                raise ConnectionResetError

    async def answer_last(self, request: HostRequest, response: HttpResponse) -> None:
        """Send an answer as the last one of the connection, and parse nothing more.

        Waits up to _LINGER seconds for the peer to close the connection.
        """
        response.keep_alive = False
        self._deaf = True
        try:
            await response.send(request)
            self.transport.write_eof()
        except OSError:
            # Also if the host has reset the connection, which is not noticed yet.
            return
        # The end of the connection is noticed only while it is read; the bytes are dropped.
        self.transport.resume_reading()
        await asyncio.wait([self.lost], timeout=_LINGER)

    def _watch_closing(self) -> None:
        """Limit the time in which the transport closes: it waits for its peer to read the rest, forever
        if nothing stops it.
        """
        if self.transport.get_write_buffer_size():
            self._watch_writes()

    def _watch_writes(self) -> None:
        if self._write_watch is None:
            self._write_watch = WriteWatch(self._terms.bounds, self.transport)
        self._write_watch.begin()


def hang_up(wire: asyncio.Transport) -> bool:
    """Return whether the caller is to close an idle connection now.

    If True, the socket is already shut down for sending where that is possible. So the host learns
    of the end at once, and sends nothing more. False if bytes have arrived that the loop has not
    read: a request may begin. Then nothing has changed.
    """
    if wire.is_closing():
        return True
    at: socket.socket = wire.get_extra_info("socket")
    waiting = select.poll()
    # An error means that it is already closed.
    with suppress(OSError, ValueError):
        waiting.register(at.fileno(), select.POLLIN)
        if waiting.poll(0):
            return False
    # TLS has a closing message of its own; and a full write buffer is sent first.
    if not isinstance(wire, TlsWire) and wire.get_write_buffer_size() == 0:
        # The transport would close its socket only after the loop's other work.
        with suppress(OSError):
            at.shutdown(socket.SHUT_WR)
    return True


def _is_too_large(error: HttpProcessingError) -> bool:
    return isinstance(error, LineTooLong) or error.message == "Too many headers received"


def _report(what: str, error: BaseException) -> None:
    # Its text may have what the peer sent.
    _log.error(what, extra={"error": type(error).__name__})
