"""What happens to one HTTP request, from its head to its answer.

What lives here: the order of the steps, and the shape of plain answers. What must not: the checks themselves (`door`),
bytes and sockets (`protocol`), event streams (`stream`), anything about JSON-RPC. What holds: every request that was
parsed has one visit, gets exactly one answer and one HttpAnswered, the last of its visit, however it ends; and the
engine sees only what came whole and within bounds.
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
    """Takes requests to the engine and its replies back."""

    door: Door
    documents: Documents
    engine: ExchangeHandler
    request_contexts: RequestContexts
    event_sink: EventSink
    clock: Clock
    max_header: int
    terms: ExchangeTerms
    trail: AuditCapacity = field(default_factory=UnlimitedAuditCapacity)
    _under_way: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_ROUTES, 0))

    async def answer(self, http: web.BaseRequest) -> web.StreamResponse:
        """One request, start to end."""
        began = self.clock.elapsed()
        connection = http.protocol
        assert isinstance(connection, HostConnection)
        seen = self.request_contexts.open(http)
        token = request_context.attach(seen)
        route = self._route(seen.path)
        if route == "other":
            # What leads nowhere may be a secret of somewhere else, whatever the request is refused for first.
            seen.path = ""
        self._under_way[route] += 1
        try:
            if self.trail.is_full and not await self.trail.room():
                raise RequestRejected(NO_ROOM)
            self._check_head(http, connection)
            if route == "prm":
                return self._show(http, seen, began)
            admission = self.door.admit(http.method, http.raw_path, http.version, http.headers)
            exchange = self._offer(http, admission, seen.address)
            response = await self._converse(exchange, connection)
            if exchange.is_streaming or not connection.lost.done():
                self._note_answer(seen, route, response.status, began)
            if not exchange.asked and not http.content.is_eof():
                await connection.answer_last(http, response)
        except RequestRejected as refused:
            # Noted before it is sent: what follows may be a wait for the host to stop sending.
            self._note_refusal(seen, refused.refusal)
            self._note_answer(seen, route, refused.refusal.status, began)
            response = await connection.refuse(http, refused.refusal)
        finally:
            self._under_way[route] -= 1
            if seen.status is None:
                # Nobody was told anything, or not all of it: the host has left, or the listener ends.
                self._record(route, seen.verb, 0, began)
            request_context.detach(token)
            if seen.message is not None and len(seen.message.text) > LARGE_MESSAGE:
                seen.discard_payload()
        if connection.leaving and response.prepared and response.keep_alive:
            # What was promised when it began may be acted upon the moment it ends.
            connection.keep_promise()
        elif connection.leaving or connection.closing:
            response.force_close()
        return response

    def active(self) -> dict[tuple[str], int]:
        """How many requests are being answered, by the label of their route; safe on any thread."""
        return {(route,): self._under_way[route] for route in _ROUTES}

    def note_garbage(self, http: web.BaseRequest, refusal: Rejection) -> None:
        """Account for what was answered without ever being a request."""
        seen, now = self.request_contexts.open_for_garbage(http), self.clock.elapsed()
        with request_context.in_request(seen):
            self._note_refusal(seen, refusal)
            self._note_answer(seen, "other", refusal.status, now)

    def _show(self, http: web.BaseRequest, seen: RequestContext, began: float) -> web.StreamResponse:
        self.door.greet(http.method, http.version, http.headers)
        response = self.documents.answer(http.method, seen.path)
        if not http.content.is_eof():
            # Nobody reads what came with the question.
            response.force_close()
        self._note_answer(seen, "prm", response.status, began)
        return response

    def _route(self, path: str) -> str:
        if path in self.documents:
            return "prm"
        return "mcp" if self.door.is_mount(path) else "other"

    def _note_refusal(self, seen: RequestContext, refusal: Rejection) -> None:
        seen.refusal = refusal.reason or f"status_{refusal.status}"
        if refusal.reason is not None:
            self.event_sink.emit(HttpRefused(refusal.reason))

    def _note_answer(self, seen: RequestContext, route: str, status: int, began: float) -> None:
        seen.status = status
        self._record(route, seen.verb, status, began)

    def _record(self, route: str, method: str, status: int, began: float) -> None:
        verb = method if method in _VERBS else NO_VERB
        self.event_sink.emit(HttpAnswered(route, verb, status, self.clock.elapsed() - began))

    def _check_head(self, http: web.BaseRequest, connection: HostConnection) -> None:
        # Only where more than a head's worth of bytes came at once; else the head cannot be too large.
        if connection.long_heads and head_size(http.raw_path, http._message.raw_headers) > self.max_header:
            raise RequestRejected(HEAD_TOO_LARGE)

    def _offer(self, http: web.BaseRequest, admission: RequestHead, address: str) -> HostExchange:
        # The one is the other with the fields it was read from.
        return HostExchange(http, InboundHead(*admission, http.headers.items()), self.terms, address)

    async def _converse(self, exchange: HostExchange, connection: HostConnection) -> web.StreamResponse:
        connection.exchange = exchange
        if connection.closing:
            exchange.wind_down()
        try:
            response = await self._ask(exchange)
        except asyncio.CancelledError:
            await exchange.abandon()
            raise
        finally:
            connection.exchange = None
        return response

    async def _ask(self, exchange: HostExchange) -> web.StreamResponse:
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
