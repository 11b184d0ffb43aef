"""Transport over message channels, with the interface of HTTP: `ChannelTransport`, a `Transport`.

Sessions send POST, GET and DELETE with a session header, as over HTTP:

    POST initialize         takes a channel and opens a `ChannelSession` with a made-up id
    POST with session id    a message of that session
    GET with session id     its messages besides answers
    DELETE                  end of the session; the channel is given back
    POST, modern revision   a `ModernRequest` with a channel for as long as it lasts

A request in a session whose channel was lost fails with the reason of the loss, or after a long
time with 404. `transport_choice` creates it with a `ChannelProvider` of `stdio` or `sse`.
"""

import asyncio
from collections.abc import Callable
from secrets import token_hex
from typing import Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.vocabulary import (
    INITIALIZE,
    SERVER_DISCOVER,
    SESSION_HEADER,
    SUBSCRIPTIONS_LISTEN,
    VERSION_HEADER,
)
from taskgate.upstream import failures
from taskgate.upstream.base import Incoming, Outgoing
from taskgate.upstream.duplex.base import ChannelProvider, ChannelRequest, ChannelUnavailable, MessageChannel
from taskgate.upstream.duplex.dispatcher import BackgroundSends, Dispatcher
from taskgate.upstream.duplex.peek import RequestPeek, declared_in, kind_of, response_in
from taskgate.upstream.duplex.pending import PendingRequest, Status
from taskgate.upstream.duplex.session import ChannelSession, cancelled
from taskgate.upstream.duplex.sharing import SharedChannel


class ModernRequest:
    """The request `outgoing` of an auth context; the `RequestOwner` of its `PendingRequest`.

    `over` is called with the channel exactly once, after `run` was called, however the request
    ends.
    """

    __slots__ = ("_dispatcher", "_outgoing", "_over", "context")

    id = ""
    """The session id of a `RequestOwner`; empty, since modern requests have no session."""

    def __init__(
        self, dispatcher: Dispatcher, outgoing: Outgoing, context: str, over: Callable[[Dispatcher], None]
    ) -> None:
        self.context = context
        self._dispatcher = dispatcher
        self._outgoing = outgoing
        self._over = over

    async def run(self, asks: RequestPeek, until: float | None) -> PendingRequest:
        """Send the request, wait for the first message of its answer, and return it.

        The caller must release it. Raises UpstreamFailed; the request has then ended.
        """
        request = PendingRequest(asks.id, self, self._outgoing.idle)
        listens = asks.method == SUBSCRIPTIONS_LISTEN
        try:
            await self._dispatcher.ask(self._outgoing, request, until=until, listens=listens)
        except BaseException:
            # Calls `let_go`.
            request.end()
            raise
        return request

    # --- the observer of its request ---------------------------------------------------------------------------------

    def keep(self, size: int) -> None:
        """Count bytes that were stored in the request. While too many wait, the channel is not
        read."""
        self._dispatcher.keep(size)

    def read(self, size: int) -> None:
        """Count bytes that left the request."""
        self._dispatcher.read(size)

    def let_go(self, request: PendingRequest) -> None:
        """Called once by the request when it has ended. A request without an answer is cancelled at
        the server (U-STDIO-3)."""
        if self._dispatcher.pending.requests.get(request.id) is request:
            self._dispatcher.pending.abandon(request)
            self._dispatcher.say(cancelled(request.id), self._outgoing)
        self._over(self._dispatcher)


UNKNOWN: Final = 404
NOT_ALLOWED: Final = 405
DONE: Final = 200
_MOST_LOST: Final = 256
"""Lost sessions whose reason is stored; they are asked about within a moment."""


class ChannelTransport:
    """The transport to one server. `channels` provides its channels. `is_modern`: modern requests can
    be sent too.

    A session belongs to the principal of its handshake, a request without a session to its own
    principal. Every channel that is taken is given back once: by `_end` for a session, by `_done`
    for a modern request.
    """

    def __init__(self, channels: ChannelProvider, *, is_modern: bool = True) -> None:
        self._provider = channels
        self._is_modern = is_modern
        # The channels in use, until they are lost.
        self._shared: dict[MessageChannel, SharedChannel] = {}
        self._sessions: dict[str, ChannelSession] = {}
        # The reason of the loss, by session id; the oldest first.
        self._lost: dict[str, str] = {}
        self._survives = False
        """Whether the server has answered `server/discover`. A legacy server need not know that
        method, and some end on it."""
        self._background = BackgroundSends()

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
        await self._background.close()

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
        shared = await self._taken(ChannelRequest(context, declared_in(outgoing.body), outgoing), until)
        session = ChannelSession(token_hex(16), shared.dispatcher, context, self._end)
        shared.sessions[session] = None
        self._sessions[session.id] = session
        return await session.begin(outgoing, asks, until)

    def _end(self, session: ChannelSession) -> None:
        """Forget a session that is over, and give its channel back."""
        del self._sessions[session.id]
        if session.loss is not None:
            self._lost[session.id] = session.loss
            if len(self._lost) > _MOST_LOST:
                del self._lost[next(iter(self._lost))]
        channel = session.dispatcher.channel
        shared = self._shared.get(channel)
        if shared is not None:
            del shared.sessions[session]
        self._provider.give_back(channel)

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
        dispatcher = (await self._taken(ChannelRequest(context, None, outgoing, probes), until)).dispatcher
        if not probes:
            return await ModernRequest(dispatcher, outgoing, context, self._done).run(asks, until)
        survived = False

        def over(dispatcher: Dispatcher) -> None:
            # Read when the request has ended. After a probe without a result the channel is of no
            # use.
            if not survived:
                dispatcher.channel.drop()
            self._done(dispatcher)

        try:
            request = await ModernRequest(dispatcher, outgoing, context, over).run(asks, until)
        except UpstreamFailed as failure:
            if failure.reason == UpstreamReason.CLOSED.value and failure.dispatched:
                raise failures.Unsurvived(str(failure)) from None
            raise
        response = None if request.first is None else response_in(request.first)
        survived = self._survives = response is not None and response.result is not None
        return request

    def _done(self, dispatcher: Dispatcher) -> None:
        """Give back the channel of a modern request that has ended."""
        self._provider.give_back(dispatcher.channel)

    # --- channels -----------------------------------------------------------------------------------------------------

    async def _taken(self, wanted: ChannelRequest, until: float | None) -> SharedChannel:
        """Take a channel and return what shares it. The caller must give the channel back."""
        channel = await (self._provider.take(wanted) if until is None else self._taken_until(wanted, until))
        shared = self._shared.get(channel)
        if shared is None:
            shared = self._shared[channel] = SharedChannel(channel, self._background, self._lose)
            channel.listen(shared.dispatcher)
        return shared

    async def _taken_until(self, wanted: ChannelRequest, until: float) -> MessageChannel:
        try:
            async with asyncio.timeout_at(until):
                return await self._provider.take(wanted)
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None

    def _lose(self, channel: MessageChannel) -> None:
        """Forget a channel that is lost."""
        del self._shared[channel]


def _context(outgoing: Outgoing) -> str:
    return "" if outgoing.principal is None else outgoing.principal.context
