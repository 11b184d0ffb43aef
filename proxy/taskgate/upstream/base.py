"""Interfaces towards servers: `Upstream`, `UpstreamSession`, and the `Transport` below them.

An upstream is one configured server. A session is one conversation with that server, for a host
session or a task; `session`, `legacy.session` and `modern.session` implement it. A
transport moves the bytes of a session: `Outgoing` is one request, `Incoming` its answer. `wire`
implements it, and `duplex` for modern requests over message channels. `SessionTransport` adds identity,
credentials and the circuit breaker.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol, Self

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.versions import Era, Peer
from taskgate.jsontext.large import JsonChunks
from taskgate.protocol.discovery import ListedTool, ServerDescription
from taskgate.protocol.messages import Notification, Response
from taskgate.upstream.calls import CallListener, Principal, PrincipalSource, SessionCallListener, UpstreamCall


class UpstreamSession(Protocol):
    """One session with one server, for one host session or one task.

    It opens on first use. If the server ends it, the next call opens it again. Every failure is
    UpstreamFailed. If an await of `call` is cancelled, the call is cancelled at the server too,
    unless another process resumes it (`CallListener.leaves`). `close` must be called at the end.
    """

    async def open(self) -> ServerDescription:
        """Return what the server said in the handshake; make the handshake if there was none.

        Callers at the same time share one handshake.
        """
        ...

    async def welcome(self) -> ServerDescription:
        """Return the server's description for hosts: that of `open`, or the last known one.

        It is marked stale while the server is known to be down.
        """
        ...

    async def call(self, call: UpstreamCall, listener: CallListener) -> Response:
        """Send one request and return the server's response.

        `listener` gets notifications and questions of the server about the call. Raises
        UpstreamFailed with the reason timeout when the time of the call is over.
        """
        ...

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        """Return the task event that a response to `tools/call` means. Raises UpstreamFailed for a
        response that is no valid outcome."""
        ...

    @property
    def era(self) -> Era:
        """The era of the server, and so the form of its responses; legacy until it is known."""
        ...

    def tell(self, notification: Notification) -> None:
        """Send a notification of the host in the background; drop it if the session is not open."""
        ...

    async def tools(self, wanted: str | None = None) -> Mapping[str, ListedTool]:
        """Return the server's tools by name, of all pages.

        The list is read on first use, and again after the server said that it changed. It is read again
        if `wanted` is not in it, but not more often than every few seconds.
        """
        ...

    def listed(self, tool: str) -> ListedTool | None:
        """Return the tool as the server last listed it, to the gateway or to the host; None if it
        did not.

        A missing tool does not cause the catalogue to be read.
        """
        ...

    async def listen_for(self, changes: frozenset[str]) -> frozenset[str]:
        """Listen for list changes that the server does not declare, and return those that it grants.

        `changes` are of `LIST_CHANGES`. A legacy server is not asked.
        """
        ...

    def grants(self, filters: frozenset[str]) -> frozenset[str]:
        """Return those of `filters` that the server grants now.

        A filter is a member that an extension adds to the filter of `subscriptions/listen`.
        """
        ...

    async def close(self) -> None:
        """End the session at the server and forget it; waits a short time at most. A second call
        does nothing."""
        ...


class Vitals(NamedTuple):
    """Health of an upstream: `circuit` is closed, open or half_open; `up` is None while it is
    unknown. `processes` are its programs that run or start; None for a server that is none of them.
    `circuit_reason` says why the circuit is not closed, and whom it refuses; None while it is closed.
    """

    up: bool | None
    circuit: str
    processes: int | None = None
    circuit_reason: str | None = None


class Upstream(Protocol):
    """One configured server."""

    name: str

    def open(self) -> None:
        """Start to serve this upstream: begin its health checks, if configured; they run until
        `close`."""
        ...

    def vitals(self) -> Vitals:
        """Return the health as far as it is known now."""
        ...

    def session(
        self, listener: SessionCallListener, principal_source: PrincipalSource, host: Peer | None = None
    ) -> UpstreamSession:
        """Return a new session, not yet opened, whose principal is given by `principal_source`.

        `listener` gets what belongs to no call. The server is told the capabilities that `host`
        declared; without a host it is told none. The caller must close the session.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class SameHeaders(dict[str, str]):
    """Headers that do not change, and that many POSTs have: a transport may write the head of such
    a request once."""

    __slots__ = ("begun", "target")

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(headers)
        self.target: object = None
        """The target for which the transport wrote the head last."""
        self.begun = b""
        """The head for that target up to these headers, once the transport has checked them."""


POSTED: Final = SameHeaders({"Content-Type": "application/json", "Accept": "application/json, text/event-stream"})
"""The headers of every POSTed message, in either era."""


class Sendable(Protocol):
    """A call that is marked when its request leaves.

    `shown` are the headers with credentials that its request had, set if the server refuses it with an
    HTTP status. `runs_nothing`: as in `Outgoing`.
    """

    sent: bool
    runs_nothing: bool
    shown: Mapping[str, str]


@dataclass(slots=True)
class Outgoing:
    """One request to a server, in the terms of HTTP; the transport knows the address.

    Message channels take it too and treat it as one message.

    - `body`: only HTTP takes chunks.
    - `first_byte` bounds the wait for the head of the answer, `idle` the silence within its body.
      None waits without a bound.
    - `principal` is the caller that the request is made for, None for the principal of the session.
    - `call`: its `sent` is set right before the first byte is handed to the network. Until then the
      server cannot have acted.
    - `only_listens`: the request opens a stream and has no effect at the server, however often it
      is made.
    - `follows`: the request belongs to something that the server has begun, such as a call or a
      session. It answers, notifies or ends it. The circuit breaker does not refuse it.
    - `checks`: the request is a health check; its retries are not reported.
    - `runs_nothing`: the server runs nothing for the request, which may so be sent once more if its
      connection closes without an answer. The `call` may say so, too.
    """

    verb: str
    headers: Mapping[str, str]
    body: bytes | JsonChunks | None = None
    first_byte: timedelta | None = None
    idle: timedelta | None = None
    principal: Principal | None = None
    call: Sendable | None = None
    only_listens: bool = False
    follows: bool = False
    checks: bool = False
    runs_nothing: bool = False


class Messages(Protocol):
    """The messages of an answer, in order: an iterator, which need not be closed."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> bytes: ...

    @property
    def has_more(self) -> bool:
        """Whether the next message is there already: it arrived with the last one."""
        ...

    def offer_to(self, take: Callable[[Sequence[bytes]], int]) -> None:
        """Call `take` with messages that arrived together, in the present context. It must not raise.

        It returns how many of the first it has handled; only the others are iterated. It is called
        when they arrive, while the iterator waits for them, or when they are read. An implementation
        may ignore this, and have all messages iterated.
        """
        ...


class Incoming(Protocol):
    """A server's answer whose head has arrived; the body follows. `release` must be called."""

    status: int
    """The HTTP status, or one like it from a transport that is not HTTP."""
    session: str | None
    """The session id that the answer gives, if any."""
    streams: bool
    """Whether the body is an event stream."""
    retry_after: timedelta | None
    """The pause that the server asks for before another request; None if it does not."""
    placed: Callable[[str], None] | None
    """Called with the id of the newest whole event of a stream, whenever it changes, and only after all
    messages that arrived with that event were taken. Its reader sets it before it reads."""

    @property
    def last_event(self) -> str | None:
        """The id of the last event that arrived whole; None without one, or if it cannot be sent
        back."""
        ...

    @property
    def unfinished(self) -> int:
        """Number of bytes that have arrived of an event whose end has not."""
        ...

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that its reader has not taken, or messages."""
        ...

    @property
    def retry(self) -> timedelta | None:
        """The pause that the server asked for before the stream is reopened; None if it did not."""
        ...

    def document(self) -> bytes | Coroutine[Any, Any, bytes | None]:
        """Return the body of an answer that is no event stream, or what returns it when it has come:
        None if there is none.

        Raises UpstreamFailed as `messages` does, and so does what is awaited. It is called once, or
        `messages` is.
        """
        ...

    def messages(self) -> Messages:
        """The messages of the body: one for a JSON document, one per event for a stream. Needs no
        closing.

        Raises UpstreamFailed for a body that breaks off, is too large or is neither of the two.
        """
        ...

    def drop(self) -> None:
        """Drop the connection, whatever of the body has arrived: it must carry no other request.
        `release` must be called all the same."""
        ...

    def release(self, *, answered: bool = False) -> None:
        """Finish with the answer. Does not wait, and does nothing when called again.

        The connection is dropped unless the body was read to its end. With `answered`, all that
        matters was read: the connection is kept if the end of the body arrives soon.
        """
        ...


class Transport(Protocol):
    """The way of bytes to and from one server."""

    async def send(self, outgoing: Outgoing) -> Incoming:
        """Send a request and return the head of the answer. Marks `outgoing.call` as sent before
        any byte can arrive.

        Raises UpstreamFailed: unreachable if nothing can have arrived at the server, else closed,
        timeout and so on.
        """
        ...

    async def close(self) -> None:
        """Drop every connection."""
        ...
