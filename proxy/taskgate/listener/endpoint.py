"""The course of one HTTP request, from its head to its answer: `Endpoint`.

A connection calls `answer` for each of its requests. The steps are:

1. open a RequestContext (`RequestContexts`);
2. check the client's address, and wait for room in the audit log;
3. check the head (`door`), unless the connection remembers its admission;
4. pass an exchange to the gateway (`stream`), and send the reply;
5. remember the head if the gateway has found its caller.

Every parsed request gets one context and one answer. The context is the last event of its request.
The gateway sees only requests that are complete and within bounds.
"""

import asyncio
import logging
from base64 import b32encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from aiohttp import hdrs
from aiohttp.http import HttpVersion10
from multidict import CIMultiDict

from taskgate.clock import Clock, Entropy
from taskgate.listener.answers import (
    FRONT_PAGE,
    Answer,
    front_page,
    is_page_request,
    preflight,
    public_document,
    refuse,
)
from taskgate.listener.door import (
    HEAD_TOO_LARGE,
    NO_ROOM,
    WRONG_CLIENT,
    Door,
    Fields,
    HostHead,
    Rejection,
    RequestRejected,
    admission_fields,
    expect_framing,
    find_admission,
    remember,
)
from taskgate.listener.peers import Peers, read_peer
from taskgate.listener.protocol import HostConnection, HostRequest, HttpResponse
from taskgate.listener.stream import ExchangeTerms, HostExchange
from taskgate.streams.exchange import Admission, ExchangeHandler, HttpReply, ListenerRefused
from taskgate.telemetry import request_context
from taskgate.telemetry.events import AuditCapacity, EventSink, HttpRefused, UnlimitedAuditCapacity
from taskgate.telemetry.request_context import RequestContext

NO_VERB: Final = "_OTHER"
"""The method label of what is no request."""
_PREFIX_BYTES: Final = 5
"""Random bytes of a process; eight characters in an id."""
_ROUTES: Final = ("mcp", "prm", "other")
_NO_FIELDS: Final[Fields] = {}

_log = logging.getLogger("taskgate.listener")


class RequestContexts:
    """The factory of request contexts. An id is a random prefix of the process, and a number, so that
    ids are unique among all processes.
    """

    def __init__(self, peers: Peers, entropy: Entropy) -> None:
        self._peers = peers
        self._has_warned = False
        prefix = b32encode(entropy.token(_PREFIX_BYTES)).decode().lower()
        self.new_id: Callable[[], str] = map(f"{prefix}-{{}}".format, count(1)).__next__
        """Returns the id of another context."""

    def open(self, http: HostRequest) -> tuple[RequestContext, Fields]:
        """Open the context of a request, and return with it the fields for the admission of its head."""
        head, remote = http.head, http.connection.remote
        # A path is compared as it came: it is never decoded.
        path = head.target.partition("?")[0]
        fields, peers = admission_fields(head), self._peers
        if peers.trusts_any:
            address = peers.address_of(remote, fields[peers.field])
        else:
            _, address = read_peer(remote or "")
        if not self._has_warned and (fields[hdrs.X_FORWARDED_FOR] or fields[hdrs.FORWARDED]):
            self._warn_of_proxy(remote, fields)
        agents = fields[hdrs.USER_AGENT]
        return RequestContext(self.new_id(), address, head.method, path, agents[0] if agents else None), fields

    def _warn_of_proxy(self, remote: str | None, fields: Fields) -> None:
        """Log once that hosts seem to come through a proxy that is not configured.

        They then count as one address. A forwarding header from a peer that is no trusted proxy, or
        one of the wrong kind, shows it.
        """
        peers = self._peers
        if not peers.trusts(remote):
            text = (
                "a peer that is not in server.trusted_proxies sends forwarding headers: if it is a proxy, add it there"
            )
        elif not fields[peers.field]:
            text = "a trusted proxy sends a forwarding header other than the one in server.forwarded_header"
        else:
            return
        self._has_warned = True
        extra = {"peer": peers.address_of(remote), "forwarded_header": peers.header}
        _log.warning("%s; until then all hosts behind it share one address and its limits", text, extra=extra)

    def open_for_garbage(self, remote: str | None) -> RequestContext:
        """Open the context of bytes that were no request, but get an answer. Nothing of them is
        stored.
        """
        return RequestContext(self.new_id(), self._peers.address_of(remote), NO_VERB, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The handler of all requests of a listener.

    - `engine` is the gateway. It gets each exchange whose head is accepted, and returns the reply.
    - `documents` are the public documents by path, which a reload changes in place; that of FRONT_PAGE is for
      browsers alone.
    - `audit_capacity` is that of the audit log: a request without room in it waits, and is rejected if
      none comes.
    - `terms` are what all exchanges share.
    - `_active` counts the requests under way by route: `mcp` for mounts, `prm` for public documents,
      `other` for unknown paths.
    """

    door: Door
    documents: Mapping[str, bytes]
    engine: ExchangeHandler
    request_contexts: RequestContexts
    event_sink: EventSink
    clock: Clock
    terms: ExchangeTerms
    audit_capacity: AuditCapacity = field(default_factory=UnlimitedAuditCapacity)
    _active: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_ROUTES, 0))

    async def answer(self, http: HostRequest) -> HttpResponse:
        """Answer one request. Called for one request of a connection at a time."""
        began = self.clock.elapsed()
        connection, head = http.connection, http.head
        admission, fields = head.admission, _NO_FIELDS
        if (
            admission is not None
            and admission.generation == self.door.generation.number
            and http.length <= self.door.max_body
            and not self.audit_capacity.is_full
        ):
            # What was admitted has the path of a mount.
            path, route = admission.path, "mcp"
            context = RequestContext(self.request_contexts.new_id(), head.address, head.method, path, head.agent)
        else:
            admission = None
            context, fields = self.request_contexts.open(http)
            path = context.path
            is_public = path in self.documents and (
                path != FRONT_PAGE or is_page_request(head.method, fields[hdrs.ACCEPT])
            )
            route = "prm" if is_public else "mcp" if path in self.door.paths else "other"
            # An unknown path may be a secret of another system, whatever the request is rejected for.
            context.path = "" if route == "other" else path
        context.route = route
        token = request_context.attach(context)
        self._active[route] += 1
        try:
            checked: Admission | Answer = admission or await self._admit(http, context, fields)
            # The gateway may need long for its reply.
            fields = _NO_FIELDS
            response: HttpResponse
            if isinstance(checked, Answer):
                response = self._answer_at_once(http, checked, context, began)
            else:
                admission = checked
                response = await self._answer_by_gateway(http, admission, context, began)
                if head.admission is not admission and admission.caller is not None and head.keep_alive:
                    remember(connection.heads, head, admission, context)
        except RequestRejected as refused:
            # Recorded before it is sent: sending may wait for the host to stop sending.
            self._note_refusal(context, refused.refusal)
            self._note_answer(context, refused.refusal.status, began)
            response = await refuse(http, refused.refusal)
        finally:
            self._active[route] -= 1
            if context.status is None:
                # No complete answer was sent: the host has disconnected, or the listener is
                # closing.
                self._note_answer(context, None, began)
            request_context.detach(token)
        if connection.leaving or connection.closing:
            _end(http, response)
        return response

    def active(self) -> dict[tuple[str], int]:
        """Return the number of requests under way, by route label. Safe on any thread."""
        return {(route,): self._active[route] for route in _ROUTES}

    async def answer_garbage(self, connection: HostConnection, refusal: Rejection) -> None:
        """Report bytes that were no request, and answer them with `refusal`."""
        context, now = self.request_contexts.open_for_garbage(connection.remote), self.clock.elapsed()
        with request_context.in_request(context):
            self._note_refusal(context, refusal)
            context.route = "other"
            self._note_answer(context, refusal.status, now)
        nothing = HostRequest(connection, HostHead(NO_VERB, "", HttpVersion10, CIMultiDict()), 0, b"")
        await refuse(nothing, refusal)

    async def _admit(self, http: HostRequest, context: RequestContext, fields: Fields) -> Admission | Answer:
        """Check a head, and return its admission. Raises RequestRejected.

        First wait until the audit log has room for the request. A reload may happen meanwhile. A public
        document and the answer to a browser's preflight request are returned as they are.
        """
        head, heads, door = http.head, http.connection.heads, self.door
        # All pages may read public documents.
        if fields[hdrs.ORIGIN] and context.route != "prm":
            head.cors = door.cors_fields(fields)
        if door.clients and not door.admits_client(context.address):
            # Doubtful framing ends the connection whatever else is wrong.
            expect_framing(head.method, head.version, fields)
            raise RequestRejected(WRONG_CLIENT)
        if self.audit_capacity.is_full and not await self.audit_capacity.room():
            door.greet(head.method, head.version, fields)
            raise RequestRejected(NO_ROOM)
        if head.is_too_large:
            raise RequestRejected(HEAD_TOO_LARGE)
        # A reload may have removed the document: its path is then an unknown one.
        document = self.documents.get(context.path) if context.route == "prm" else None
        if document is not None:
            door.greet(head.method, head.version, fields)
            return front_page(document) if context.path == FRONT_PAGE else public_document(head.method, document)
        if head.cors and (answer := preflight(head)) is not None:
            door.greet(head.method, head.version, fields)
            return answer
        if heads and http.length <= door.max_body:
            admission = find_admission(heads, head, fields, door.generation.number)
            if admission is not None:
                return admission
        return door.admit(head.method, head.target, head.version, fields, http.length)

    async def _answer_by_gateway(
        self, http: HostRequest, admission: Admission, context: RequestContext, began: float
    ) -> HttpResponse:
        """Return the gateway's response, ready to be sent; a stream has been sent by then.

        An unexpected error becomes status 500. Only the listener's own rejections pass, and
        cancellation.
        """
        connection = http.connection
        exchange = HostExchange(http, admission, self.terms, context)
        # From here on the connection reports to the exchange that its host disconnects.
        connection.exchange = exchange
        if connection.closing:
            exchange.wind_down()
        try:
            try:
                reply = await self.engine(exchange)
                response = await exchange.finish_stream(reply) if exchange.is_streaming else exchange.finish(reply)
            except ListenerRefused:
                exchange.release()
                raise
            except Exception as error:
                _log.error("unexpected error while handling a request", extra={"error": type(error).__name__})
                reply = HttpReply(status=500)
                response = await exchange.finish_stream(reply) if exchange.is_streaming else exchange.finish(reply)
        except asyncio.CancelledError:
            await exchange.abandon()
            raise
        finally:
            connection.exchange = None
        # A plain answer is not sent to a host that has disconnected, and so not recorded.
        if exchange.is_streaming or not connection.lost.done():
            self._note_answer(context, response.status, began)
        # The gateway has refused the request before its body came. It is not read any more.
        if not exchange.asked and http.body is None:
            await connection.answer_last(http, response)
        return response

    def _answer_at_once(
        self, http: HostRequest, response: Answer, context: RequestContext, began: float
    ) -> HttpResponse:
        """Answer a request that the gateway does not see."""
        if http.body is None:
            # The body of such a request is not read.
            response.keep_alive = False
        self._note_answer(context, response.status, began)
        return response

    def _note_refusal(self, context: RequestContext, refusal: Rejection) -> None:
        context.refusal = refusal.reason or f"status_{refusal.status}"
        if refusal.reason is not None:
            self.event_sink.emit(HttpRefused(refusal.reason))

    def _note_answer(self, context: RequestContext, status: int | None, began: float) -> None:
        """Report a request with the status of its answer; None if no complete one was sent."""
        context.status, context.seconds = status, self.clock.elapsed() - began
        self.event_sink.emit(context)


def _end(http: HostRequest, response: HttpResponse) -> None:
    """Close a connection that is leaving or closing, after its answer."""
    if http.connection.leaving and http.is_answered and response.keep_alive:
        # The head was sent before `leaving` was set, and promised keep-alive. The host may act on
        # that at once.
        http.connection.keep_promise()
    else:
        response.keep_alive = False
