"""One connection of a host: aiohttp's server protocol, made fit to stand at the edge.

What lives here: what becomes of slow and oversized peers and of bytes that are not HTTP, and the news that a host has
left. What must not: what a request means, and how long is too long (`patience`). What holds: nothing a peer sent
reaches a log or comes back to it; a connection whose framing is in doubt gets one answer, a last one, and nothing more
is read from it; every connection ends, whatever its peer does. The base class is leaned on for parsing, keep-alive and
pipelining; the names of its that are used here are each covered by a test over a real socket.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.http import HttpVersion11
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import _ErrInfo

from taskgate.listener.departing import Departing
from taskgate.listener.door import BAD_REQUEST, HEAD_TOO_LARGE, TOO_SLOW, Rejection
from taskgate.listener.hanging_up import Promise, hang_up
from taskgate.listener.patience import ConnectionSettings, HeadWatch, WriteWatch
from taskgate.telemetry.request_context import no_request

SERVER_NAME: Final = "taskgate"

FIRST_REQUEST: Final = 1.0
"""Seconds in which a host that connects while the listener closes may send its request."""

MOST_READ: Final = 256 * 1024
"""Bytes that asyncio reads at once."""
_MOST_FIELDS: Final = 100
_LINGER: Final = 1.0
"""Seconds in which a refused peer may finish sending: closing at once would reset the connection under the answer."""

_log = logging.getLogger("taskgate.listener")


class HostConnection(web.RequestHandler):
    """One connection, from its first byte to its last."""

    __slots__ = (
        "_bounds",
        "_deaf",
        "_head",
        "_latest_body",
        "_made_at",
        "_on_garbage",
        "_promise",
        "_since_head",
        "_tasks",
        "_unread",
        "_wire",
        "closing",
        "exchange",
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
        """`tasks` holds the connection's task while it runs; `on_garbage` is told of what never became a request."""
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
        self._deaf = False
        self._head = HeadWatch(bounds, self._give_up_on_head)
        self._latest_body: StreamReader = EMPTY_PAYLOAD
        self._made_at = 0.0
        self._promise: Promise | None = None
        self._since_head = 0
        self._unread: WriteWatch | None = None
        self._wire: asyncio.Transport | None = None
        self.closing = self.leaving = False
        self.exchange: Departing | None = None
        self.long_heads = False
        self.received = 0
        """Bytes that came, whatever they are."""
        self.lost: asyncio.Future[None] = self._loop.create_future()

    # Coming and going.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to serve, and to wait for the first head."""
        assert isinstance(transport, asyncio.Transport)
        self._made_at = self._loop.time()
        self._wire = transport
        self._unread = WriteWatch(self._bounds, transport)
        super().connection_made(transport)
        self._head.begin()
        task = self._task_handler
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._settle)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the exchange under way that its host has left; its work goes on."""
        super().connection_lost(exc)
        self._head.stop()
        if self._unread is not None:
            self._unread.stop()
        if not self.lost.done():
            self.lost.set_result(None)
        if self.exchange is not None:
            self.exchange.host_left()

    def wind_down(self) -> None:
        """End the connection after the exchange under way, at once where there is none.

        A connection that was made a moment ago has until then to bring the request that it was made for.
        """
        self.closing = True
        idle = self._request_count == 0 if self._waiter is None else not self._waiter.done()
        if idle and self._request_count == 0 and self._loop.time() < (until := self._made_at + FIRST_REQUEST):
            self._loop.call_at(until, self.wind_down)
        elif idle:
            if hang_up(self._wire, self._promise):
                self.force_close()
        elif self.exchange is not None:
            self.exchange.wind_down()
        else:
            # An exchange is about to begin, or was over a moment ago: its answer said that the connection goes on.
            self.keep_promise()

    def keep_promise(self) -> None:
        """An answer is over that said that the connection goes on, though it does not: give a next request a moment."""
        self._promise = Promise(lambda: self.wind_down() if self.closing else None)

    def drop(self) -> None:
        """End the connection now, with whatever is under way on it."""
        if self._wire is not None:
            self._wire.abort()

    def _settle(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _report("a connection failed", error)
        self.force_close()
        # A transport that was closed waits for its peer to take what is left, for ever if nobody stops it.
        if not self.lost.done() and self._unread is not None:
            self._unread.begin()

    # Reading.

    def data_received(self, data: bytes) -> None:
        """Parse, and bound what is not yet a request."""
        if self._deaf:
            return
        count, body = self._request_count, self._latest_body
        between = body.is_eof()
        self._since_head += len(data)
        self.received += len(data)
        try:
            super().data_received(data)
        except Exception:  # whatever the parser chokes on: asyncio would log it together with the peer's bytes
            self._cut(BAD_REQUEST)
            return
        if self._request_count == count:
            # Empty lines before a request belong to none: some hosts send one after a body.
            if between and data.strip(b"\r\n") and not self._head.add(len(data)):
                self._cut(HEAD_TOO_LARGE)
            return
        message, self._latest_body = self._messages[-1]
        self._head.stop()
        if self._since_head > self._bounds.max_header:
            self.long_heads = True
        # Where in these bytes the message ended is not known: all of them may be of the next head.
        self._since_head = len(data)
        if isinstance(message, _ErrInfo):
            self._messages.pop()
            self._latest_body = body
            self._cut(HEAD_TOO_LARGE if _is_too_large(message.exc) else BAD_REQUEST)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """A reader asks for it whenever it has taken something; unless reading was paused there is nothing to parse."""
        if self._reading_paused:
            # What is read from here on need not be of the request that is being read now.
            with no_request():
                super().resume_reading(resume_parser)

    @property
    def most_unparsed(self) -> int:
        """The most of what came that the parser may not have gone through yet."""
        return MOST_READ if self._reading_paused else 0

    def _give_up_on_head(self) -> None:
        if self._head.size:
            self._cut(TOO_SLOW)
        else:
            self.force_close()

    def _cut(self, refusal: Rejection) -> None:
        """Read nothing more; refuse what has come once the requests before it are answered."""
        self._deaf = True
        self._head.stop()
        if not self._latest_body.is_eof():
            self._latest_body.set_exception(web.RequestPayloadError())
        self._messages.append((_ErrInfo(refusal.status, _Garbage(refusal), ""), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Writing.

    def pause_writing(self) -> None:
        """The peer reads more slowly than we write."""
        super().pause_writing()
        if self._unread is not None:
            self._unread.begin()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.stop()

    async def write(self, piece: bytes | memoryview) -> None:
        """Send bytes of an answer, and wait while the host reads slowly. Raises ConnectionError where it has left."""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError
        transport.write(piece)
        # A view of a piece is one of the whole text, and the error of a host that leaves keeps this frame.
        del piece
        if self._paused:
            await self._drain_helper()

    # Refusing.

    async def refuse(self, http: web.BaseRequest, refusal: Rejection) -> web.StreamResponse:
        """Answer with a fixed text. Ends the connection where the refusal asks for it or the body has not all come."""
        # An answer in the version that was refused would be one more lie. Once asked for, it is kept in this cache.
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
        """Send an answer, read nothing more, and give the peer a moment to notice."""
        response.force_close()
        self._deaf = True
        try:
            await response.prepare(http)
            await response.write_eof()
            transport = self.transport
            if transport is not None:
                transport.write_eof()
        except OSError:
            # Also where the host reset the connection, which is not noticed yet.
            return
        if transport is not None:
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
        """The last resort, for a fault of our own: its class is logged, and nothing is told to the peer."""
        _report("a request failed", exc)
        if request.writer.output_size > 0:
            raise ConnectionError
        response = web.Response(status=500, headers={hdrs.SERVER: SERVER_NAME})
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What the base class would log with a traceback, and so with what the peer sent."""
        _report("a connection failed", kw.get("exc_info"))


class _Garbage(Exception):
    """What came is no request; nothing of it is kept."""

    def __init__(self, refusal: Rejection) -> None:
        super().__init__(refusal.status)
        self.refusal = refusal


def _is_too_large(error: BaseException) -> bool:
    return isinstance(error, LineTooLong) or (
        isinstance(error, HttpProcessingError) and error.message == "Too many headers received"
    )


def _report(what: str, error: BaseException | None) -> None:
    _log.error(what, extra={"error": type(error).__name__})
