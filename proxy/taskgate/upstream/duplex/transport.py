"""Sessions and requests over message channels to one server: `ChannelTransport`.

    open     takes a channel for an `initialize`, and makes a `ChannelSession`
    send     takes a channel for one modern request, for as long as the request lasts

A legacy session holds its `ChannelSession`, and sends all later messages by it. A modern request is
a `ModernRequest`. `client` creates the transport with a `ChannelProvider` of `stdio` or
`sse`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.vocabulary import SERVER_DISCOVER, SUBSCRIPTIONS_LISTEN
from taskgate.upstream import failures
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.base import ChannelProvider, ChannelRequest, ChannelUnavailable, MessageChannel
from taskgate.upstream.duplex.dispatcher import BackgroundSends, Dispatcher
from taskgate.upstream.duplex.passive_health import PassiveHealth
from taskgate.upstream.duplex.peek import RequestPeek, declared_in, kind_of, response_in
from taskgate.upstream.duplex.pending import PendingRequest, Receipt
from taskgate.upstream.duplex.session import ChannelSession, cancelled, deadline
from taskgate.upstream.duplex.sharing import SharedChannel

_Sent = TypeVar("_Sent")


class ModernRequest:
    """The request `outgoing` of an auth context; the `RequestOwner` of its `PendingRequest`.

    `over` is called with the dispatcher exactly once, after `run` was called, however the request
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
        dispatcher = self._dispatcher
        request = dispatcher.pending.requests[asks.id] = PendingRequest(
            asks.id, self, dispatcher.unread, self._outgoing.idle
        )
        if asks.method == SUBSCRIPTIONS_LISTEN:
            dispatcher.pending.listening.add(asks.id)
        try:
            await dispatcher.ask(self._outgoing, request, until)
        except BaseException:
            # Calls `on_ended`.
            request.end()
            raise
        return request

    def on_ended(self, request: PendingRequest) -> None:
        """Called once by the request when it has ended. A request without an answer is cancelled at
        the server (U-STDIO-3)."""
        if self._dispatcher.pending.requests.get(request.id) is request:
            self._dispatcher.pending.abandon(request)
            self._dispatcher.send_in_background(cancelled(request.id), self._outgoing)
        self._over(self._dispatcher)


class ChannelTransport:
    """The channels to one server. `health` learns whether it is up. `is_modern`: modern requests
    can be sent too.

    A session belongs to the principal of its handshake, a request without a session to its own
    principal. Every channel that is taken is given back once: by `_end` for a session, by `_done`
    for a modern request.
    """

    def __init__(
        self, channels: ChannelProvider, health: PassiveHealth | None = None, *, is_modern: bool = True
    ) -> None:
        self._provider = channels
        self._health = health or PassiveHealth()
        self._is_modern = is_modern
        # The channels in use, until they are lost.
        self._shared: dict[MessageChannel, SharedChannel] = {}
        self._survives = False
        """Whether the server has answered `server/discover`. A legacy server need not know that
        method, and some end on it."""
        self._background = BackgroundSends()

    async def close(self) -> None:
        """Close every channel."""
        self._health.close()
        await self._provider.close()
        await self._background.close()

    # --- legacy era ---------------------------------------------------------------------------------------------------

    async def open(self, outgoing: Outgoing, opened: Callable[[ChannelSession], None]) -> PendingRequest | Receipt:
        """Send an `initialize`, and return its answer. `opened` is called with the session if the
        server welcomed it; its owner must end it.

        A `Receipt` has the HTTP status by which an SSE server refused the event stream. Raises
        UpstreamFailed.
        """
        loop, health, until = asyncio.get_running_loop(), self._health, deadline(outgoing)
        began, context = loop.time(), _context(outgoing)
        assert isinstance(outgoing.body, bytes), "a channel takes no chunks"
        asks = kind_of(outgoing.body)
        assert isinstance(asks, RequestPeek), "it is a request"
        try:
            shared = await self._take(ChannelRequest(context, declared_in(outgoing.body), outgoing), until)
            session = ChannelSession(shared.dispatcher, context, self._end)
            shared.sessions[session] = None
            request = await session.begin(outgoing, asks.id, until)
        except ChannelUnavailable as unavailable:
            health.initialized(is_welcome=False)
            return Receipt(*unavailable.refusal)
        except UpstreamFailed as failure:
            health.initialize_failed(failure)
            raise
        except asyncio.CancelledError:
            health.initialize_cancelled(loop.time() - began, outgoing.first_byte)
            raise
        is_welcome = shared.dispatcher.pending.handshake.is_welcome
        health.initialized(is_welcome=is_welcome)
        if is_welcome:
            opened(session)
        return request

    def _end(self, session: ChannelSession) -> None:
        """Give the channel of a session back that is over."""
        channel = session.dispatcher.channel
        shared = self._shared.get(channel)
        if shared is not None:
            del shared.sessions[session]
        self._provider.release(channel)

    # --- modern era ---------------------------------------------------------------------------------------------------

    async def send(self, outgoing: Outgoing) -> PendingRequest:
        """Send a modern request, and wait for the first message of its answer. Raises
        UpstreamFailed: Unwelcome if the transport has no modern servers."""
        if not self._is_modern:
            raise failures.unwelcome(_NOT_FOUND)
        assert isinstance(outgoing.body, bytes), "a channel takes no chunks"
        asks = kind_of(outgoing.body)
        assert isinstance(asks, RequestPeek), "it is a request"
        try:
            request = await self._ask(outgoing, asks)
        except UpstreamFailed as failure:
            # A request that only listens starts no program, so its failure is no evidence.
            if not outgoing.only_listens:
                self._health.failed(failure)
            raise
        # `server/discover` only asks for the era: a legacy server may answer it with an error.
        if not outgoing.only_listens and asks.method != SERVER_DISCOVER:
            self._health.note(up=True)
        return request

    async def _ask(self, outgoing: Outgoing, asks: RequestPeek) -> PendingRequest:
        """Send a modern request. The first `server/discover` is a probe: it gets a channel of its
        own, since the server may end on it."""
        until, context = deadline(outgoing), _context(outgoing)
        probes = asks.method == SERVER_DISCOVER and not self._survives
        dispatcher = (await self._take(ChannelRequest(context, None, outgoing, probes), until)).dispatcher
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
        self._provider.release(dispatcher.channel)

    # --- channels -----------------------------------------------------------------------------------------------------

    async def _take(self, wanted: ChannelRequest, until: float | None) -> SharedChannel:
        """Take a channel and return what shares it. The caller must give the channel back."""
        if until is None:
            channel = await self._provider.acquire(wanted)
        else:
            try:
                async with asyncio.timeout_at(until):
                    channel = await self._provider.acquire(wanted)
            except TimeoutError:
                raise failures.too_late(dispatched=False) from None
        shared = self._shared.get(channel)
        if shared is None:
            shared = self._shared[channel] = SharedChannel(channel, self._background, self._lose)
            channel.listen(shared.dispatcher)
        return shared

    def _lose(self, channel: MessageChannel) -> None:
        """Forget a channel that is lost."""
        del self._shared[channel]


@runtime_checkable
class ChannelSender(Protocol):
    """A sender of one session that may use channels. It adds principal and credentials to a
    message, and watches its outcome."""

    channels: ChannelTransport | None
    """The channels to the server; None if it is spoken to by Streamable HTTP."""

    async def send(self, outgoing: Outgoing, *, by: Callable[[Outgoing], Coroutine[Any, Any, _Sent]]) -> _Sent:
        """Send a message by the function `by`, and return what that returns. Raises UpstreamFailed."""
        ...


def _context(outgoing: Outgoing) -> str:
    return "" if outgoing.principal is None else outgoing.principal.context


_NOT_FOUND: Final = 404
"""The HTTP status by which a legacy server refuses a modern request, as `failures.unwelcome` takes
it."""
