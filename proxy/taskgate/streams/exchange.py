"""One HTTP exchange with a host: the interface between the listener and the gateway.

The listener makes an `Exchange` for each request whose head passed its checks, and awaits an
`HttpReply`. The body is received on demand, after authentication. A handler that needs longer, or
has messages to send before the answer, turns the exchange into an event stream. The reply is then
the last event of that stream. A handler that needs longer and has nothing else to send may begin a
document instead.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from taskgate.auth.context import AuthContext, Credential
from taskgate.jsontext.large import MessageText
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.streams.event_stream import EventStream
from taskgate.streams.rate_checks import PreparedCheck
from taskgate.streams.resumable import StreamOpener

UNKNOWN: Final = "unknown"
"""The address of a request whose source cannot be determined."""


class HttpMethod(StrEnum):
    """The HTTP methods of an MCP endpoint."""

    POST = "POST"
    GET = "GET"
    DELETE = "DELETE"


@dataclass(slots=True)
class Admission:
    """The head of a request that passed the listener's checks, and the caller that it showed.

    A connection remembers it: a later request with the same head gets the same object. So it has
    nothing that one message may change. `authorization` has every field of that name, `api_keys` each
    X-API-Key, and `query` is the query string; only authentication reads them. `last_event_id` is the
    host's Last-Event-ID, which may be any text. The listener counts generations: in another one the
    head is checked again. The gateway sets `caller`, and `token` if there was a token or an API key to
    verify. The checks of rates are those of the last request: one before its caller was known, and one
    of this caller.
    """

    method: HttpMethod
    path: str
    host_session: str | None = None
    revision: str | None = None
    accepts_json: bool = True
    accepts_stream: bool = True
    authorization: tuple[str, ...] = field(default=(), repr=False)
    query: str = field(default="", repr=False)
    last_event_id: str | None = None
    generation: int = 0
    caller: AuthContext | None = None
    token: Credential | None = None
    connection_check: PreparedCheck | None = field(default=None, repr=False, compare=False)
    request_check: PreparedCheck | None = field(default=None, repr=False, compare=False)
    api_keys: tuple[str, ...] = field(default=(), repr=False)


class ListenerRefused(Exception):
    """The listener rejects the request and has an answer of its own: handlers must propagate it."""


@dataclass(slots=True)
class HttpReply:
    """An answer: a JSON document, or no body.

    `error` is the label of a JSON-RPC answer: None, a JSON-RPC code, or `messages.TOOL_ERROR`.
    """

    status: int = 200
    body: MessageText | None = None
    headers: tuple[tuple[str, str], ...] = ()
    error: str | None = None


class Exchange(Protocol):
    """One request and its connection, as the listener offers it to a handler."""

    @property
    def head(self) -> Admission:
        """The head of the request, as it was admitted."""
        ...

    @property
    def fields(self) -> Collection[tuple[str, str]]:
        """The header fields of the request as they came, those of this one message too; but for
        Content-Length.
        """
        ...

    @property
    def address(self) -> str:
        """The source of the request: an IP address or UNKNOWN. Rates may count by it."""
        ...

    @property
    def is_streaming(self) -> bool:
        """Whether the answer has become an event stream."""
        ...

    @property
    def has_begun(self) -> bool:
        """Whether the head of the answer is sent, so that its status is 200."""
        ...

    opener: StreamOpener | None
    """Set by a handler whose host can resume: a later `stream` opens its stream with it."""

    def body(self, budget: BytesInFlight, caller: AuthContext, admit_large: "AdmitLarge") -> bytes | Awaitable[bytes]:
        """Return the whole body, within bounds; the wait for it, if it has not all arrived.

        May be called once, after authentication.

        A large body counts for `caller` in `budget` while it arrives. One above LARGE is read if
        `admit_large` raises nothing. A host that sent `Expect: 100-continue` is then told to continue.
        Raises ListenerRefused, and what `admit_large` raises. If a handler replies without this
        call, and the host has not sent the whole body, its connection is closed.
        """
        ...

    def count_answer(self, size: int) -> None:
        """Count `size` bytes until the answer is sent or the host disconnects.

        They count for the caller that `body` was called with.
        """
        ...

    def stream(self) -> EventStream:
        """Turn the answer into an event stream at once; later calls return the same stream.

        Only for a host that accepts one (`head.accepts_stream`). The stream closes when the host
        disconnects.
        """
        ...

    def begin_document(self) -> bool:
        """Begin the answer as a JSON document, whose text follows with the reply; later calls keep the host waiting.

        For a host that accepts one (`head.accepts_json`), if nothing but the answer goes to it on this
        request. A later `stream` is closed from the start. Returns whether the answer is a document. False,
        with nothing done, if it is an event stream, or the host disconnected before it began.
        """
        ...

    def resume(self, stream: EventStream, missed: Sequence[bytes]) -> bool:
        """Turn the answer into the continuation of an existing stream, after the `missed` events.

        Returns False, without a change to the stream, if the host has disconnected.
        """
        ...

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call `callback` once if the host disconnects before the answer, at once if it has done
        so.

        With a resumable stream, the call comes when the host can no longer resume it.
        """
        ...

    def on_sent(self, callback: Callable[[bool], None]) -> None:
        """Call `callback` once with whether the host has received the whole answer, as far as the
        connection shows.

        It is called with False as soon as the connection is lost before that, also if the host may
        resume its stream. It may be called some time after the answer.
        """
        ...


AdmitLarge = Callable[[Exchange, AuthContext, int], Awaitable[None]]
"""The gateway's check of so many bytes more of a body that is too large to be parsed at once."""

ExchangeHandler = Callable[[Exchange], Awaitable[HttpReply]]
"""The gateway's entry for the listener: raises only CancelledError and the listener's
ListenerRefused.
"""
