"""The handshake of one line, made once: whoever takes the line later is welcomed with the words that it brought.

What must not live here: how the messages get to the server and back (`channel`). What holds: the server is greeted
again only after it refused.
"""

from typing import Final

from taskgate.domain.record import RequestId
from taskgate.errors import UpstreamFailed
from taskgate.protocol.envelope import Response
from taskgate.protocol.jsonrpc import readdressed
from taskgate.protocol.reading import value_of
from taskgate.upstream import failures
from taskgate.upstream.duplex.contents import Read, response_in
from taskgate.upstream.duplex.replies import ChannelReply

NEARLY: Final = 0.95
"""The share of a patience after which a wait that is given up counts as all of it."""


class Greeting:
    """What is known of the handshake, and who waits for the welcome."""

    __slots__ = ("_sent_as", "_sent_at", "_was_confirmed", "_welcome", "waiting")

    def __init__(self) -> None:
        self._sent_as: RequestId | None = None
        self._sent_at = 0.0
        self._welcome: Response | None = None
        self._was_confirmed = False
        self.waiting: list[ChannelReply] = []

    @property
    def is_welcome(self) -> bool:
        """Whether the server answered it as one that takes part."""
        return self._welcome is not None

    def joins(self, reply: ChannelReply, now: float) -> bool:
        """Have the reply wait for the welcome, or give it now; False where the server is to be greeted under its id."""
        if self._welcome is not None:
            _welcome_with(self._welcome, reply)
            return True
        self.waiting.append(reply)
        if self._sent_as is not None:
            return True
        self._sent_as, self._sent_at = reply.id, now
        return False

    def fails(self, failure: UpstreamFailed) -> None:
        """It did not reach the server, or no answer can come."""
        self._sent_as = None
        waiting, self.waiting = self.waiting, []
        for reply in waiting:
            reply.fail(failure)

    def leaves(self, reply: ChannelReply) -> None:
        """The reply does not wait any more."""
        if reply in self.waiting:
            self.waiting.remove(reply)

    def awaits(self, id: RequestId) -> bool:
        """Whether the server was greeted under that id, and has not answered."""
        return id == self._sent_as and self._welcome is None

    def hear(self, message: Read) -> bool:
        """The server's answer to it: who waits has it then.

        False where it neither welcomes nor refuses: nobody can know what such a server takes it for.
        """
        response = response_in(message)
        if response is None:
            self.fails(failures.malformed("a message of it is no JSON-RPC message"))
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
        """Whether the server was greeted so long ago and has not answered.

        Or not so long, where whoever gave up had no more time `left`, and nobody else waits.
        """
        if self._sent_as is None or self._welcome is not None:
            return False
        is_spent = left <= patience * (1 - NEARLY)
        return now - self._sent_at >= patience * NEARLY or (is_spent and not self.waiting)

    def confirms(self) -> bool:
        """Whether the server is still to be told that it was understood; from then on it was."""
        was_confirmed, self._was_confirmed = self._was_confirmed, True
        return not was_confirmed


def _is_welcome(response: Response) -> bool:
    said = (response.result.members or {}) if response.result is not None else {}
    return isinstance(value_of(said, "protocolVersion"), str)


def _welcome_with(response: Response, reply: ChannelReply) -> None:
    reply.answer((response.text if response.id == reply.id else readdressed(response, reply.id)).encode())
