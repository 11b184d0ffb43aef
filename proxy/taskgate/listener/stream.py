"""One exchange with a host, and the event stream that it may become: `HostExchange`.

It implements the gateway's `Exchange` on an aiohttp request. `Endpoint` creates one for each
accepted request, and passes it to the gateway. The gateway returns a reply, which `Endpoint` sends.
Until then the gateway may turn the answer into an event stream (`stream`, `resume`); the reply is
then its last event (`finish`).

An event stream is written by a task of its own, the writer. Its headers are sent at once, and
comments break long silences. While the writer waits and the host keeps up, a message is written
directly. A host that has disconnected or does not read closes the stream, so that the gateway
notices. A resumable stream outlives the exchange: only the connection ends with it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import HttpVersion, hdrs, web
from aiohttp.http import HttpVersion11
from multidict import CIMultiDict

from taskgate.jsontext.large import MessageText
from taskgate.listener.body import Bodies
from taskgate.listener.protocol import SERVER_NAME, HostConnection
from taskgate.protocol import sse
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.streams.event_stream import EventStream, ResumableEventStream
from taskgate.streams.exchange import UNKNOWN, HttpMethod, InboundHead
from taskgate.streams.resumable import StreamOpener
from taskgate.streams.sse_connection import SseConnection
from taskgate.telemetry import request_context
from taskgate.telemetry.events import EventSink, StreamEnded, StreamOpened

_HEADERS: Final = CIMultiDict(
    {
        hdrs.CONTENT_TYPE: "text/event-stream",
        hdrs.CACHE_CONTROL: "no-cache",
        "X-Accel-Buffering": "no",
        hdrs.SERVER: SERVER_NAME,
    }
)

_LONG_PIECE: Final = 256 * 1024
"""Bytes of an event that are written at once; a longer one is written in pieces."""

_log = logging.getLogger("taskgate.listener")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeTerms:
    """The parts that all exchanges of a listener share. `silence` is the keep-alive interval in
    seconds.
    """

    event_sink: EventSink
    bodies: Bodies
    silence: float


class HostExchange:
    """One request of a host, as the gateway gets it.

    - `asked`: the gateway has asked for the body, so that it is read to its end.
    - `_stream` and `_sse_connection`: the event stream of the answer, and what carries it here.
    - `_finished`: the stream ends here for good, so that its response is ended properly.
    - `_has_last`: the last message was given to the writer; `_has_answer`: the writer has sent it.

    Callbacks run in the RequestContext in which the exchange was created.
    """

    __slots__ = (
        "_budget",
        "_callbacks",
        "_finished",
        "_has_answer",
        "_has_last",
        "_head",
        "_http",
        "_is_gone",
        "_request_context",
        "_response",
        "_resumable",
        "_sse_connection",
        "_stream",
        "_terms",
        "_writer",
        "address",
        "asked",
        "held",
    )

    def __init__(
        self, http: web.BaseRequest, inbound: InboundHead, terms: ExchangeTerms, address: str = UNKNOWN
    ) -> None:
        self.asked = False
        self.address = address
        self._request_context = request_context.current()
        self._http = http
        self._head = inbound
        self._terms = terms
        self._is_gone = False
        self._finished = False
        self._has_last = False
        self._has_answer = False
        self._callbacks: list[Callable[[], None]] = []
        self._resumable: StreamOpener | None = None
        self._stream: EventStream | None = None
        self._sse_connection: SseConnection | None = None
        self._response: web.StreamResponse | None = None
        self._writer: asyncio.Task[None] | None = None
        self._budget: tuple[BytesInFlight, str] | None = None
        self.held = 0
        """Bytes that count as in flight until `release`."""

    @property
    def head(self) -> InboundHead:
        return self._head

    @property
    def version(self) -> HttpVersion:
        """The HTTP version of the host."""
        return self._http.version

    def body(self, budget: BytesInFlight, caller: str) -> Coroutine[Any, Any, bytes]:
        """Receive the whole body, counted for `caller` in `budget`.

        Raises RequestRejected, which ends the exchange.
        """
        self.asked = True
        self._budget = budget, caller
        return self._terms.bodies.receive(self._http, budget, caller)

    def count_answer(self, size: int) -> None:
        assert self._budget is not None, "only the answer to a request with a body is counted"
        budget, caller = self._budget
        budget.add(caller, size)
        self.held += size

    def release(self) -> None:
        """Stop counting: the answer is sent, or the host has disconnected. May be called again."""
        if self.held and self._budget is not None:
            budget, caller = self._budget
            held, self.held = self.held, 0
            budget.release(caller, held)

    def stream(self) -> EventStream:
        """Turn the answer into an event stream; later calls return the same.

        If the host has disconnected, the stream is closed from the start.
        """
        if self._stream is None:
            # A stream that never began cannot be resumed: the host has no id of it.
            self._stream = (
                EventStream() if self._is_gone else self._open_stream(SseConnection(write_through=self._write_through))
            )
        return self._stream

    def make_resumable(self, resumable: StreamOpener) -> None:
        self._resumable = resumable

    def resume(self, stream: EventStream, missed: Sequence[bytes]) -> bool:
        if self._is_gone:
            return False
        sse_connection = SseConnection(write_through=self._write_through)
        self._stream = stream
        stream.attach(sse_connection, missed)
        self._start_writer(sse_connection)
        return True

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        if not self._is_gone:
            self._callbacks.append(callback)
        elif isinstance(self._stream, ResumableEventStream):
            self._stream.on_discard(callback)
        else:
            callback()

    def host_left(self) -> None:
        """Handle that the host has disconnected: end the connection, and call the callbacks once.

        Those of a resumable stream are called when the host can no longer resume it. No callback is
        called if the whole answer was sent before.
        """
        self._is_gone = True
        with request_context.in_request(self._request_context):
            self._detach()
            callbacks, self._callbacks = self._callbacks, []
            for callback in () if self._has_answer else callbacks:
                self.on_disconnect(callback)

    def settle(self) -> None:
        """Call the callbacks if the connection is lost right before a plain answer is sent."""
        if self._callbacks and (self._http.transport is None or self._http.transport.is_closing()):
            self.host_left()

    def wind_down(self) -> None:
        """End a GET stream, because the listener closes.

        An exchange with the answer to a call ends by itself, also if it resumes the call's stream
        with GET.
        """
        carries_call = isinstance(self._stream, ResumableEventStream) and self._stream.is_call_stream
        if self._head.method is HttpMethod.GET and not carries_call:
            if self._stream is not None and self._sse_connection is not None and not self._sse_connection.is_closed:
                self._stream.close()
            self.host_left()

    def send_elsewhere(self) -> None:
        """End the stream if another process can continue it: its host reconnects and resumes it.

        Other exchanges are left as they are.
        """
        stream = self._stream
        if (
            isinstance(stream, ResumableEventStream)
            and stream.is_transferable
            and self._sse_connection is not None
            and stream.connection is self._sse_connection
        ):
            # The work of this process on the request ends with its callbacks, so that the response
            # can end properly.
            self._finished = True
            stream.close()
            self.host_left()
            stream.discard()

    @property
    def is_streaming(self) -> bool:
        return self._writer is not None

    async def finish(self, last: MessageText | None) -> web.StreamResponse:
        """Send `last` as the last message, wait until it is written, and return the response.

        Afterwards the stream of a POST has ended. A GET only carried a stream for some time: the
        stream itself may continue on another connection.
        """
        assert self._writer is not None
        assert self._stream is not None
        assert self._response is not None
        self._finished = True
        self._has_last = last is not None and self._sse_connection is not None and not self._sse_connection.is_closed
        if self._head.method is HttpMethod.POST:
            self._stream.finish(last)
        elif last is not None and self._sse_connection is not None and not self._sse_connection.is_closed:
            self._stream.send_now(last)
        self._detach()
        await asyncio.wait([self._writer])
        return self._response

    async def abandon(self) -> None:
        """Stop writing at once, because the connection's task is cancelled."""
        self.release()
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])

    def _open_stream(self, sse_connection: SseConnection) -> EventStream:
        """Open the event stream of this answer, resumable if the gateway has asked for that."""
        if self._resumable is None:
            stream = EventStream(sse_connection)
        else:
            stream = self._resumable.open("g" if self._head.method is HttpMethod.GET else "p", sse_connection)
        self._start_writer(sse_connection)
        return stream

    def _detach(self) -> None:
        """Detach the connection from the stream, unless the stream has another one by now."""
        if self._stream is not None and self._sse_connection is not None:
            self._stream.connection_lost(self._sse_connection)

    def _start_writer(self, sse_connection: SseConnection) -> None:
        """Start the response and the task that writes it."""
        self._sse_connection = sse_connection
        self._response = response = web.StreamResponse(headers=_HEADERS)
        connection = self._http.protocol
        assert isinstance(connection, HostConnection)
        # Without chunked encoding the end of the connection marks the end of the stream.
        if connection.leaving or self._http.version != HttpVersion11:
            response.force_close()
        with request_context.in_request(self._request_context):
            self._terms.event_sink.emit(StreamOpened("downstream", self._kind))
            self._writer = asyncio.get_running_loop().create_task(self._run_writer(response, sse_connection))
            self._writer.add_done_callback(self._on_writer_done)

    async def _run_writer(self, response: web.StreamResponse, sse_connection: SseConnection) -> None:
        try:
            await self._write(response, sse_connection)
        except ConnectionError as disconnected:
            # The error stays until cycles are collected, and its frames refer to the written bytes.
            disconnected.__traceback__ = None

    async def _write(self, response: web.StreamResponse, sse_connection: SseConnection) -> None:
        await response.prepare(self._http)
        while not sse_connection.is_drained:
            piece = await sse_connection.receive(self._terms.silence)
            if piece is not None:
                await self._write_piece(response, piece)
            elif not sse_connection.is_closed:
                await self._write_piece(response, sse.KEEP_ALIVE)
        self._has_answer = self._has_last
        if self._finished or self._head.method is HttpMethod.GET:
            await response.write_eof()
        elif self._http.transport is not None:
            # The call continues. A proper end of the answer would invite the host to send the next
            # request, which could not be answered before the call ends.
            self._http.transport.close()

    def _write_through(self, piece: bytes) -> bool:
        """Write a piece directly, and return whether that was possible.

        Called only while the writer waits for the next piece, so the response's head has been sent.
        """
        http, transport = self._http, self._http.transport
        if http.version != HttpVersion11 or transport is None or transport.is_closing() or http.protocol.writing_paused:
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True

    async def _write_piece(self, response: web.StreamResponse, piece: bytes) -> None:
        """Write a piece, and wait for a slow host."""
        if len(piece) > _LONG_PIECE:
            await self._write_long_piece(response, memoryview(piece))
            return
        await response.write(piece)
        # aiohttp waits for a slow host only after every 64 KiB: small pieces would pile up for one
        # that stopped.
        await self._http.writer.drain()

    async def _write_long_piece(self, response: web.StreamResponse, whole: memoryview) -> None:
        for at in range(0, len(whole), _LONG_PIECE):
            await response.write(whole[at : at + _LONG_PIECE])
            await self._http.writer.drain()
            # A fast host must not make the others wait.
            await asyncio.sleep(0)

    def _on_writer_done(self, writer: asyncio.Task[None]) -> None:
        self._detach()
        self._terms.event_sink.emit(StreamEnded("downstream", self._kind))
        error = None if writer.cancelled() else writer.exception()
        if error is not None:
            _log.error("a stream failed", extra={"error": type(error).__name__})

    @property
    def _kind(self) -> str:
        return "get" if self._head.method is HttpMethod.GET else "response"
