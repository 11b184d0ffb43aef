"""One request of the modern era on a line: it has the line for as long as its answer is read.

What must not live here: who has lines (`transport`), and whose a message is (`company`).
"""

from collections.abc import Callable

from taskgate.protocol.vocabulary import SUBSCRIPTIONS_LISTEN
from taskgate.upstream.base import Outgoing
from taskgate.upstream.duplex.channel import Channel
from taskgate.upstream.duplex.replies import ChannelReply
from taskgate.upstream.duplex.session import cancelled
from taskgate.upstream.duplex.words import RequestPeek


class PendingRequest:
    """One request, of `context`; see ReplyObserver. `over` is told once that it needs the line no more."""

    __slots__ = ("_channel", "_like", "_over", "context")

    id = ""

    def __init__(self, channel: Channel, like: Outgoing, context: str, over: Callable[[Channel], None]) -> None:
        self.context = context
        self._channel = channel
        self._like = like
        self._over = over

    async def run(self, asks: RequestPeek, until: float | None) -> ChannelReply:
        """The answer, as it begins. Raises UpstreamFailed."""
        reply = ChannelReply(asks.id, self, self._like.idle)
        listens = asks.method == SUBSCRIPTIONS_LISTEN
        try:
            await self._channel.ask(self._like, reply, until=until, listens=listens)
        except BaseException:
            reply.end()
            raise
        return reply

    # What its reply tells; see ReplyObserver.

    def keep(self, size: int) -> None:
        """See ReplyObserver."""
        self._channel.keep(size)

    def read(self, size: int) -> None:
        """See ReplyObserver."""
        self._channel.read(size)

    def let_go(self, reply: ChannelReply) -> None:
        """See ReplyObserver. A server that still works at it is told that nobody waits (U-STDIO-3)."""
        if self._channel.waiting.replies.get(reply.id) is reply:
            self._channel.waiting.give_up(reply)
            self._channel.say(cancelled(reply.id), self._like)
        self._over(self._channel)
