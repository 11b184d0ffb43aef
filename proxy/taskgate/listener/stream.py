"""One exchange with a host, and the event stream that it may become: `HostExchange`.

It implements the gateway's `Exchange` on an aiohttp request. `Endpoint` creates it and sends the
reply. An event stream is written by a task of its own. Messages may be written directly while that
waits and the host keeps up. The response headers are sent at once. Comments break long silences. A
host that has disconnected or does not read closes the stream, so that its writers notice. A
resumable stream outlives the exchange: only the connection ends with it.
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
    """One request of a host, as the gateway gets it. `asked` is whether the gateway wanted the
    body.

    Callbacks run in the RequestContext in which the exchange was created.
    """

    __slots__ = (
        "_feed",
        "_finished",
        "_forget",
        "_gone",
        "_has_answer",
        "_has_last",
        "_head",
        "_http",
        "_line",
        "_payer",
        "_request_context",
        "_response",
        "_resumable",
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
        self._gone = False
        self._finished = False
        self._has_last = False
        self._has_answer = False
        self._forget: list[Callable[[], None]] = []
        self._resumable: StreamOpener | None = None
        self._feed: EventStream | None = None
        self._line: SseConnection | None = None
        self._response: web.StreamResponse | None = None
        self._writer: asyncio.Task[None] | None = None
        self._payer: tuple[BytesInFlight, str] | None = None
        self.held = 0
        """Bytes that count until the answer is sent."""

    @property
    def head(self) -> InboundHead:
        return self._head

    @property
    def version(self) -> HttpVersion:
        """The HTTP version of the host."""
        return self._http.version

    def body(self, budget: BytesInFlight, caller: str) -> Coroutine[Any, Any, bytes]:
        """Receive the whole body; see Exchange. Raises RequestRejected, which ends the exchange."""
        self.asked = True
        self._payer = budget, caller
        return self._terms.bodies.receive(self._http, budget, caller)

    def count_answer(self, size: int) -> None:
        assert self._payer is not None, "only the answer to a request with a body is counted"
        budget, caller = self._payer
        budget.add(caller, size)
        self.held += size

    def release(self) -> None:
        """Stop counting: the answer is sent, or the host has disconnected. May be called again."""
        if self.held and self._payer is not None:
            budget, caller = self._payer
            held, self.held = self.held, 0
            budget.release(caller, held)

    def stream(self) -> EventStream:
        """Turn the answer into an event stream. It is closed from the start if the host has
        disconnected.
        """
        if self._feed is None:
            # A stream that never began cannot be resumed: the host has no id of it.
            self._feed = EventStream() if self._gone else self._begun(SseConnection(write_through=self._pass_on))
        return self._feed

    def make_resumable(self, resumable: StreamOpener) -> None:
        self._resumable = resumable

    def resume(self, feed: EventStream, missed: Sequence[bytes]) -> bool:
        if self._gone:
            return False
        line = SseConnection(write_through=self._pass_on)
        self._feed = feed
        feed.attach(line, missed)
        self._open(line)
        return True

    def on_disconnect(self, forget: Callable[[], None]) -> None:
        if not self._gone:
            self._forget.append(forget)
        elif isinstance(self._feed, ResumableEventStream):
            self._feed.on_discard(forget)
        else:
            forget()

    def host_left(self) -> None:
        """Handle that the host has disconnected: end the stream, and call the callbacks. Once.

        If it has received the whole answer, it disconnected after the answer, and no callback is
        called.
        """
        self._gone = True
        with request_context.in_request(self._request_context):
            self._part()
            waiting, self._forget = self._forget, []
            for forget in () if self._has_answer else waiting:
                self.on_disconnect(forget)

    def settle(self) -> None:
        """Check for a lost connection right before a plain answer is sent."""
        if self._forget and (self._http.transport is None or self._http.transport.is_closing()):
            self.host_left()

    def wind_down(self) -> None:
        """End a GET stream, because the listener closes. A stream with the answer to a call ends by
        itself.
        """
        carries_call = isinstance(self._feed, ResumableEventStream) and self._feed.is_call_stream
        if self._head.method is HttpMethod.GET and not carries_call:
            if self._feed is not None and self._line is not None and not self._line.is_closed:
                self._feed.close()
            self.host_left()

    def send_elsewhere(self) -> None:
        """End a stream that another process can continue: its host reconnects and resumes it there."""
        feed = self._feed
        if (
            isinstance(feed, ResumableEventStream)
            and feed.is_transferable
            and self._line is not None
            and feed.connection is self._line
        ):
            # The connection is free now, so the response can end properly.
            self._finished = True
            feed.close()
            self.host_left()
            feed.discard()

    @property
    def is_streaming(self) -> bool:
        return self._writer is not None

    async def finish(self, last: MessageText | None) -> web.StreamResponse:
        """End the stream after the message `last`. A stream of another exchange continues
        elsewhere.
        """
        assert self._writer is not None
        assert self._feed is not None
        assert self._response is not None
        self._finished = True
        self._has_last = last is not None and self._line is not None and not self._line.is_closed
        if self._head.method is HttpMethod.POST:
            self._feed.finish(last)
        elif last is not None and self._line is not None and not self._line.is_closed:
            self._feed.send_now(last)
        self._part()
        await asyncio.wait([self._writer])
        return self._response

    async def abandon(self) -> None:
        """Stop writing at once."""
        self.release()
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])

    def _begun(self, line: SseConnection) -> EventStream:
        if self._resumable is None:
            feed = EventStream(line)
        else:
            feed = self._resumable.open("g" if self._head.method is HttpMethod.GET else "p", line)
        self._open(line)
        return feed

    def _part(self) -> None:
        """Detach the connection from the stream."""
        if self._feed is not None and self._line is not None:
            self._feed.connection_lost(self._line)

    def _open(self, line: SseConnection) -> None:
        self._line = line
        self._response = response = web.StreamResponse(headers=_HEADERS)
        connection = self._http.protocol
        assert isinstance(connection, HostConnection)
        # Without chunked encoding the end of the connection marks the end of the stream.
        if connection.leaving or self._http.version != HttpVersion11:
            response.force_close()
        with request_context.in_request(self._request_context):
            self._terms.event_sink.emit(StreamOpened("downstream", self._kind))
            self._writer = asyncio.get_running_loop().create_task(self._write_while_read(response, line))
            self._writer.add_done_callback(self._ended)

    async def _write_while_read(self, response: web.StreamResponse, line: SseConnection) -> None:
        try:
            await self._write(response, line)
        except ConnectionError as left:
            # The error stays until cycles are collected, and its frames refer to the written bytes.
            left.__traceback__ = None

    async def _write(self, response: web.StreamResponse, line: SseConnection) -> None:
        await response.prepare(self._http)
        while not line.is_drained:
            piece = await line.receive(self._terms.silence)
            if piece is not None:
                await self._put(response, piece)
            elif not line.is_closed:
                await self._put(response, sse.KEEP_ALIVE)
        self._has_answer = self._has_last
        if self._finished or self._head.method is HttpMethod.GET:
            await response.write_eof()
        elif self._http.transport is not None:
            # The call continues. A proper end of the answer would invite the host to send the next
            # request, which could not be answered before the call ends.
            self._http.transport.close()

    def _pass_on(self, piece: bytes) -> bool:
        """Write a piece directly if the writer task only waits for it, so that the head has been
        sent.
        """
        http, transport = self._http, self._http.transport
        if http.version != HttpVersion11 or transport is None or transport.is_closing() or http.protocol.writing_paused:
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True

    async def _put(self, response: web.StreamResponse, piece: bytes) -> None:
        if len(piece) > _LONG_PIECE:
            await self._put_long(response, memoryview(piece))
            return
        await response.write(piece)
        # aiohttp waits for a slow host only after every 64 KiB: small pieces would pile up for one
        # that stopped.
        await self._http.writer.drain()

    async def _put_long(self, response: web.StreamResponse, whole: memoryview) -> None:
        for at in range(0, len(whole), _LONG_PIECE):
            await response.write(whole[at : at + _LONG_PIECE])
            await self._http.writer.drain()
            # A fast host must not make the others wait.
            await asyncio.sleep(0)

    def _ended(self, writer: asyncio.Task[None]) -> None:
        self._part()
        self._terms.event_sink.emit(StreamEnded("downstream", self._kind))
        error = None if writer.cancelled() else writer.exception()
        if error is not None:
            _log.error("a stream failed", extra={"error": type(error).__name__})

    @property
    def _kind(self) -> str:
        return "get" if self._head.method is HttpMethod.GET else "response"
