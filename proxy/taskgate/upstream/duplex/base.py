"""The seam below a transport over lines: what a line is, who hears it, and whoever has lines to give.

A line is a way to one server and back, for whole messages: the pipes of a process, or an event stream with its POSTs.
What must not live here: which message belongs to which request (`transport` and its neighbours), and how bytes move
(`upstream.stdio`, `upstream.sse`).
"""

from typing import NamedTuple, Protocol

from taskgate.errors import UpstreamFailed
from taskgate.upstream.base import Outgoing


class ChannelUnavailable(Exception):
    """The server answers whoever wants a line with an HTTP status that is no success."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status


class Wish(NamedTuple):
    """For what a line is wanted.

    `context` is whose it is to be: who has another never gets the same line, unless the operator says that the server
    keeps nothing of anybody. `declared` is the text of the parameters of the `initialize` that comes first on it: lines
    are shared by those who declare the same. None is for the modern era, which has no such message.
    `probes` tells that what comes may end the server: the line is to be a new one and nobody else's before it is given
    back; that it ends is no sign of anything, and until then it may be one above a bound. It is dropped first where it
    is of no use.
    `outgoing` is the request that waits for it: whoever waits cancels when its time is over. For what `only_listens` no
    line is made or ended: it is given one that is there, or refused as unreachable.
    """

    context: str
    declared: bytes | None
    outgoing: Outgoing
    probes: bool = False


class Ears(Protocol):
    """Who hears a line. Nothing of it raises or waits."""

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers on it now: 0 where nobody would miss the line this moment."""
        ...

    def heard(self, message: bytes) -> bool:
        """The server said that. False where it is no message: it is passed over, and the line may tell of it."""
        ...

    async def heard_large(self, message: bytes) -> bool:
        """The same of a message that is large: another thread looks at it. Nothing else may be heard meanwhile."""
        ...

    def cut(self, ends: bytes) -> bool:
        """The server said something that is too large to keep. Of it there is the beginning and the end, with a zero
        byte between them; or the beginning alone, where the line is ended of it. False as for `heard`.
        """
        ...

    def lost(self, failure: UpstreamFailed) -> None:
        """The line is no more, and nothing else comes of it; told once, and never within a call of the line's own.

        `failure` is what becomes of every request that is in flight: reason closed or too_large, dispatched, and a text
        that says what happened. It says nothing of where the server is.
        """
        ...


class MessageChannel(Protocol):
    """One line to a server. Lines are told apart by identity."""

    @property
    def acknowledges(self) -> bool:
        """Whether `send` ends when the server says that it took the message, which may be after it has answered it."""
        ...

    def listen(self, ears: Ears) -> None:
        """Who hears it. Called once, right after the line was first taken; what came before is not lost."""
        ...

    async def send(self, outgoing: Outgoing) -> int:
        """Send the one message that is `outgoing.body`, for the HTTP status that it was taken with; 202 without HTTP.

        `outgoing.left` is told before the first byte may leave, and nothing waits between the two. The body may hold
        newlines between its tokens, never within a string. Messages go in the order in which they are sent. Raises
        UpstreamFailed, dispatched where a byte may have left. Where the wait is cancelled the message goes whole, or
        none of it.
        """
        ...

    def pause(self) -> None:
        """Read no further for now: what the server says waits at the server, not in memory."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...

    def answered(self, size: int) -> None:
        """What it just said, of so many bytes, answers what was asked: it is not said beside an answer."""
        ...

    def drop(self) -> None:
        """End it, with whatever is under way on it, in the background: `lost` is told. It is still to be given back."""
        ...


class ChannelProvider(Protocol):
    """Whoever has the lines to one server: makes them, shares them, ends them."""

    async def take(self, wish: Wish) -> MessageChannel:
        """A line as wished for, new or used by others, to be given back. It is not one of which `lost` was told.

        Raises UpstreamFailed where there is none, not dispatched; ChannelUnavailable.
        """
        ...

    def give_back(self, line: MessageChannel) -> None:
        """One of those who took it needs it no more; does not wait. To be called once for each `take`, lost or not."""
        ...

    async def close(self) -> None:
        """End every line, and wait until they are gone; `lost` is told, and nothing can be taken any more."""
        ...
