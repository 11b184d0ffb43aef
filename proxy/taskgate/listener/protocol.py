"""One connection of a host: `HostConnection`, an asyncio protocol on aiohttp's request parser.

A head that the connection remembers is found by its bytes (`door.find_head`). Any other head is read
by a parser of aiohttp's, which gets the bytes of one request only. A body is counted, unless it is in
chunks (`chunks`). This class does keep-alive and pipelining, and limits slow and oversized peers
(`patience`). It answers bytes that are not HTTP, and reports to the exchange under way when its host
disconnects. `PublicListener` makes one for each accepted connection. It passes each `HostRequest` to
`Endpoint`, one at a time and in order.

A connection ends when the host closes it, or when it is idle for too long. It also ends after an
answer to invalid bytes, and while the listener closes (`wind_down`, `drop`). Every connection ends,
whatever its peer does. Nothing that a peer sent reaches a log or comes back to it.

An answer with keep-alive promises the host that it may send a next request. A connection that has
to close right after such an answer first waits a second for that request (`keep_promise`).

The module stays whole because the class is one protocol with one state, and the rest is its own.
"""

import asyncio
import fcntl
import logging
import select
import socket
import struct
import termios
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from aiohttp import hdrs
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError, LineTooLong
from multidict import CIMultiDict

from taskgate.listener.body import READ_AHEAD, ArrivingBody
from taskgate.listener.chunks import ChunkedBody
from taskgate.listener.door import (
    BAD_REQUEST,
    HEAD_TOO_LARGE,
    LONGEST_LENGTH,
    NO_BYTES,
    TOO_SLOW,
    HostHead,
    Rejection,
    declared_length,
    find_head,
    head_size,
    origin_form,
)
from taskgate.listener.patience import ConnectionSettings, HeadWatch, WriteWatch
from taskgate.listener.tls import TlsWire
from taskgate.streams.arrival import Arrival
from taskgate.streams.bytes_in_flight import SMALL
from taskgate.system.current_task import current_task
from taskgate.system.timer_wheel import Cancel, TimerWheel
from taskgate.telemetry.request_context import no_request

SERVER_NAME: Final = "taskgate"

FIRST_REQUEST: Final = 1.0
"""Seconds in which a host that connects during the close may send its request."""

MOMENT: Final = 1.0
"""Seconds for which an answer's promise of keep-alive holds when the connection has to close."""

CONFIRMED: Final = 0.05
"""Seconds in which a host resets the connection if it is gone, or leaves before it has read all. An
answer that is acknowledged by then counts as received."""
_LOOKS: Final = 1000
"""How often that is looked at again while bytes are not acknowledged."""

_MOST_WAITING: Final = 32
"""Parsed requests of a connection that wait for their turn; then nothing more is read."""
_HEAD_END: Final = b"\r\n\r\n"
_LINE_END: Final = b"\r\n"
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

    @property
    def is_revoked(self) -> bool:
        """Whether what the request was admitted by is revoked."""
        ...

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


class HostRequest:
    """One request of a host. Its head has arrived, and its body arrives.

    - `length` is the Content-Length; 0 without one.
    - `body` is None until the body has arrived whole. Its reader leaves nothing of it.
    - `rest` is the body that has not arrived with the head. None if it has, and if nothing of it is
      to be read.
    - `is_lost`: the host disconnected while the request was answered.
    - `is_answered` is set when the head of the answer is written.
    """

    __slots__ = ("body", "connection", "head", "is_answered", "is_lost", "length", "rest")

    def __init__(self, connection: "HostConnection", head: HostHead, length: int, body: bytes | None) -> None:
        self.connection = connection
        self.head = head
        self.length = length
        self.body = body
        self.rest: ArrivingBody | None = None
        self.is_lost = self.is_answered = False


class HttpResponse(Protocol):
    """The answer to a request, as its connection sees it; implemented in `answers`.

    `keep_alive` is False if the connection closes after it, and None if the host decides.
    """

    @property
    def status(self) -> int: ...

    keep_alive: bool | None

    def send(self, request: HostRequest) -> Awaitable[None] | None:
        """Write what is not written yet. Returns what is to be awaited, if the rest takes time.

        Sets `keep_alive`. It raises ConnectionError if the host has disconnected, and so does what
        is awaited.
        """
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class ConnectionTerms:
    """The parts that all connections of a listener share.

    - `answer` is called for each request. `answer_garbage` is called for bytes that are no request,
      and sends their answer, the last one.
    - `new_parser` makes a parser for one request (`chunks.request_parser`).
    - `heads` and `idles` have the timers for heads and for idle connections.
    - `woken` is a future that has a result (`Arrival`).
    - `open` are the connections, from the moment that they can be lost until they are.
    - `tasks` has the task of each connection, also while its host has disconnected and the request
      is still being answered.
    - `bytes_waiting` are those of all connections that wait behind a request, but for up to SMALL of each.
    - `is_retired`: each connection closes after its next answer. `is_closing`: idle ones at once.
    """

    bounds: ConnectionSettings
    answer: Callable[[HostRequest], Awaitable[HttpResponse]]
    answer_garbage: Callable[["HostConnection", Rejection], Awaitable[object]]
    new_parser: Callable[[], HttpRequestParser]
    heads: TimerWheel
    idles: TimerWheel
    woken: asyncio.Future[None]
    open: "set[HostConnection]" = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    bytes_waiting: int = 0
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
    - `heads` are those of admitted requests, the newest first, which `Endpoint` remembers.
    - `writing_paused`: the host reads too slowly, so that who writes should `drain`.
    - `lost` is done when the connection is gone.

    One task answers the requests in `_waiting`, and waits on `_arrival` for the next. It starts with
    the first request.

    - `_is_idle`: no request waits or is being answered. `_was_used`: the task was started.
    - `_is_ending`: no further request is answered. `_deaf`: what arrives is dropped.
    - `_part` are the bytes of a head that is not complete, and `_parser` has read them.
    - `_reading` is the request whose body is to come: so many bytes as `_body_left`, or `_chunks`.
    - `_was_last`: the host said of the latest request that it is the last.
    - `_reading_paused`, `_is_queue_full`: why the transport does not read.
    - `_bytes_waiting` have arrived while requests wait. `_unparsed` are the last of them if they are
      too many, or too many requests. `_bytes_counted` of them are in the count of all connections.
    - `_promises` is the number of keep-alive promises that hold (`keep_promise`).
    - `_write_watch` is made when the host first reads too slowly.
    - `_unconfirmed` are the answers that were sent and are not known to be received, as `confirm` got
      them, each with its timer. None if there are none.
    """

    __slots__ = (
        "_arrival",
        "_body_left",
        "_bytes_counted",
        "_bytes_waiting",
        "_cancel_idle",
        "_chunks",
        "_connected_at",
        "_deaf",
        "_drain_waiter",
        "_head",
        "_idle_seconds",
        "_idle_until",
        "_is_ending",
        "_is_idle",
        "_is_queue_full",
        "_loop",
        "_max_header",
        "_parser",
        "_part",
        "_promises",
        "_reading",
        "_reading_paused",
        "_terms",
        "_unconfirmed",
        "_unparsed",
        "_waiting",
        "_was_last",
        "_was_used",
        "_write_watch",
        "closing",
        "exchange",
        "heads",
        "leaving",
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
        # Few wait, and most often none: an empty list is a tenth of an empty deque.
        self._waiting: list[HostRequest | Rejection] = []
        self._arrival = Arrival(loop, terms.woken)
        self.request: HostRequest | None = None
        self._is_idle = True
        self._was_used = self._was_last = self._is_ending = self._deaf = False
        self._reading_paused = self._is_queue_full = self.writing_paused = False
        self._head = HeadWatch(terms.bounds, terms.heads, self._on_head_timeout)
        self._parser: HttpRequestParser | None = None
        self._reading: HostRequest | None = None
        self._idle_seconds = terms.bounds.idle_timeout.total_seconds()
        self._connected_at = self._idle_until = 0.0
        self._cancel_idle: Cancel | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._promises = 0
        self._part = self._unparsed = b""
        self._bytes_waiting = self._bytes_counted = self._body_left = 0
        self._chunks: ChunkedBody | None = None
        self._write_watch: WriteWatch | None = None
        self._unconfirmed: dict[Callable[[bool], None], asyncio.TimerHandle] | None = None
        self.closing = self.leaving = False
        self.exchange: Departing | None = None
        self.heads: list[HostHead] = []
        self.lost: asyncio.Future[None] = loop.create_future()

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
        # Timers refer back to this object, which would keep them, and so does a request that goes on.
        self._parser = self._reading = self._chunks = None
        self._waiting.clear()
        self._unparsed = b""
        if self._bytes_counted:
            self._uncount_waiting()
        if self._head.timer is not None:
            self._head.stop()
        if self._cancel_idle is not None:
            self._cancel_idle()
        if self._write_watch is not None:
            self._write_watch.stop()
        if self.request is not None:
            self.request.is_lost = True
            if self.request.rest is not None:
                self.request.rest.fail(BAD_REQUEST)
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)
        self.lost.set_result(None)
        if self._unconfirmed is not None:
            self._settle_unconfirmed(was_received=exc is None)
        if self._is_idle:
            self._arrival.notify()
        if self.exchange is not None:
            self.exchange.host_left()

    def eof_received(self) -> None:
        """Let the transport close, because the host sends nothing more, and limit the time of that."""
        if self._unconfirmed is not None:
            self._settle_unconfirmed(was_received=_is_acknowledged(self.transport) is True)
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
        """Abort the connection: what is unsent is lost. The last step of the listener's close.

        Also if the API key of the request under way is revoked.
        """
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
                    self._is_idle, self._bytes_waiting = True, 0
                    if self._bytes_counted:
                        self._uncount_waiting()
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
                unsent = response.send(request)
                if unsent is not None:
                    await unsent
                if not response.keep_alive or request.body is None:
                    return
                # The next wait may be long: they hold what the host sent.
                del request, response, unsent
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
        if self._unconfirmed is None:
            self.transport.close()
            self._watch_closing()
        # Else a moment later: after its own close this side would not learn of a reset.

    def _answer_fault(self, request: HostRequest, error: Exception) -> None:
        """Answer a request on which the listener failed, unless an answer has begun."""
        _report("a request failed", error)
        if not request.is_answered and not self.transport.is_closing():
            date = f"Date: {rfc822_formatted_time()}\r\n"
            self.transport.write(f"{_FAULT}{date}{request.head.cors}Connection: close\r\n\r\n".encode())

    def _hold(self, data: bytes) -> None:
        """Read nothing more, and parse this when no request waits."""
        self._unparsed = data
        self._is_queue_full = True
        self.transport.pause_reading()

    def _read_on(self) -> None:
        """Parse and read on, because no request waits."""
        self._is_queue_full = False
        self._uncount_waiting()
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
        was_waiting, at, size, is_valid = len(waiting), 0, len(data), True
        try:
            while at < size and not self._deaf:
                if waiting and (len(waiting) >= _MOST_WAITING or self._bytes_waiting > READ_AHEAD):
                    self._hold(data[at:])
                    break
                at = self._read_head(data, at) if self._reading is None else self._read_body(data, at)
        except HttpProcessingError as error:
            is_valid = False
            self._reject_input(HEAD_TOO_LARGE if _is_too_large(error) else BAD_REQUEST)
        except Exception:  # asyncio would log the error together with the peer's bytes
            is_valid = False
            self._reject_input(BAD_REQUEST)
        if is_valid and len(waiting) > was_waiting:
            self._is_idle = False
            if self._unconfirmed is not None:
                # The host goes on with what it has received.
                self._settle_unconfirmed(was_received=True)
            if not self._was_used:
                self._start()
            elif current_task(self._loop) is None:
                self._arrival.wake_up()
            else:
                self._loop.call_soon(self._arrival.notify)
        if waiting:
            # What came before invalid bytes waits, too.
            self._bytes_waiting += size
            if self._bytes_waiting > SMALL and (self.request is not None or len(waiting) > 1):
                self._count_waiting()

    def _count_waiting(self) -> None:
        """Read nothing more while many bytes wait behind a request. Refuse them, if all connections have too many."""
        terms, more = self._terms, self._bytes_waiting - self._bytes_counted
        if terms.bytes_waiting + more > terms.bounds.waiting_bytes:
            self._waiting.clear()
            self._unparsed = b""
            self._uncount_waiting()
            self._reject_input(NO_BYTES)
            return
        terms.bytes_waiting += more
        self._bytes_counted += more
        if not self._is_queue_full and not self._deaf:
            self._hold(b"")

    def _uncount_waiting(self) -> None:
        self._terms.bytes_waiting -= self._bytes_counted
        self._bytes_waiting = self._bytes_counted = 0

    def _read_head(self, data: bytes, at: int) -> int:
        """Read one head, and return where it ends; where its body ends, if all of that has come."""
        part = self._part
        if part:
            # The head began in an earlier read, so its rest begins this one.
            data = part + data
            end = data.find(_HEAD_END, max(len(part) - 3, 0)) + 4
        else:
            end = data.find(_HEAD_END, at) + 4
        if end < 4:
            self._read_part_of_head(data, at)
            return len(data) - len(part)
        head = find_head(self.heads, data, at, end) if self.heads else None
        if head is None or head.is_chunked or end - at > self._max_header or self._was_last:
            raw = data[at:end]
            if not raw.strip(_LINE_END):
                # Empty lines before a request belong to none: some hosts send one after a body.
                return len(data) - len(data[end:].lstrip(_LINE_END))
            head, length = self._parse_head(head, raw)
        else:
            length = int(data[at + len(head.before) : end - len(head.after)]) if head.after else 0
        if self._head.timer is not None:
            self._head.stop()
        if part:
            # The parser has read a part also of a head that was found.
            self._part, self._parser = b"", None
        self._was_last = not head.keep_alive
        stop = end + length
        if self._chunks is None and stop <= len(data):
            self._waiting.append(HostRequest(self, head, length, data[end:stop]))
            return stop - len(part)
        request = HostRequest(self, head, length, None)
        self._waiting.append(request)
        request.rest = ArrivingBody(self)
        self._reading, self._body_left = request, length
        return end - len(part)

    def _read_part_of_head(self, data: bytes, at: int) -> None:
        """Read bytes that do not end a head, and limit the size and the time of the whole."""
        size = len(data) - at - len(self._part)
        # Empty lines before a request belong to none.
        if not self._part and not data[at:].strip(_LINE_END):
            return
        if self._was_last:
            raise BadHttpMessage("more behind the last request")
        if self._parser is None:
            self._parser = self._terms.new_parser()
        messages, _, _ = self._parser.feed_data(data[len(data) - size :])
        if messages:
            raise BadHttpMessage("a head without an empty line")
        self._part = data[at:]
        if not self._head.add(size):
            raise LineTooLong(b"", self._max_header)

    def _parse_head(self, known: HostHead | None, raw: bytes) -> tuple[HostHead, int]:
        """Return a head, which is `known` if it was found, with its Content-Length."""
        if self._was_last:
            raise BadHttpMessage("more behind the last request")
        parser = self._parser or self._terms.new_parser()
        # All but the last byte, so that the parser cannot have found an earlier end.
        messages, _, _ = parser.feed_data(raw[len(self._part) : -1])
        if messages:
            raise BadHttpMessage("a head with an earlier end")
        messages, _, _ = parser.feed_data(raw[-1:])
        if not messages:
            raise BadHttpMessage("a head without an end")
        ((parsed, reader),) = messages
        headers = CIMultiDict(parsed.headers)
        digits = headers.pop(hdrs.CONTENT_LENGTH, "0")
        is_tunnel = parsed.method == hdrs.METH_CONNECT
        if is_tunnel:
            # What follows would be of another protocol. `Door` refuses it.
            self._deaf = True
        elif parsed.chunked:
            # Such a body needs the parser, also where the head is known.
            self._chunks = ChunkedBody(parser, reader)
        is_too_large = len(raw) > self._max_header and head_size(parsed.path, parsed.raw_headers) > self._max_header
        head = known
        if head is None or is_too_large:
            head = HostHead(
                parsed.method,
                parsed.path if parsed.path[:1] == "/" else origin_form(parsed.path, headers),
                parsed.version,
                headers,
                keep_alive=not (parsed.should_close or is_tunnel),
                is_chunked=parsed.chunked,
                is_too_large=is_too_large,
                raw=raw,
                fields=headers.items(),
            )
        return head, int(digits) if len(digits) <= LONGEST_LENGTH else declared_length(digits)

    def _read_body(self, data: bytes, at: int) -> int:
        """Read bytes of the body that is to come, and return where they end."""
        request, chunks = self._reading, self._chunks
        assert request is not None
        assert request.rest is not None
        if chunks is not None:
            end = chunks.read(data, at, request.rest)
            is_ended = chunks.is_ended
        else:
            end = min(at + self._body_left, len(data))
            request.rest.feed(data[at:end])
            self._body_left -= end - at
            is_ended = not self._body_left
        if is_ended:
            self._reading = self._chunks = None
            request.body = request.rest.end()
        return end

    def pause_reading(self) -> None:
        """Stop reading, because much of a body waits for its reader. `ArrivingBody` calls this.

        What was read is still parsed and added to it.
        """
        self._reading_paused = True
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading if it was paused. `ArrivingBody` calls this after every read and at its end."""
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
        self._part, self._parser = b"", None
        if self._reading is not None and self._reading.rest is not None:
            # A turn later: its reader first takes what has come.
            self._loop.call_soon(self._reading.rest.fail, BAD_REQUEST)
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

    async def flush(self) -> None:
        """Wait until all that was written is given to the operating system.

        Raises ConnectionError if the host disconnects before.
        """
        transport = self.transport
        if transport.get_write_buffer_size():
            # Writing counts as paused until nothing is left.
            transport.set_write_buffer_limits(0)
            try:
                await self.drain()
            finally:
                # uvloop raises for a closed transport.
                if not self.lost.done():
                    transport.set_write_buffer_limits()
        if self.lost.done() or transport.is_closing():
            raise ConnectionResetError

    def confirm(self, settled: Callable[[bool], None]) -> None:
        """Call `settled` once with whether the host has received an answer that was sent.

        True with its next request, or when CONFIRMED has passed and all bytes are acknowledged. False if the
        connection ends before, or within _LOOKS looks they never are.
        """
        if self.lost.done() or self._waiting:
            # The next request may be here before the answer counts as sent.
            settled(not self.lost.done())
            return
        if self._unconfirmed is None:
            self._unconfirmed = {}
        self._unconfirmed[settled] = self._loop.call_later(CONFIRMED, self._look_again, _LOOKS)

    def _look_again(self, looks: int) -> None:
        """Settle the answers that were sent if all bytes are acknowledged, or after that many looks."""
        is_received = _is_acknowledged(self.transport)
        if is_received is not None or not looks or self._unconfirmed is None:
            self._settle_unconfirmed(was_received=is_received is True)
            return
        for settled in self._unconfirmed:
            self._unconfirmed[settled] = self._loop.call_later(CONFIRMED, self._look_again, looks - 1)

    def _settle_unconfirmed(self, *, was_received: bool) -> None:
        unconfirmed, self._unconfirmed = self._unconfirmed, None
        for settled, timer in (unconfirmed or {}).items():
            timer.cancel()
            settled(was_received)
        if self._is_ending and not self.lost.done():
            self.close()

    async def answer_last(self, request: HostRequest, response: HttpResponse) -> None:
        """Send an answer as the last one of the connection, and parse nothing more.

        Waits up to _LINGER seconds for the peer to close the connection.
        """
        response.keep_alive = False
        self._deaf = True
        # What has come of a body that was not asked for is not counted, so it is not kept.
        self._reading = self._chunks = request.rest = None
        try:
            unsent = response.send(request)
            if unsent is not None:
                await unsent
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


def _is_acknowledged(wire: asyncio.Transport) -> bool | None:
    """Return whether the system of the peer has all bytes that were given to this one; None if not yet.

    False if the peer is gone: to ask for that error takes it, and a read then looks like a proper end.
    """
    at: socket.socket = wire.get_extra_info("socket")
    try:
        (unacknowledged,) = struct.unpack("i", fcntl.ioctl(at.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))
        return None if unacknowledged else not at.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    except OSError:
        # The connection is gone.
        return False


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
        # The transport would close its socket only after the loop's other work. The socket of uvloop
        # has no `shutdown`; a copy of it does.
        with suppress(OSError), socket.fromfd(at.fileno(), at.family, at.type) as copy:
            copy.shutdown(socket.SHUT_WR)
    return True


def _is_too_large(error: HttpProcessingError) -> bool:
    return isinstance(error, LineTooLong) or error.message == "Too many headers received"


def _report(what: str, error: BaseException) -> None:
    # Its text may have what the peer sent.
    _log.error(what, extra={"error": type(error).__name__})
