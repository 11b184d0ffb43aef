"""One connection of a host: `HostConnection`, aiohttp's server protocol with limits.

aiohttp does the parsing, keep-alive and pipelining. This class limits slow and oversized peers
(`patience`), answers bytes that are not HTTP, and reports to the exchange under way when its host
disconnects. `PublicListener` makes one for each accepted connection; requests go to `Endpoint`.

A connection ends when the host closes it, or when it is idle for too long. It also ends after an
answer to invalid bytes, and while the listener closes (`wind_down`, `drop`). Every connection ends,
whatever its peer does. Nothing that a peer sent reaches a log or comes back to it.

An answer with keep-alive promises the host that it may send a next request. A connection that has
to close right after such an answer first waits a second for that request (`keep_promise`).

aiohttp runs one task for each connection. It takes parsed requests from `_messages`, answers one at
a time, and waits on the future `_waiter` for the next.

Each name of the base class that is used here is covered by a test over a real socket. The module
stays whole because the class is one protocol with one state, and the rest is its own.
"""

import asyncio
import logging
import select
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from aiohttp import hdrs, web
from aiohttp.http import HttpVersion11
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import _ErrInfo

from taskgate.listener.door import BAD_REQUEST, HEAD_TOO_LARGE, TOO_SLOW, Rejection, RememberedHead
from taskgate.listener.patience import ConnectionSettings, HeadWatch, WriteWatch
from taskgate.listener.tls import TlsWire
from taskgate.telemetry.request_context import no_request

SERVER_NAME: Final = "taskgate"

FIRST_REQUEST: Final = 1.0
"""Seconds in which a host that connects during the close may send its request."""

MOMENT: Final = 1.0
"""Seconds for which an answer's promise of keep-alive holds when the connection has to close."""

MOST_READ: Final = 256 * 1024
"""Bytes that asyncio reads at once."""
_MOST_FIELDS: Final = 100
_LINGER: Final = 1.0
"""Seconds in which a rejected peer may finish sending. An immediate close would reset the
connection and lose the answer."""

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


class HostConnection(web.RequestHandler):
    """One connection, from its first byte to its last.

    - `leaving` is set by the listener when hosts are to find another replica. `Endpoint` and
      `HostExchange` read it, and let the next answer close the connection.
    - `closing` is set by `wind_down`: the listener closes. `Endpoint` lets the answer of the
      exchange under way close the connection.
    - `exchange` is the one that the gateway works on, set by `Endpoint`; None between requests.
    - `heads` are those of admitted requests, the oldest first, which `Endpoint` remembers.
    - `long_heads`: a head may be too large, so that `Endpoint` measures each. Never unset.
    - `lost` is done when the connection is gone.
    - `_latest_body` is the body of the request that was parsed last, complete or not.
    - `_bytes_since_head` is the most bytes that the next head can have so far.
    - `_promises` is the number of keep-alive promises that hold (`keep_promise`).
    - `_write_watch` is made when the host first reads too slowly.
    """

    __slots__ = (
        "_bounds",
        "_bytes_since_head",
        "_connected_at",
        "_deaf",
        "_head",
        "_latest_body",
        "_on_garbage",
        "_promises",
        "_tasks",
        "_wire",
        "_write_watch",
        "closing",
        "exchange",
        "heads",
        "leaving",
        "long_heads",
        "lost",
        "received",
    )

    def __init__(
        self,
        server: web.Server,
        bounds: ConnectionSettings,
        tasks: set[asyncio.Task[None]],
        on_garbage: Callable[[web.BaseRequest, Rejection], None],
    ) -> None:
        """`tasks` is the listener's set: this connection's task is in it until the task ends.

        `on_garbage` is called once for bytes that are no request, before their answer is sent.
        """
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=bounds.idle_timeout.total_seconds(),
            logger=_log,
            access_log=None,  # type: ignore[arg-type]
            max_line_size=bounds.max_header,
            max_field_size=bounds.max_header,
            max_headers=_MOST_FIELDS,
            lingering_time=0,
            auto_decompress=False,
        )
        self._bounds = bounds
        self._tasks = tasks
        self._on_garbage = on_garbage
        # Never unset: what arrives from then on is dropped, because the next answer is the last.
        self._deaf = False
        self._head = HeadWatch(bounds, self._on_head_timeout)
        self._latest_body: StreamReader = EMPTY_PAYLOAD
        self._connected_at = 0.0
        self._promises = 0
        self._bytes_since_head = 0
        self._write_watch: WriteWatch | None = None
        self._wire: asyncio.Transport | None = None
        self.closing = self.leaving = False
        self.exchange: Departing | None = None
        self.heads: list[RememberedHead] = []
        self.long_heads = False
        self.received = 0
        """The number of bytes that have arrived, for `receive_rest`."""
        self.lost: asyncio.Future[None] = self._loop.create_future()

    # Start and end.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to serve, with a time limit for the first head."""
        assert isinstance(transport, asyncio.Transport)
        self._connected_at = self._loop.time()
        self._wire = transport
        super().connection_made(transport)
        self._head.begin()
        task = self._task_handler
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the time limits, and report the disconnect to the exchange under way.

        Whether the gateway's work on it ends depends on what that work registered for a disconnect.
        """
        super().connection_lost(exc)
        if self._head.timer is not None:
            self._head.stop()
        if self._write_watch is not None:
            self._write_watch.stop()
        if not self.lost.done():
            self.lost.set_result(None)
        if self.exchange is not None:
            self.exchange.host_left()

    def wind_down(self) -> None:
        """Close the connection after the exchange under way, or at once if it is idle.

        A new connection first has FIRST_REQUEST seconds to bring its request. May be called again,
        and calls itself again when such a delay is over.
        """
        self.closing = True
        # Idle: aiohttp's task waits on `_waiter`, which the next request completes. Before its first
        # wait there is none, and no request has been parsed.
        idle = self._request_count == 0 if self._waiter is None else not self._waiter.done()
        if idle and self._request_count == 0 and self._loop.time() < (until := self._connected_at + FIRST_REQUEST):
            self._loop.call_at(until, self.wind_down)
        elif idle:
            # If not, there are two cases. Bytes of a next request have arrived, and its answer closes
            # the connection; or a promise still holds, and calls this when it ends.
            if not self._promises and hang_up(self._wire):
                self.force_close()
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
        if self._wire is not None:
            self._wire.abort()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Close the connection after its task has ended, and limit the time of the close."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _report("a connection failed", error)
        self.force_close()
        # A closed transport waits for its peer to read the rest, forever if nothing stops it.
        if not self.lost.done():
            self._watch_writes()

    # Reading.

    def data_received(self, data: bytes) -> None:
        """Parse what arrives, and limit a head that is not complete.

        The parser limits each line and the number of lines, but not the size of a head. This method
        sets `long_heads` if the bytes since the head before are more than `max_header`.
        """
        if self._deaf:
            return
        count, body = self._request_count, self._latest_body
        is_between_requests = body.is_eof()
        self._bytes_since_head += len(data)
        self.received += len(data)
        try:
            super().data_received(data)
        except Exception:  # asyncio would log the error together with the peer's bytes
            self._reject_input(BAD_REQUEST)
            return
        if self._request_count == count:
            # Empty lines before a request belong to none: some hosts send one after a body.
            if is_between_requests and data.strip(b"\r\n") and not self._head.add(len(data)):
                self._reject_input(HEAD_TOO_LARGE)
            return
        message, self._latest_body = self._messages[-1]
        if self._head.timer is not None:
            self._head.stop()
        if self._bytes_since_head > self._bounds.max_header:
            self.long_heads = True
        # The end of the message in these bytes is unknown: all of them may belong to the next head.
        self._bytes_since_head = len(data)
        if isinstance(message, _ErrInfo):
            self._messages.pop()
            self._latest_body = body
            self._reject_input(HEAD_TOO_LARGE if _is_too_large(message.exc) else BAD_REQUEST)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Resume reading if it was paused. A reader calls this after every read."""
        if self._reading_paused:
            # What is read from here on may belong to another request than the present one.
            with no_request():
                super().resume_reading(resume_parser)

    @property
    def most_unparsed(self) -> int:
        """An upper bound for the bytes of `received` that the parser has not seen yet.

        While reading is paused, aiohttp keeps the rest of the last read for the parser.
        """
        return MOST_READ if self._reading_paused else 0

    def _on_head_timeout(self) -> None:
        """Answer a head that does not complete; close a connection that sent nothing."""
        if self._head.size:
            self._reject_input(TOO_SLOW)
        else:
            self.force_close()

    def _reject_input(self, refusal: Rejection) -> None:
        """Read nothing more, and answer the invalid bytes with `refusal`.

        It is queued as if it were a request, so its answer comes after those to the requests
        before. aiohttp passes it to `_make_error_handler`. The answer closes the connection.
        """
        self._deaf = True
        self._head.stop()
        if not self._latest_body.is_eof():
            self._latest_body.set_exception(web.RequestPayloadError())
        # Like aiohttp's parser: queue it, and wake the task of the connection.
        self._messages.append((_ErrInfo(refusal.status, _Garbage(refusal), ""), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Writing.

    def pause_writing(self) -> None:
        """Handle that the peer reads too slowly."""
        super().pause_writing()
        self._watch_writes()

    def resume_writing(self) -> None:
        """Handle that the peer has caught up."""
        super().resume_writing()
        if self._write_watch is not None:
            self._write_watch.stop()

    def _watch_writes(self) -> None:
        if self._write_watch is None:
            assert self._wire is not None, "nothing is written before the connection is made"
            self._write_watch = WriteWatch(self._bounds, self._wire)
        self._write_watch.begin()

    # Rejecting.

    async def refuse(self, http: web.BaseRequest, refusal: Rejection) -> web.StreamResponse:
        """Return a response with the constant text of a rejection.

        If the rejection closes the connection, or the body has not all arrived, the response is
        also sent, as the last one.
        """
        # Answer as HTTP/1.1, not in the version that was rejected. aiohttp caches the version here.
        http._cache["version"] = HttpVersion11
        response = web.Response(status=refusal.status, body=refusal.text.encode() or None)
        response.headers[hdrs.SERVER] = SERVER_NAME
        if refusal.text:
            response.headers[hdrs.CONTENT_TYPE] = "text/plain; charset=utf-8"
        if refusal.allow is not None:
            response.headers[hdrs.ALLOW] = refusal.allow
        if refusal.close or not http.content.is_eof():
            await self.answer_last(http, response)
        return response

    async def answer_last(self, http: web.BaseRequest, response: web.StreamResponse) -> None:
        """Send an answer as the last one of the connection, and parse nothing more.

        Waits up to _LINGER seconds for the peer to close the connection.
        """
        response.force_close()
        self._deaf = True
        try:
            await response.prepare(http)
            await response.write_eof()
            transport = self.transport
            if transport is not None:
                transport.write_eof()
        except OSError:
            # Also if the host has reset the connection, which is not noticed yet.
            return
        if transport is not None:
            # The end of the connection is noticed only while it is read; the bytes are dropped.
            transport.resume_reading()
            await asyncio.wait([self.lost], timeout=_LINGER)

    def _make_error_handler(self, err_info: _ErrInfo) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        assert isinstance(err_info.exc, _Garbage)
        refusal = err_info.exc.refusal

        async def answer(http: web.BaseRequest) -> web.StreamResponse:
            self._on_garbage(http, refusal)
            return await self.refuse(http, refusal)

        return answer

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer an internal error with 500. Only the class of the error is logged."""
        _report("a request failed", exc)
        if request.writer.output_size > 0:
            raise ConnectionError
        response = web.Response(status=500, headers={hdrs.SERVER: SERVER_NAME})
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log the class of the error. The base class would log a traceback, with what the peer
        sent.
        """
        _report("a connection failed", kw.get("exc_info"))


class _Garbage(Exception):
    """The arrived bytes are no request; none of them are stored."""

    def __init__(self, refusal: Rejection) -> None:
        super().__init__(refusal.status)
        self.refusal = refusal


def hang_up(wire: asyncio.Transport | None) -> bool:
    """Return whether the caller is to close an idle connection now.

    If True, the socket is already shut down for sending where that is possible. So the host learns
    of the end at once, and sends nothing more. False if bytes have arrived that the loop has not
    read: a request may begin. Then nothing has changed.
    """
    if wire is None or wire.is_closing():
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


def _is_too_large(error: BaseException) -> bool:
    return isinstance(error, LineTooLong) or (
        isinstance(error, HttpProcessingError) and error.message == "Too many headers received"
    )


def _report(what: str, error: BaseException | None) -> None:
    _log.error(what, extra={"error": type(error).__name__})
