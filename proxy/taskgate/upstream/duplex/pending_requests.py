"""One modern request on a channel: `PendingRequest` sends it and observes its reply.

`DuplexTransport` takes a channel for each request of the modern era and creates one of these. The
request uses the channel, which others may share, until its reply has ended: read to the end,
abandoned by its reader, or failed. Then `over` is called, which gives the channel back.
"""

from collections.abc import Callable

from taskgate.protocol.vocabulary import SUBSCRIPTIONS_LISTEN
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.channel import Channel
from taskgate.upstream.duplex.replies import ChannelReply
from taskgate.upstream.duplex.session import cancelled
from taskgate.upstream.duplex.words import RequestPeek


class PendingRequest:
    """The request `outgoing` of an auth context; the `ReplyObserver` of its reply.

    `over` is called with the channel exactly once, after `run` was called, however the request
    ends.
    """

    __slots__ = ("_channel", "_outgoing", "_over", "context")

    id = ""
    """The session id of a `ReplyObserver`; empty, since modern requests have no session."""

    def __init__(self, channel: Channel, outgoing: Outgoing, context: str, over: Callable[[Channel], None]) -> None:
        self.context = context
        self._channel = channel
        self._outgoing = outgoing
        self._over = over

    async def run(self, asks: RequestPeek, until: float | None) -> ChannelReply:
        """Send the request, wait for the first message of its answer, and return its reply.

        The caller must release the reply. Raises UpstreamFailed; the request has then ended.
        """
        reply = ChannelReply(asks.id, self, self._outgoing.idle)
        listens = asks.method == SUBSCRIPTIONS_LISTEN
        try:
            await self._channel.ask(self._outgoing, reply, until=until, listens=listens)
        except BaseException:
            # Calls `let_go`.
            reply.end()
            raise
        return reply

    # --- the observer of its reply ------------------------------------------------------------------------------------

    def keep(self, size: int) -> None:
        """Count bytes that were stored in the reply. While too many wait, the channel is not
        read."""
        self._channel.keep(size)

    def read(self, size: int) -> None:
        """Count bytes that left the reply."""
        self._channel.read(size)

    def let_go(self, reply: ChannelReply) -> None:
        """Called once by the reply when it has ended. A request without an answer is cancelled at
        the server (U-STDIO-3)."""
        if self._channel.waiting.replies.get(reply.id) is reply:
            self._channel.waiting.give_up(reply)
            self._channel.say(cancelled(reply.id), self._outgoing)
        self._over(self._channel)
