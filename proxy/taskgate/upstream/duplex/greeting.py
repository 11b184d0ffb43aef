"""Handshake of one channel: `Greeting` has the state of its one `initialize`, for all its sessions.

`Channel.greet` sends `initialize` for the first session. Other sessions join and get the same
answer. The state is "not sent", "sent", or "accepted". After a refusal or a failure it is "not
sent" again, so that the next session sends it.
"""

from typing import Final

from taskgate.domain.record import RequestId
from taskgate.errors import UpstreamFailed
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.jsonrpc import with_id
from taskgate.protocol.messages import Response, value_of
from taskgate.upstream.duplex.contents import Read, response_in
from taskgate.upstream.duplex.replies import ChannelReply

NEARLY: Final = 0.95
"""The share of the timeout after which a cancelled wait counts as a timeout."""


class Greeting:
    """State of the handshake. `waiting` has the replies that wait for its answer, also that of the
    sender."""

    __slots__ = ("_sent_as", "_sent_at", "_was_confirmed", "_welcome", "waiting")

    def __init__(self) -> None:
        # The id and loop time of `initialize`; None if "not sent". Then the server's acceptance.
        self._sent_as: RequestId | None = None
        self._sent_at = 0.0
        self._welcome: Response | None = None
        self._was_confirmed = False
        self.waiting: list[ChannelReply] = []

    @property
    def is_welcome(self) -> bool:
        """Whether the server accepted it."""
        return self._welcome is not None

    def joins(self, reply: ChannelReply, now: float) -> bool:
        """Give the reply the server's acceptance, or add it to `waiting`. False if its caller must
        send `initialize`, under the reply's id."""
        if self._welcome is not None:
            _welcome_with(self._welcome, reply)
            return True
        self.waiting.append(reply)
        if self._sent_as is not None:
            return True
        self._sent_as, self._sent_at = reply.id, now
        return False

    def fails(self, failure: UpstreamFailed) -> None:
        """Fail the waiting replies and return to "not sent": it could not be sent, or no answer can
        arrive."""
        self._sent_as = None
        waiting, self.waiting = self.waiting, []
        for reply in waiting:
            reply.fail(failure)

    def leaves(self, reply: ChannelReply) -> None:
        """Remove a reply that no longer waits; nothing if it has its answer."""
        if reply in self.waiting:
            self.waiting.remove(reply)

    def awaits(self, id: RequestId) -> bool:
        """Whether `initialize` was sent under that id and has no answer yet."""
        return id == self._sent_as and self._welcome is None

    def hear(self, message: Read) -> bool:
        """Take the message that answers `initialize`, and end the wait of all replies: accepted,
        refused, or failed if it is invalid.

        False if it is a result but no acceptance: the state of such a server is unknown, and the
        channel is of no use.
        """
        response = response_in(message)
        if response is None:
            self.fails(protocol_violation("a message of it is not JSON-RPC"))
            return True
        if _is_welcome(response):
            self._welcome = response
        else:
            self._sent_as = None
        waiting, self.waiting = self.waiting, []
        for reply in waiting:
            _welcome_with(response, reply)
        return self.is_welcome or response.result is None

    def is_hopeless(self, patience: float, now: float, *, left: float) -> bool:
        """Whether the channel should be dropped, asked when a waiter leaves: the server did not
        answer.

        It was silent for a whole timeout, `patience`. Or the time of the leaving waiter is over
        (`left` seconds remain of it), and there is no other waiter.
        """
        if self._sent_as is None or self._welcome is not None:
            return False
        is_spent = left <= patience * (1 - NEARLY)
        return now - self._sent_at >= patience * NEARLY or (is_spent and not self.waiting)

    def confirms(self) -> bool:
        """Whether `notifications/initialized` is still to be sent. True only once: each session
        sends it, and the server gets one."""
        was_confirmed, self._was_confirmed = self._was_confirmed, True
        return not was_confirmed


def _is_welcome(response: Response) -> bool:
    said = (response.result.members or {}) if response.result is not None else {}
    return isinstance(value_of(said, "protocolVersion"), str)


def _welcome_with(response: Response, reply: ChannelReply) -> None:
    """Give a reply the answer, under the id of its own request."""
    reply.answer((response.text if response.id == reply.id else with_id(response, reply.id)).encode())
