"""Requests in flight on one channel: `RequestsInFlight`, and which of them a bad answer fails.

`Channel` uses it for every message. A request is added before it is sent. It leaves by `answered`,
by `forget` if the server does not work on it, by `give_up` if it may, or when the channel is lost.
A request fails only if the bad answer was certainly its own, or with a text that says that the
request is unknown.
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
    """Requests in flight (`replies`), the handshake (`greeting`), and abandoned requests
    (`given_up`)."""

    __slots__ = ("given_up", "greeting", "listening", "replies")

    def __init__(self) -> None:
        self.greeting = Greeting()
        self.replies: dict[RequestId, ChannelReply] = {}
        """The replies of requests in flight, by request id in the order of sending; also of streams
        that only listen."""
        self.listening: set[RequestId] = set()
        """Those of the request ids whose streams only listen. Such a request is not work of the
        server."""
        self.given_up = GivenUp()

    def __len__(self) -> int:
        """How many requests wait for an answer."""
        return len(self.replies) - len(self.listening) + len(self.greeting.waiting)

    def answered(self, id: RequestId) -> ChannelReply | None:
        """Remove a request because its answer arrived. Returns its reply; None if it was not in
        flight."""
        self.given_up.answered(id)
        self.listening.discard(id)
        return self.replies.pop(id, None)

    def forget(self, reply: ChannelReply) -> None:
        """Remove a request that the server does not work on: it was not sent, or has ended without
        an answer."""
        if self.replies.get(reply.id) is reply:
            del self.replies[reply.id]
            self.listening.discard(reply.id)

    def give_up(self, reply: ChannelReply) -> None:
        """Remove a request whose caller waits no longer. If it was sent, it is noted as
        abandoned."""
        if self.replies.get(reply.id) is reply and reply.was_sent:
            until = _NO_WORK if reply.id in self.listening else asyncio.get_running_loop().time() + STILL
            self.given_up.note(reply.id, reply.keeper.id, reply.keeper.context, until)
        self.forget(reply)

    def fail(self, id: RequestId, failure: UpstreamFailed) -> None:
        """Fail the request with that id."""
        reply = self.answered(id)
        if reply is not None:
            reply.fail(failure)
        elif self.greeting.awaits(id):
            self.greeting.fails(failure)

    def fail_the_only_one(self, failure: UpstreamFailed) -> bool:
        """Fail the only request in flight: the server sent a bad answer that names no id.

        False if there are several, so that the request is unknown; then nothing fails.
        """
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
        """Fail all requests: the answer of one of them will not arrive, and which is unknown."""
        for reply in self._at_work():
            # It stays in `replies` until its reader ends it: the server may still work on it.
            reply.fail(failure)
        if self.greeting.waiting:
            self.greeting.fails(failure)

    def lost(self, failure: UpstreamFailed) -> None:
        """Fail all requests: the channel is closed."""
        replies = list(self.replies.values())
        self.listening.clear()
        self.replies.clear()
        for reply in replies:
            reply.fail(failure)
        self.greeting.fails(failure)

    def _at_work(self) -> list[ChannelReply]:
        """Return the replies of requests that wait for an answer."""
        return [reply for id_, reply in self.replies.items() if id_ not in self.listening]
