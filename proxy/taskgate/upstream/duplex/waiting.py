"""Who waits for answers on one line, and who of them hears that an answer failed.

What must not live here: what a message says (`words`, `strange`), and what is sent (`channel`). What holds: nobody is
told of an answer that may be another's, but that it is not known whose it was.
"""

import asyncio
from typing import Final

from taskgate.domain.record import RequestId
from taskgate.errors import UpstreamFailed
from taskgate.upstream.duplex.given_up import STILL, GivenUp
from taskgate.upstream.duplex.greeting import Greeting
from taskgate.upstream.duplex.replies import ChannelReply

_NO_WORK: Final = 0.0


class RequestsInFlight:
    """Requests in flight, and those that were given up."""

    __slots__ = ("given_up", "greeting", "listening", "replies")

    def __init__(self) -> None:
        self.greeting = Greeting()
        self.replies: dict[RequestId, ChannelReply] = {}
        """What is in flight; streams that only listen among them."""
        self.listening: set[RequestId] = set()
        self.given_up = GivenUp()

    def __len__(self) -> int:
        """How many wait for an answer."""
        return len(self.replies) - len(self.listening) + len(self.greeting.waiting)

    def answered(self, id: RequestId) -> ChannelReply | None:
        """The server is done with that request: who waited for it, if it is no handshake."""
        self.given_up.answered(id)
        self.listening.discard(id)
        return self.replies.pop(id, None)

    def forget(self, reply: ChannelReply) -> None:
        """Nobody waits for the reply any more, and the server is done with it."""
        if self.replies.get(reply.id) is reply:
            del self.replies[reply.id]
            self.listening.discard(reply.id)

    def give_up(self, reply: ChannelReply) -> None:
        """Nobody waits for the reply any more; unless it came, the server may be at work at it for long."""
        if self.replies.get(reply.id) is reply and reply.was_sent:
            until = _NO_WORK if reply.id in self.listening else asyncio.get_running_loop().time() + STILL
            self.given_up.note(reply.id, reply.keeper.id, reply.keeper.context, until)
        self.forget(reply)

    def fail(self, id: RequestId, failure: UpstreamFailed) -> None:
        """The answer to that request failed."""
        reply = self.answered(id)
        if reply is not None:
            reply.fail(failure)
        elif self.greeting.awaits(id):
            self.greeting.fails(failure)

    def fail_the_only_one(self, failure: UpstreamFailed) -> bool:
        """An answer failed, and nothing says to what: whether it can be told all the same, or nobody waits."""
        at_work = self.given_up.sessions(asyncio.get_running_loop().time())
        if len(self) and len(self) + len(at_work) > 1:
            return False
        for reply in self._at_work():
            self.forget(reply)
            reply.fail(failure)
        if self.greeting.waiting:
            self.greeting.fails(failure)
        return True

    def fail_all(self, failure: UpstreamFailed) -> None:
        """One of the answers will not come, and nobody knows which."""
        for reply in self._at_work():
            # The server may be at work at it: it is given up by whoever reads this.
            reply.fail(failure)
        if self.greeting.waiting:
            self.greeting.fails(failure)

    def lost(self, failure: UpstreamFailed) -> None:
        """No answer comes any more."""
        replies = list(self.replies.values())
        self.listening.clear()
        self.replies.clear()
        for reply in replies:
            reply.fail(failure)
        self.greeting.fails(failure)

    def _at_work(self) -> list[ChannelReply]:
        return [reply for id_, reply in self.replies.items() if id_ not in self.listening]
