"""What happens to one HTTP request, from its head to its answer.

What lives here: the order of the steps, and the shape of plain answers. What must not: the checks themselves (`door`),
bytes and sockets (`protocol`), event streams (`stream`), anything about JSON-RPC. What holds: every request that was
parsed gets exactly one answer and one HttpAnswered, and the engine sees only what came whole and within bounds.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from aiohttp import hdrs, web
from aiohttp.http import HttpVersion11
from multidict import CIMultiDict

from taskgate.clock import Clock
from taskgate.downstream.document import Document
from taskgate.downstream.documents import Documents
from taskgate.downstream.door import (
    HEAD_TOO_LARGE,
    Admission,
    Door,
    Refusal,
    Refused,
    head_size,
    path_of,
)
from taskgate.downstream.protocol import SERVER_NAME, HostConnection
from taskgate.downstream.stream import HostExchange, Terms
from taskgate.engine.messages import Answer, Inbound, ListenerRefused, Reply, Verb
from taskgate.telemetry.audit import Audit, HttpAnswered, HttpRefused

_EMPTY: Final = CIMultiDict({hdrs.SERVER: SERVER_NAME})
_JSON: Final = CIMultiDict({hdrs.CONTENT_TYPE: "application/json", hdrs.SERVER: SERVER_NAME})
_VERBS: Final = frozenset(Verb)

_log = logging.getLogger("taskgate.downstream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Takes requests to the engine and its replies back."""

    door: Door
    documents: Documents
    engine: Answer
    audit: Audit
    clock: Clock
    max_header: int
    terms: Terms

    async def answer(self, http: web.BaseRequest) -> web.StreamResponse:
        """One request, start to end."""
        began = self.clock.elapsed()
        connection = http.protocol
        assert isinstance(connection, HostConnection)
        try:
            self._check_head(http, connection)
            if path_of(http.raw_path) in self.documents:
                return self._show(http, began)
            admission = self.door.admit(http.method, http.raw_path, http.version, http.headers)
            exchange = self._offer(http, admission)
            response = await self._converse(exchange, connection)
        except Refused as refused:
            # Noted before it is sent: what follows may be a wait for the host to stop sending.
            route = "mcp" if self.door.is_mount(path_of(http.raw_path)) else "other"
            self._note_refusal(refused.refusal)
            self._note_answer(route, http.method, refused.refusal.status, began)
            response = await connection.refuse(http, refused.refusal)
        else:
            self._note_answer("mcp", http.method, response.status, began)
            if not exchange.asked and not http.content.is_eof():
                await connection.answer_last(http, response)
        if connection.closing:
            response.force_close()
        return response

    def _show(self, http: web.BaseRequest, began: float) -> web.StreamResponse:
        self.door.greet(http.method, http.version, http.headers)
        response = self.documents.answer(http.method, path_of(http.raw_path))
        if not http.content.is_eof():
            # Nobody reads what came with the question.
            response.force_close()
        self._note_answer("other", http.method, response.status, began)
        return response

    def note_garbage(self, refusal: Refusal) -> None:
        """Account for what was answered without ever being a request."""
        self._note_refusal(refusal)
        self.audit.record(HttpAnswered("other", "_OTHER", refusal.status, 0.0))

    def _note_refusal(self, refusal: Refusal) -> None:
        if refusal.reason is not None:
            self.audit.record(HttpRefused(refusal.reason))

    def _note_answer(self, route: str, method: str, status: int, began: float) -> None:
        verb = method if method in _VERBS else "_OTHER"
        self.audit.record(HttpAnswered(route, verb, status, self.clock.elapsed() - began))

    def _check_head(self, http: web.BaseRequest, connection: HostConnection) -> None:
        # Only where more than a head's worth of bytes came at once; else the head cannot be too large.
        if connection.long_heads and head_size(http.raw_path, http._message.raw_headers) > self.max_header:
            raise Refused(HEAD_TOO_LARGE)

    def _offer(self, http: web.BaseRequest, admission: Admission) -> HostExchange:
        # The one is the other with the fields it was read from.
        return HostExchange(http, Inbound(*admission, http.headers.items()), self.terms)

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
            raise
        except Exception as error:
            _log.error("the engine failed", extra={"error": type(error).__name__})
            return await _finish(exchange, Reply(status=500))


async def _finish(exchange: HostExchange, reply: Reply) -> web.StreamResponse:
    if exchange.streams:
        return await exchange.finish(reply.body)
    exchange.settle()
    simple = reply.status == 200 and not reply.headers and exchange.asked
    if simple and reply.body is not None and exchange.version == HttpVersion11:
        return Document(reply.body)
    return _plain(reply)


def _plain(reply: Reply) -> web.Response:
    if reply.body is None:
        response = web.Response(status=reply.status, headers=_EMPTY)
    else:
        response = web.Response(status=reply.status, body=reply.body.encode(), headers=_JSON)
    for name, value in reply.headers:
        response.headers[name] = value
    return response
