"""The course of one HTTP request, from its head to its answer: `Endpoint`.

aiohttp calls `answer` for each parsed request of a connection. The steps are:

1. open a RequestContext (`request_contexts`);
2. wait for room in the audit log;
3. check the head (`door`);
4. pass an exchange to the gateway (`stream`), and send the reply.

Every parsed request gets one context, one answer, and one HttpAnswered event as the last of its
context. The gateway sees only requests that are complete and within bounds.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

from aiohttp import hdrs, web
from aiohttp.http import HttpVersion11
from multidict import CIMultiDict

from taskgate.clock import Clock
from taskgate.listener.document import CountedDocument, JsonDocument
from taskgate.listener.documents import Documents
from taskgate.listener.door import (
    HEAD_TOO_LARGE,
    NO_ROOM,
    Door,
    Rejection,
    RequestHead,
    RequestRejected,
    head_size,
)
from taskgate.listener.protocol import SERVER_NAME, HostConnection
from taskgate.listener.request_contexts import NO_VERB, RequestContexts
from taskgate.listener.stream import ExchangeTerms, HostExchange
from taskgate.streams.exchange import ExchangeHandler, HttpMethod, HttpReply, InboundHead, ListenerRefused
from taskgate.telemetry import request_context
from taskgate.telemetry.events import AuditCapacity, EventSink, HttpAnswered, HttpRefused, UnlimitedAuditCapacity
from taskgate.telemetry.request_context import LARGE_MESSAGE, RequestContext

_EMPTY: Final = CIMultiDict({hdrs.SERVER: SERVER_NAME})
_JSON: Final = CIMultiDict({hdrs.CONTENT_TYPE: "application/json", hdrs.SERVER: SERVER_NAME})
_VERBS: Final = frozenset(HttpMethod)
_ROUTES: Final = ("mcp", "prm", "other")

_log = logging.getLogger("taskgate.listener")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The handler of all requests of a listener.

    - `engine` is the gateway. It gets each exchange whose head is accepted, and returns the reply.
    - `trail` is the audit log: a request without room in it waits, and is rejected if none comes.
    - `terms` are what all exchanges share.
    - `_active` counts the requests under way by route: `mcp` for mounts, `prm` for public documents,
      `other` for unknown paths.
    """

    door: Door
    documents: Documents
    engine: ExchangeHandler
    request_contexts: RequestContexts
    event_sink: EventSink
    clock: Clock
    max_header: int
    terms: ExchangeTerms
    trail: AuditCapacity = field(default_factory=UnlimitedAuditCapacity)
    _active: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_ROUTES, 0))

    async def answer(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. Called by aiohttp, for one request of a connection at a time."""
        began = self.clock.elapsed()
        connection = http.protocol
        assert isinstance(connection, HostConnection)
        context = self.request_contexts.open(http)
        token = request_context.attach(context)
        route = self._route(context.path)
        if route == "other":
            # An unknown path may be a secret of another system, whatever the request is rejected
            # for.
            context.path = ""
        self._active[route] += 1
        try:
            if self.trail.is_full and not await self.trail.room():
                raise RequestRejected(NO_ROOM)
            self._check_head(http, connection)
            if route == "prm":
                return self._answer_document(http, context, began)
            admission = self.door.admit(http.method, http.raw_path, http.version, http.headers)
            exchange = self._exchange_of(http, admission, context.address)
            response = await self._answer_by_gateway(exchange, connection)
            # A plain answer is not sent to a host that has disconnected, and so not recorded.
            if exchange.is_streaming or not connection.lost.done():
                self._note_answer(context, route, response.status, began)
            # The gateway has refused the request before its body came. It is not read any more.
            if not exchange.asked and not http.content.is_eof():
                await connection.answer_last(http, response)
        except RequestRejected as refused:
            # Recorded before it is sent: sending may wait for the host to stop sending.
            self._note_refusal(context, refused.refusal)
            self._note_answer(context, route, refused.refusal.status, began)
            response = await connection.refuse(http, refused.refusal)
        finally:
            self._active[route] -= 1
            if context.status is None:
                # No complete answer was sent: the host has disconnected, or the listener is
                # closing.
                self._emit_answered(route, context.verb, 0, began)
            request_context.detach(token)
            if context.message is not None and len(context.message.text) > LARGE_MESSAGE:
                context.discard_payload()
        if connection.leaving and response.prepared and response.keep_alive:
            # The head was sent before `leaving` was set, and promised keep-alive. The host may act
            # on that at once.
            connection.keep_promise()
        elif connection.leaving or connection.closing:
            response.force_close()
        return response

    def active(self) -> dict[tuple[str], int]:
        """Return the number of requests under way, by route label. Safe on any thread."""
        return {(route,): self._active[route] for route in _ROUTES}

    def note_garbage(self, http: web.BaseRequest, refusal: Rejection) -> None:
        """Report bytes that were answered with `refusal`, although they were no request."""
        context, now = self.request_contexts.open_for_garbage(http), self.clock.elapsed()
        with request_context.in_request(context):
            self._note_refusal(context, refusal)
            self._note_answer(context, "other", refusal.status, now)

    def _answer_document(self, http: web.BaseRequest, context: RequestContext, began: float) -> web.StreamResponse:
        """Answer a request for a public document."""
        self.door.greet(http.method, http.version, http.headers)
        response = self.documents.answer(http.method, context.path)
        if not http.content.is_eof():
            # The body of such a request is not read.
            response.force_close()
        self._note_answer(context, "prm", response.status, began)
        return response

    def _route(self, path: str) -> str:
        if path in self.documents:
            return "prm"
        return "mcp" if self.door.is_mount(path) else "other"

    def _note_refusal(self, context: RequestContext, refusal: Rejection) -> None:
        context.refusal = refusal.reason or f"status_{refusal.status}"
        if refusal.reason is not None:
            self.event_sink.emit(HttpRefused(refusal.reason))

    def _note_answer(self, context: RequestContext, route: str, status: int, began: float) -> None:
        context.status = status
        self._emit_answered(route, context.verb, status, began)

    def _emit_answered(self, route: str, method: str, status: int, began: float) -> None:
        verb = method if method in _VERBS else NO_VERB
        self.event_sink.emit(HttpAnswered(route, verb, status, self.clock.elapsed() - began))

    def _check_head(self, http: web.BaseRequest, connection: HostConnection) -> None:
        # Checked only if more bytes arrived at once than a head may have; else it cannot be too
        # large.
        if connection.long_heads and head_size(http.raw_path, http._message.raw_headers) > self.max_header:
            raise RequestRejected(HEAD_TOO_LARGE)

    def _exchange_of(self, http: web.BaseRequest, admission: RequestHead, address: str) -> HostExchange:
        # An InboundHead is a RequestHead plus the header fields.
        return HostExchange(http, InboundHead(*admission, http.headers.items()), self.terms, address)

    async def _answer_by_gateway(self, exchange: HostExchange, connection: HostConnection) -> web.StreamResponse:
        """Return the gateway's response, ready to be sent; a stream has been sent by then."""
        # From here on the connection reports to the exchange that its host disconnects.
        connection.exchange = exchange
        if connection.closing:
            exchange.wind_down()
        try:
            response = await self._call_engine(exchange)
        except asyncio.CancelledError:
            await exchange.abandon()
            raise
        finally:
            connection.exchange = None
        return response

    async def _call_engine(self, exchange: HostExchange) -> web.StreamResponse:
        """Call the gateway, and make its reply a response; an unexpected error becomes status 500.

        Only the listener's own rejections pass, and cancellation.
        """
        try:
            reply = await self.engine(exchange)
            return await _finish(exchange, reply)
        except ListenerRefused:
            exchange.release()
            raise
        except Exception as error:
            _log.error("unexpected error while handling a request", extra={"error": type(error).__name__})
            return await _finish(exchange, HttpReply(status=500))


async def _finish(exchange: HostExchange, reply: HttpReply) -> web.StreamResponse:
    """Return the response for a reply; of an event stream, send the reply as its last event."""
    if exchange.is_streaming:
        try:
            return await exchange.finish(reply.body)
        finally:
            exchange.release()
    exchange.settle()
    simple = reply.status == 200 and not reply.headers and exchange.asked
    if simple and reply.body is not None and exchange.version == HttpVersion11:
        return CountedDocument(reply.body, exchange.release) if exchange.held else JsonDocument(reply.body)
    exchange.release()
    return _plain(reply)


def _plain(reply: HttpReply) -> web.Response:
    if reply.body is None:
        response = web.Response(status=reply.status, headers=_EMPTY)
    else:
        response = web.Response(status=reply.status, body=reply.body.encode(), headers=_JSON)
    for name, value in reply.headers:
        response.headers[name] = value
    return response
