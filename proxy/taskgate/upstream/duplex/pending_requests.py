"""One modern request on a channel: `PendingRequest`. It has the channel while its answer is read.

`DuplexTransport` creates it for each request of the modern era.
"""

from collections.abc import Callable

from taskgate.protocol.vocabulary import SUBSCRIPTIONS_LISTEN
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.channel import Channel
from taskgate.upstream.duplex.replies import ChannelReply
from taskgate.upstream.duplex.session import cancelled
from taskgate.upstream.duplex.words import RequestPeek


class PendingRequest:
    """One request of an auth context; the `ReplyObserver` of its reply. `over` is called once at
    its end."""

    __slots__ = ("_channel", "_like", "_over", "context")

    id = ""

    def __init__(self, channel: Channel, like: Outgoing, context: str, over: Callable[[Channel], None]) -> None:
        self.context = context
        self._channel = channel
        self._like = like
        self._over = over

    async def run(self, asks: RequestPeek, until: float | None) -> ChannelReply:
        """Send the request and return the start of its answer. Raises UpstreamFailed."""
        reply = ChannelReply(asks.id, self, self._like.idle)
        listens = asks.method == SUBSCRIPTIONS_LISTEN
        try:
            await self._channel.ask(self._like, reply, until=until, listens=listens)
        except BaseException:
            reply.end()
            raise
        return reply

    # --- the observer of its reply ------------------------------------------------------------------------------------

    def keep(self, size: int) -> None:
        self._channel.keep(size)

    def read(self, size: int) -> None:
        self._channel.read(size)

    def let_go(self, reply: ChannelReply) -> None:
        """Cancels the request at a server that still works on it (U-STDIO-3)."""
        if self._channel.waiting.replies.get(reply.id) is reply:
            self._channel.waiting.give_up(reply)
            self._channel.say(cancelled(reply.id), self._like)
        self._over(self._channel)
