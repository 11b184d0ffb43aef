"""Transport over message channels, with the interface of HTTP: `DuplexTransport`, a `Transport`.

Sessions send POST, GET and DELETE with a session header, as over HTTP:

    POST initialize         takes a channel and opens a `ChannelSession` with a made-up id
    POST with session id    a message of that session
    GET with session id     its messages besides answers
    DELETE                  end of the session; the channel is given back
    POST, modern revision   a `PendingRequest` with a channel for as long as it lasts

A request in a session whose channel was lost fails with the reason of the loss, or after a long
time with 404. `transport_choice` creates it with a `ChannelProvider` of `stdio` or `sse`.
"""

import asyncio
from secrets import token_hex
from typing import Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.vocabulary import INITIALIZE, SERVER_DISCOVER, SESSION_HEADER, VERSION_HEADER
from taskgate.upstream import failures
from taskgate.upstream.base import Incoming, Outgoing
from taskgate.upstream.duplex.base import ChannelProvider, ChannelUnavailable, MessageChannel, Wish
from taskgate.upstream.duplex.channel import Channel
from taskgate.upstream.duplex.company import SharedBy
from taskgate.upstream.duplex.contents import declared_in, response_in
from taskgate.upstream.duplex.pending_requests import PendingRequest
from taskgate.upstream.duplex.replies import Status
from taskgate.upstream.duplex.session import ChannelSession
from taskgate.upstream.duplex.under_way import UnderWay
from taskgate.upstream.duplex.words import RequestPeek, kind_of

UNKNOWN: Final = 404
NOT_ALLOWED: Final = 405
DONE: Final = 200
_MOST_LOST: Final = 256
"""Lost sessions whose reason is stored; they are asked about within a moment."""


class DuplexTransport:
    """The transport to one server. `lines` provides its channels. `is_modern`: modern requests can
    be sent too.

    A session belongs to the principal of its handshake, a request without a session to its own
    principal. Every channel that is taken is given back once: by `_end` for a session, by `_done`
    for a modern request.
    """

    def __init__(self, lines: ChannelProvider, *, is_modern: bool = True) -> None:
        self._provider = lines
        self._is_modern = is_modern
        # The channels in use, until they are lost.
        self._companies: dict[MessageChannel, SharedBy] = {}
        self._sessions: dict[str, ChannelSession] = {}
        # The reason of the loss, by session id; the oldest first.
        self._lost: dict[str, str] = {}
        self._survives = False
        """Whether the server has answered `server/discover`. A legacy server need not know that
        method, and some end on it."""
        self._under_way = UnderWay()

    async def send(self, outgoing: Outgoing) -> Incoming:
        bound = outgoing.first_byte
        until = None if bound is None else asyncio.get_running_loop().time() + bound.total_seconds()
        session_id = outgoing.headers.get(SESSION_HEADER)
        if session_id is None:
            return await self._begin(outgoing, until)
        session = self._sessions.get(session_id)
        if session is None:
            return self._unknown(session_id)
        if outgoing.verb == "POST":
            return await session.post(outgoing, until)
        if outgoing.verb == "GET":
            return session.listen()
        session.end()
        return Status(DONE)

    async def close(self) -> None:
        """Close every channel."""
        await self._provider.close()
        await self._under_way.close()

    async def _begin(self, outgoing: Outgoing, until: float | None) -> Incoming:
        """Handle a request without a session: `initialize`, or one of the modern era."""
        if outgoing.body is None:
            return Status(NOT_ALLOWED)
        asks = kind_of(outgoing.body)
        if not isinstance(asks, RequestPeek):
            return Status(UNKNOWN)
        try:
            if asks.method == INITIALIZE:
                return await self._open(outgoing, asks, until)
            if self._is_modern and VERSION_HEADER in outgoing.headers:
                return await self._ask_once(outgoing, asks, until)
        except ChannelUnavailable as refusal:
            return Status(refusal.status)
        return Status(UNKNOWN)

    # --- legacy era ---------------------------------------------------------------------------------------------------

    async def _open(self, outgoing: Outgoing, asks: RequestPeek, until: float | None) -> Incoming:
        """Open a session for `initialize`."""
        assert outgoing.body is not None, "a request has a body"
        context = _context(outgoing)
        company = await self._taken(Wish(context, declared_in(outgoing.body), outgoing), until)
        session = ChannelSession(token_hex(16), company.channel, context, self._end)
        company.sessions[session] = None
        self._sessions[session.id] = session
        return await session.begin(outgoing, asks, until)

    def _end(self, session: ChannelSession) -> None:
        """Forget a session that is over, and give its channel back."""
        del self._sessions[session.id]
        if session.loss is not None:
            self._lost[session.id] = session.loss
            if len(self._lost) > _MOST_LOST:
                del self._lost[next(iter(self._lost))]
        line = session.channel.line
        company = self._companies.get(line)
        if company is not None:
            del company.sessions[session]
        self._provider.give_back(line)

    def _unknown(self, session_id: str) -> Status:
        """Return the answer for a session that has ended. Raises UpstreamFailed if its channel was
        lost."""
        loss = self._lost.get(session_id)
        if loss is None:
            return Status(UNKNOWN)
        raise UpstreamFailed(UpstreamReason.SESSION_LOST, loss, dispatched=False)

    # --- modern era ---------------------------------------------------------------------------------------------------

    async def _ask_once(self, outgoing: Outgoing, asks: RequestPeek, until: float | None) -> Incoming:
        """Send a modern request. The first `server/discover` is a probe: it gets a channel of its
        own, since the server may end on it."""
        probes = asks.method == SERVER_DISCOVER and not self._survives
        context = _context(outgoing)
        channel = (await self._taken(Wish(context, None, outgoing, probes), until)).channel
        if not probes:
            return await PendingRequest(channel, outgoing, context, self._done).run(asks, until)
        survived = False

        def over(channel: Channel) -> None:
            # Read when the reply has ended. After a probe without a result the channel is of no
            # use.
            if not survived:
                channel.line.drop()
            self._done(channel)

        try:
            reply = await PendingRequest(channel, outgoing, context, over).run(asks, until)
        except UpstreamFailed as failure:
            if failure.reason == UpstreamReason.CLOSED.value and failure.dispatched:
                raise failures.Unsurvived(str(failure)) from None
            raise
        response = None if reply.first is None else response_in(reply.first)
        survived = self._survives = response is not None and response.result is not None
        return reply

    def _done(self, channel: Channel) -> None:
        """Give back the channel of a modern request that has ended."""
        self._provider.give_back(channel.line)

    # --- channels -----------------------------------------------------------------------------------------------------

    async def _taken(self, wish: Wish, until: float | None) -> SharedBy:
        """Take a channel and return what shares it. The caller must give the channel back."""
        line = await (self._provider.take(wish) if until is None else self._taken_until(wish, until))
        company = self._companies.get(line)
        if company is None:
            company = self._companies[line] = SharedBy(line, self._under_way, self._lose)
            line.listen(company.channel)
        return company

    async def _taken_until(self, wish: Wish, until: float) -> MessageChannel:
        try:
            async with asyncio.timeout_at(until):
                return await self._provider.take(wish)
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None

    def _lose(self, line: MessageChannel) -> None:
        """Forget a channel that is lost."""
        del self._companies[line]


def _context(outgoing: Outgoing) -> str:
    return "" if outgoing.principal is None else outgoing.principal.context
