"""One HTTP exchange as the engine sees it: what came in, and the two ways to answer.

The listener builds an `Exchange` for each request whose head it lets through and awaits the `HttpReply`. The body is
there for the asking, so that it is received for nobody who was not let in before. An engine that needs longer, or has
something to say before the answer, turns the exchange into an event stream; the reply is then its last event. Knows no
aiohttp.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from taskgate.jsontext.large import MessageText
from taskgate.protocol.headers import RequestHeaders, read_headers
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.streams.event_stream import EventStream
from taskgate.streams.resumable import Opener

__all__ = ["UNKNOWN", "Answer", "EventStream", "Exchange", "HttpReply", "Inbound", "ListenerRefused", "Verb"]

UNKNOWN: Final = "unknown"
"""Where a request comes from when that cannot be told."""


class Verb(StrEnum):
    """The HTTP methods of an MCP endpoint."""

    POST = "POST"
    GET = "GET"
    DELETE = "DELETE"


class Inbound(NamedTuple):
    """The head of a request, which passed the listener's checks.

    `authorization` are all the fields of that name, and `query` what follows the path: both are for whoever finds out
    who asks, and for nobody else. `last_event_id` is where a host stopped to hear, and no id of ours where it is none.
    `fields` are all the header fields as they came, for whoever has to read more of them than is here.
    """

    verb: Verb
    path: str
    host_session: str | None = None
    revision: str | None = None
    accepts_json: bool = True
    accepts_stream: bool = True
    authorization: tuple[str, ...] = ()
    query: str = ""
    last_event_id: str | None = None
    fields: Collection[tuple[str, str]] = ()

    def repeated(self) -> RequestHeaders:
        """What the fields say of the body, for those who do not read bodies; read anew each time."""
        return read_headers(self.fields)


class ListenerRefused(Exception):
    """The listener does not take the request after all, and has an answer of its own: the engine lets this pass."""


class HttpReply(NamedTuple):
    """The answer: a JSON document, or no body at all."""

    status: int = 200
    body: MessageText | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Exchange(Protocol):
    """One request and the connection it came on, as the listener offers it to the engine."""

    @property
    def inbound(self) -> Inbound:
        """What came in."""
        ...

    @property
    def address(self) -> str:
        """Where the request comes from: an IP address or UNKNOWN. Rates may count by it."""
        ...

    async def body(self, budget: BytesInFlight, caller: str) -> bytes:
        """The body, whole and within bounds, which may have to be waited for; to be asked for once.

        While it arrives, and is large, it counts for `caller` in `budget`.

        Not before it is known who asks: a host that waits is told to go on. Raises ListenerRefused. A reply without
        this ends the connection of a host that has more to send.
        """
        ...

    def hold(self, size: int) -> None:
        """Count so much for the same caller until the answer has left, or its host has."""
        ...

    def stream(self) -> EventStream:
        """Turn the answer into an event stream, at once; the same feed when called again.

        Only for a host that accepts one (`inbound.accepts_stream`). The feed is closed when the host leaves.
        """
        ...

    def keep(self, resumable: Opener) -> None:
        """Should there be a stream, let it be one of these, that the host can take up again."""
        ...

    def resume(self, feed: EventStream, missed: Sequence[bytes]) -> bool:
        """Turn the answer into an event stream that goes on with one which there is, after what its host missed.

        False, and nothing is done to the stream, where the host has left already.
        """
        ...

    @property
    def streams(self) -> bool:
        """Whether the answer has become an event stream."""
        ...

    def when_gone(self, forget: Callable[[], None]) -> None:
        """Call `forget` once if the host leaves before the answer; at once if it has left already.

        Not yet while it may come back, since its stream can be taken up again.
        """
        ...


Answer = Callable[[Exchange], Awaitable[HttpReply]]
"""What the listener asks of the engine: never raises but for cancellation and the listener's own ListenerRefused."""
