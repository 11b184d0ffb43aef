"""One exchange with a host, and the event stream that it may become: `HostExchange`.

It implements the gateway's `Exchange` on a `HostRequest`. `Endpoint` creates one for each
accepted request, and passes it to the gateway. The gateway returns a reply, which `finish` makes
the response. Until then the gateway may turn the answer into an event stream (`stream`, `resume`).
Then a reply with a body is the last event that this response carries (`finish_stream`). Or the
gateway begins a document (`begin_document`), whose text is that of the reply.

Three objects share the work. The `EventStream` is what the gateway sends messages on. The
`SseConnection` is the queue of messages for this response. The writer, a task of the exchange,
sends that queue to the host. It sends the headers at once, and comments in long silences. While the
writer waits and the host keeps up, a message skips the queue.

An exchange with a stream ends in one of these ways:

- `finish_stream`: the gateway has replied. The response ends after the last event.
- `host_left`: the host has disconnected, or reads too slowly and was disconnected.
- `wind_down` and `send_elsewhere`: the listener closes.
- `abandon`: the task of the connection is cancelled.

After `host_left`, `wind_down` and `send_elsewhere` the gateway notices the end and still replies.

A resumable stream outlives its exchange. The host continues it later with another exchange
(`resume`), here or on another replica.

The module stays whole because each end of an exchange concerns its stream and its writer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import ClassVar, Final

from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import HttpVersion11

from taskgate.auth.context import AuthContext
from taskgate.jsontext.large import JsonChunks, MessageText
from taskgate.listener.answers import CLOSE, JsonDocument, WatchedAnswer, encoded_size, pieces, plain_answer
from taskgate.listener.body import BodyLimits
from taskgate.listener.door import BAD_REQUEST, BODY_TOO_LARGE, RequestRejected
from taskgate.listener.protocol import SERVER_NAME, HostRequest, HttpResponse
from taskgate.protocol import sse
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.streams.event_stream import EventStream, ResumableEventStream
from taskgate.streams.exchange import Admission, AdmitLarge, HttpMethod, HttpReply
from taskgate.streams.resumable import Kind, StreamOpener
from taskgate.streams.sse_connection import SseConnection
from taskgate.system.background import cancel_and_wait
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.system.offload import LARGE
from taskgate.telemetry import request_context
from taskgate.telemetry.events import EventSink, StreamEnded, StreamOpened
from taskgate.telemetry.request_context import RequestContext

_STREAM: Final = "Content-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
_DOCUMENT: Final = "Content-Type: application/json\r\nCache-Control: no-cache, no-transform\r\n"
"""A proxy that compresses a document, or buffers it, would hold back the space that keeps the host waiting."""
_SPACE: Final = b" "
"""What may stand before a JSON text, and means nothing."""
_LONG_PIECE: Final = 256 * 1024
"""Bytes of an event that are written at once; a longer one is written in pieces."""

_JOINED: Final = 64 * 1024
"""Bytes up to which events that wait are written at once."""

_log = logging.getLogger("taskgate.listener")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeTerms:
    """The parts that all exchanges of a listener share.

    A body has at most `max_body` bytes, and `read_timeout` from the time that the gateway asks for
    it. `silence` is the seconds without an event after which the writer sends a comment.
    """

    event_sink: EventSink
    max_body: int
    read_timeout: timedelta
    silence: float


class BegunAnswer:
    """An answer whose head is written before its size is known. `fields` are the header fields of its kind.

    HTTP/1.0 has no chunks: there the end of the connection marks the end of the answer. `is_ended`: the end
    of the response is written.
    """

    __slots__ = ("_fields", "_head", "_request", "is_chunked", "is_ended", "keep_alive")

    status: ClassVar[int] = 200

    def __init__(self, request: HostRequest, fields: str) -> None:
        self._request = request
        self._fields = fields
        # The head until it is written.
        self._head = b""
        self.is_ended = False
        self.is_chunked = request.head.version == HttpVersion11
        # A connection that is leaving closes after this answer (`HostConnection.leaving`).
        self.keep_alive: bool | None = request.head.keep_alive and self.is_chunked and not request.connection.leaving

    def begin(self, *, is_joined: bool) -> None:
        """Write the head, or join it to the piece that is written next (`is_joined`).

        Raises ConnectionError if the host has disconnected.
        """
        request = self._request
        if request.connection.transport.is_closing():
            raise ConnectionResetError
        request.is_answered = True
        close = CLOSE if self.is_chunked and not self.keep_alive else ""
        version, chunks = ("1.1", "Transfer-Encoding: chunked\r\n") if self.is_chunked else ("1.0", "")
        head = (
            f"HTTP/{version} 200 OK\r\n{self._fields}X-Accel-Buffering: no\r\nServer: {SERVER_NAME}\r\n"
            f"{chunks}Date: {rfc822_formatted_time()}\r\n{request.head.cors}{close}\r\n"
        ).encode()
        if is_joined:
            self._head = head
        else:
            request.connection.transport.write(head)

    async def write(self, piece: bytes | memoryview, *, is_last: bool) -> None:
        """Write a piece, with the end of the answer behind the last one, and wait for a slow host.

        Raises ConnectionError if it has disconnected.
        """
        if len(piece) <= _LONG_PIECE:
            self._write(piece, is_last=is_last)
            await self._request.connection.drain()
            return
        whole = memoryview(piece)
        for at in range(0, len(whole), _LONG_PIECE):
            self._write(whole[at : at + _LONG_PIECE], is_last=is_last and at + _LONG_PIECE >= len(whole))
            await self._request.connection.drain()
            # A fast host must not make the others wait.
            await asyncio.sleep(0)

    def write_through(self, piece: bytes) -> bool:
        """Write a piece without a wait, and return whether that was possible."""
        connection = self._request.connection
        # A slow host needs the queue and its limit.
        if not self.is_chunked or connection.writing_paused or connection.transport.is_closing():
            return False
        connection.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True

    async def send(self, request: HostRequest) -> None:
        """Write the end of the answer, unless it is written."""
        if not self.is_ended:
            self.is_ended = True
            connection = request.connection
            if connection.transport.is_closing():
                raise ConnectionResetError
            if self.is_chunked:
                connection.transport.write(b"0\r\n\r\n")
            await connection.drain()

    def _write(self, piece: bytes | memoryview, *, is_last: bool) -> None:
        transport = self._request.connection.transport
        if transport.is_closing():
            raise ConnectionResetError
        head, self._head, self.is_ended = self._head, b"", is_last
        if self.is_chunked:
            end = b"\r\n0\r\n\r\n" if is_last else b"\r\n"
            transport.write(b"".join((head, b"%x\r\n" % len(piece), piece, end)))
        else:
            transport.write(b"".join((head, piece)) if head else piece)


class EventStreamAnswer(BegunAnswer):
    """An event stream, which its exchange begins, writes and ends.

    - `writer`: the task that writes it.
    - `ends_properly`: the writer may end the response as HTTP demands, because the request needs
      nothing more from this process. Otherwise it cuts the connection of a POST.
    - `was_last_queued`: the gateway's reply is queued as the last message. `was_last_sent`: the
      writer has sent it, so that a later disconnect is no concern of the gateway.
    """

    __slots__ = ("ends_properly", "was_last_queued", "was_last_sent", "writer")

    writer: asyncio.Task[None]

    def __init__(self, request: HostRequest) -> None:
        super().__init__(request, _STREAM)
        self.ends_properly = self.was_last_queued = self.was_last_sent = False


class BegunDocument(BegunAnswer):
    """A JSON document that begins before its text is known. Until then space keeps its host waiting.

    `complete` gives it the text. A document that gets none is cut, unless its host wants none.
    """

    __slots__ = ("_is_complete", "_is_cut", "_size", "_text")

    def __init__(self, request: HostRequest) -> None:
        super().__init__(request, _DOCUMENT)
        self._text: MessageText | None = None
        self._size = 0
        self._is_complete = self._is_cut = False

    def keep(self) -> None:
        """Send space, unless the host reads too slowly or has disconnected."""
        connection = self._request.connection
        if not self._is_complete and not connection.writing_paused and not connection.transport.is_closing():
            self._write(_SPACE, is_last=False)

    def complete(self, reply: HttpReply) -> None:
        """Take the text of a reply. Raises UnicodeEncodeError if it has none."""
        self._is_complete = True
        if reply.body is not None:
            self._size = encoded_size(reply.body)
        # A host that has cancelled its request waits for no answer.
        self._text, self._is_cut = reply.body, reply.body is None and reply.status != 202

    async def send(self, request: HostRequest) -> None:
        """Write the text and the end. Raises ConnectionError if the host has disconnected."""
        text, self._text = self._text, None
        if self._is_cut:
            # A proper end would show an empty answer.
            self.keep_alive = False
            request.connection.close()
            return
        if text is not None:
            left = self._size
            piece: bytes | memoryview = b""
            try:
                for piece in pieces(text):
                    left -= len(piece)
                    await self.write(piece, is_last=not left)
                    await asyncio.sleep(0)
            finally:
                # The error of a host that disconnected holds all frames until cycles are collected.
                del text, piece
        await BegunAnswer.send(self, request)


class HostExchange:
    """One request of a host, as the gateway gets it.

    - `head`: the head of the request, as `Door` admitted it. `fields`: its header fields, but for
      Content-Length.
    - `address`: the IP address of the host, or UNKNOWN.
    - `opener`: set by the gateway; the stream is opened with it, so that the host can resume it.
    - `is_streaming`: the answer has become an event stream, so that its headers are being sent.
    - `asked`: the gateway has called `body`, so the body is read to its end.
    - `_is_gone`: the host has disconnected, or the listener has ended the exchange.
    - `_is_document`: the answer is a document. If `_begun` is set, it has begun; else its connection is for
      the next request.
    - `_callbacks`: what `on_disconnect` registered. They run once, or pass to a resumable stream.
    - `_sent_callbacks`: what `on_sent` registered. They run once.
    - `_stream`, `_sse_connection`, `_answer`: set together when the answer becomes an event stream.
      `_stream` alone is set if the host had disconnected before.
    - `_budget`, `_caller`: the budget and the caller that `body` was called with.

    Callbacks run in the RequestContext of the request.
    """

    __slots__ = (
        "_answer",
        "_begun",
        "_budget",
        "_callbacks",
        "_caller",
        "_is_document",
        "_is_gone",
        "_request",
        "_request_context",
        "_sent_callbacks",
        "_sse_connection",
        "_stream",
        "_terms",
        "address",
        "asked",
        "fields",
        "head",
        "held",
        "is_streaming",
        "opener",
    )

    _budget: BytesInFlight
    _caller: AuthContext

    def __init__(self, request: HostRequest, inbound: Admission, terms: ExchangeTerms, context: RequestContext) -> None:
        self.head = inbound
        self.fields = request.head.fields
        self.address = context.address
        self.opener: StreamOpener | None = None
        self.is_streaming = self.asked = self._is_gone = self._is_document = False
        self._request_context = context
        self._request = request
        self._terms = terms
        self._callbacks: tuple[Callable[[], None], ...] = ()
        self._sent_callbacks: tuple[Callable[[bool], None], ...] = ()
        self._stream: EventStream | None = None
        self._sse_connection: SseConnection | None = None
        self._answer: EventStreamAnswer | None = None
        self._begun: BegunDocument | None = None
        self.held = 0
        """Bytes that `count_answer` has counted and `release` has not yet."""

    def body(self, budget: BytesInFlight, caller: AuthContext, admit_large: AdmitLarge) -> bytes | Awaitable[bytes]:
        """Return the whole body, counted for `caller` in `budget`; the wait for it, if it is large or has not
        all arrived.

        Called at most once. Raises RequestRejected if it is too large, too slow or incomplete, or if the
        budget is used up. The gateway lets that pass: `Endpoint` then sends the rejection. Raises what
        `admit_large` raises.
        """
        self.asked = True
        self._budget, self._caller = budget, caller
        request = self._request
        received = request.body
        if received is None:
            return self._receive(admit_large)
        if request.is_lost and received:
            # Without a body the request is served: a host that ends its session may leave at once.
            raise RequestRejected(BAD_REQUEST)
        request.body = b""
        size = len(received)
        if size > self._terms.max_body:
            raise RequestRejected(BODY_TOO_LARGE)
        return received if size <= LARGE else self._admit_whole(received, admit_large)

    async def _admit_whole(self, received: bytes, admit_large: AdmitLarge) -> bytes:
        """Return a large body that has all arrived before it was asked for, once it is within the limits."""
        limits = BodyLimits(self._budget, self._caller, partial(self._pay, admit_large))
        try:
            await limits.admit(len(received))
        finally:
            limits.close()
        return received

    async def _pay(self, admit_large: AdmitLarge, size: int) -> None:
        """Wait until so many bytes more are admitted. The body is not read any more if they are not."""
        try:
            await admit_large(self, self._caller, size)
        except ScopeCancelled:
            # The host has disconnected.
            raise RequestRejected(BAD_REQUEST) from None
        except Exception:
            self.asked = False
            raise

    async def _receive(self, admit_large: AdmitLarge) -> bytes:
        """Receive the rest of the body, and return the whole."""
        request, terms = self._request, self._terms
        assert request.rest is not None
        received = await request.rest.receive(
            request.head,
            request.length,
            BodyLimits(self._budget, self._caller, partial(self._pay, admit_large)),
            max_body=terms.max_body,
            read_timeout=terms.read_timeout,
        )
        if len(received) > terms.max_body:
            raise RequestRejected(BODY_TOO_LARGE)
        return received

    def count_answer(self, size: int) -> None:
        """Count bytes for the caller that `body` was called with, until `release`.

        The gateway counts a large answer, and a large body that it has received.
        """
        self._budget.add(self._caller, size)
        self.held += size

    def release(self) -> None:
        """Stop counting: the answer is sent, or the host has disconnected. May be called again."""
        if self.held:
            held, self.held = self.held, 0
            self._budget.release(self._caller, held)

    def stream(self) -> EventStream:
        """Turn the answer into an event stream; later calls return the same.

        If the host has disconnected, or gets a document, the stream is closed from the start. The
        document has begun, or was sent where a call goes on for another host that joined it.
        """
        if self._stream is None and (self._is_gone or self._is_document):
            # Not resumable: the host got no event id from which to resume.
            self._stream = EventStream()
        elif self._stream is None:
            answer = EventStreamAnswer(self._request)
            # The letter begins the ids of its events, and tells the two kinds of streams apart.
            letter: Kind = "g" if self._is_get else "p"
            messages = SseConnection(joined=_JOINED, write_through=answer.write_through)
            self._stream = EventStream(messages) if self.opener is None else self.opener(letter, messages)
            self._start_writer(answer, messages)
        return self._stream

    def begin_document(self) -> bool:
        """Begin the answer as a document, or keep the host waiting for its text; return whether it is one."""
        if self._begun is not None:
            self._begun.keep()
        elif self.is_streaming or self._is_gone or self._request.connection.transport.is_closing():
            return False
        elif not self._is_document:
            self._is_document, self._begun = True, BegunDocument(self._request)
            self._begun.begin(is_joined=True)
            self._begun.keep()
        return True

    @property
    def has_begun(self) -> bool:
        return self.is_streaming or self._begun is not None

    def resume(self, stream: EventStream, missed: Sequence[bytes]) -> bool:
        """Continue an existing stream as this answer: the `missed` events first.

        Returns False, and leaves the stream as it is, if the host has disconnected.
        """
        if self._is_gone:
            return False
        answer = EventStreamAnswer(self._request)
        messages = SseConnection(joined=_JOINED, write_through=answer.write_through)
        self._stream = stream
        stream.attach(messages, missed)
        self._start_writer(answer, messages)
        return True

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the host has disconnected and cannot resume its stream.

        Without a resumable stream that is the disconnect itself, and now if it has happened. With
        one, it is the moment when the stream is discarded. An answer that was sent calls nothing.
        """
        if not self._is_gone:
            self._callbacks += (callback,)
        elif isinstance(self._stream, ResumableEventStream):
            self._stream.on_discard(callback)
        else:
            callback()

    def on_sent(self, callback: Callable[[bool], None]) -> None:
        """Call `callback` once, when the answer has been sent or the connection is lost before that."""
        if self._is_gone:
            callback(False)
        else:
            self._sent_callbacks += (callback,)

    @property
    def is_revoked(self) -> bool:
        return self.head.token is not None and self.head.token.is_revoked

    def host_left(self) -> None:
        """Handle that the host has disconnected: detach the stream, and call the callbacks once.

        With a resumable stream they pass to it, and run when it is discarded. No callback is called
        if the whole answer was sent before.
        """
        self._is_gone = True
        with request_context.in_request(self._request_context):
            self._detach()
            callbacks, self._callbacks = self._callbacks, ()
            for callback in () if self._answer is not None and self._answer.was_last_sent else callbacks:
                # Now that `_is_gone` is set, this calls it or passes it to the resumable stream.
                self.on_disconnect(callback)
        self._report_sent(was_sent=False)

    def wind_down(self) -> None:
        """End the exchange of a GET stream, because the listener closes.

        The gateway notices the end of the connection and replies, so that `finish` follows. The
        callbacks run, or pass to a resumable stream. That stream is not discarded: its host may
        resume it elsewhere. An exchange that carries the answer to a call is left as it is, also if
        it is a GET that resumes the call's stream. It ends with the call.
        """
        carries_call = isinstance(self._stream, ResumableEventStream) and self._stream.is_call_stream
        if self._is_get and not carries_call:
            # A closed connection may have been replaced: `close` would end the connection of another
            # exchange.
            if self._stream is not None and self._sse_connection is not None and not self._sse_connection.is_closed:
                self._stream.close()
            self.host_left()

    def send_elsewhere(self) -> None:
        """End the stream here if another process can continue it: its host reconnects and resumes.

        The stream is discarded in this process, which runs the callbacks. Other exchanges are left
        as they are, and so is a stream that another connection carries by now.
        """
        stream = self._stream
        if (
            isinstance(stream, ResumableEventStream)
            and stream.is_transferable
            and self._answer is not None
            and stream.connection is self._sse_connection
        ):
            # The callbacks end this process's work on the request. So the host may send the next
            # request on this connection, and the response may end properly.
            self._answer.ends_properly = True
            # Ends the connection, and tells the host when to reconnect.
            stream.close()
            # Passes the callbacks to the stream, and `discard` runs them.
            self.host_left()
            stream.discard()

    def finish(self, reply: HttpReply) -> HttpResponse:
        """Return the response for the gateway's reply, if the answer is no event stream."""
        self._is_document = True
        request = self._request
        if self._callbacks and request.connection.transport.is_closing():
            # The connection is lost, and has not reported it yet.
            self.host_left()
        if self._begun is not None:
            self._begun.complete(reply)
            return WatchedAnswer(self._begun, self._settle)
        body = reply.body
        if (
            body is not None
            and reply.status == 200
            and not reply.headers
            and self.asked
            and request.head.version == HttpVersion11
        ):
            # Here an unencodable text can still be reported.
            size = len(body) if isinstance(body, JsonChunks) or body.isascii() else encoded_size(body)
            document = JsonDocument(body, size)
            return WatchedAnswer(document, self._settle) if self.held or self._sent_callbacks else document
        answer = plain_answer(reply)
        if self._sent_callbacks:
            return WatchedAnswer(answer, self._settle)
        self.release()
        return answer

    async def finish_stream(self, reply: HttpReply) -> HttpResponse:
        """Send the gateway's reply as the last message, wait until the writer ends, and return the
        response.

        Afterwards the stream of a POST has ended for good. A GET only carried a stream for some
        time: the stream itself may continue on another connection, without the reply.
        """
        stream, messages, answer, last = self._stream, self._sse_connection, self._answer, reply.body
        assert stream is not None
        assert messages is not None
        assert answer is not None
        try:
            answer.ends_properly = True
            answer.was_last_queued = last is not None and not messages.is_closed
            if self.head.method is HttpMethod.POST:
                stream.finish(last)
            elif last is not None and answer.was_last_queued:
                stream.send_now(last)
            self._detach()
            await asyncio.wait([answer.writer])
            if self._sent_callbacks and answer.is_ended:
                with suppress(ConnectionError):
                    await self._request.connection.flush()
                    self._settle(was_sent=True)
        finally:
            self._settle(was_sent=False)
        return answer

    async def abandon(self) -> None:
        """Stop writing at once, because the connection's task is cancelled.

        No callback of `on_disconnect` runs here: the gateway's work was cancelled with the same task.
        """
        self._settle(was_sent=False)
        if self._answer is not None:
            await cancel_and_wait(self._answer.writer)

    def _settle(self, was_sent: bool) -> None:
        """Handle that the answer was sent, or will not be."""
        self.release()
        if not was_sent:
            self._report_sent(was_sent=False)
        elif self._sent_callbacks:
            callbacks, self._sent_callbacks = self._sent_callbacks, ()
            self._request.connection.confirm(partial(self._call_back, callbacks))

    def _report_sent(self, *, was_sent: bool) -> None:
        """Call the callbacks of `on_sent`."""
        callbacks, self._sent_callbacks = self._sent_callbacks, ()
        if callbacks:
            self._call_back(callbacks, was_sent)

    def _call_back(self, callbacks: tuple[Callable[[bool], None], ...], was_sent: bool) -> None:
        with request_context.in_request(self._request_context):
            for callback in callbacks:
                callback(was_sent)

    @property
    def _is_get(self) -> bool:
        return self.head.method is HttpMethod.GET

    def _detach(self) -> None:
        """Detach the connection from the stream, unless the stream has another one by now."""
        if self._stream is not None and self._sse_connection is not None:
            self._stream.connection_lost(self._sse_connection)

    def _start_writer(self, answer: EventStreamAnswer, messages: SseConnection) -> None:
        """Start the task that writes the answer."""
        self._answer, self._sse_connection = answer, messages
        with request_context.in_request(self._request_context):
            self._terms.event_sink.emit(StreamOpened("downstream", "get" if self._is_get else "response"))
            answer.writer = asyncio.get_running_loop().create_task(self._write(answer, messages))
            answer.writer.add_done_callback(self._on_writer_done)
        self.is_streaming = True

    async def _write(self, answer: EventStreamAnswer, messages: SseConnection) -> None:
        """Write the pieces of the stream until its end; the task of the writer."""
        try:
            answer.begin(is_joined=messages.has_pieces)
            while not messages.is_drained:
                piece = await messages.receive(self._terms.silence)
                if piece is not None:
                    ends = messages.is_drained and (answer.ends_properly or self._is_get)
                    await answer.write(piece, is_last=ends)
                elif not messages.is_closed:
                    await answer.write(sse.KEEP_ALIVE, is_last=False)
            answer.was_last_sent = answer.was_last_queued
            if answer.ends_properly or self._is_get:
                await answer.send(self._request)
            else:
                # The call continues. A proper end of the answer would invite the host to send the
                # next request, which could not be answered before the call ends.
                self._request.connection.close()
        except ConnectionError as disconnected:
            # The error stays until cycles are collected, and its frames refer to the written bytes.
            disconnected.__traceback__ = None

    def _on_writer_done(self, writer: asyncio.Task[None]) -> None:
        """Detach the stream when the writer has ended, for any reason, and report that."""
        self._detach()
        self._terms.event_sink.emit(StreamEnded("downstream", "get" if self._is_get else "response"))
        error = None if writer.cancelled() else writer.exception()
        if error is not None:
            _log.error("a stream failed", extra={"error": type(error).__name__})
