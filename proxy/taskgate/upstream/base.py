"""The seams towards servers: an upstream is one configured server, a session one conversation with it.

And below the session the one small interface that moves bytes, so that the way they move can be replaced.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.versions import Era, Peer
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.base import ListedTool, Params, Server
from taskgate.protocol.envelope import Notification, Response
from taskgate.upstream.call_listener import CallListener, SessionCallListener
from taskgate.upstream.principal import Principal, PrincipalSource
from taskgate.upstream.resume_points import Resumes


class UpstreamSession(Protocol):
    """One session with one server, for one host session or one task.

    It opens when it is first needed and again, once, for the next call after the server ended it. Everything that
    fails is UpstreamFailed. To cancel an await of `relay` or `run` tells the server that nobody waits any more.
    """

    async def open(self) -> Server:
        """What the server said in the handshake, which is made if there is none yet. Single flight."""
        ...

    async def welcome(self) -> Server:
        """What a host is told of the server: as `open`, and marked stale where the server is known to be down."""
        ...

    async def relay(
        self,
        method: str,
        params: Params | None,
        *,
        listener: CallListener,
        tool: str | None = None,
        principal: Principal | None = None,
        log_level: str | None = None,
        repeated: Mapping[str, str] | None = None,
    ) -> Response:
        """The server's response to one request; what it says and asks of the call goes to `listener`.

        `method` and `params` are in the words of the legacy era, whatever the server's own is. `tool` is what a
        `tools/call` calls: bounds may differ. `principal` is whose request it is, None for whom the session speaks at
        all. `log_level` is the least severe log line that is wanted, where the host said so with its request: more may
        be heard. `repeated` is what headers of the request said of its arguments, by the rest of their names in lower
        case: a server of the modern era gets what it is not known to want, as it came (H-MOD-6). So with `run`.
        """
        ...

    async def run(
        self,
        tool: str,
        params: RawJson,
        *,
        within: timedelta,
        listener: CallListener,
        principal: Principal | None = None,
        log_level: str | None = None,
        repeated: Mapping[str, str] | None = None,
        resumes: Resumes | None = None,
    ) -> Response:
        """The server's response to a `tools/call`; reason timeout after `within`, if sooner than the call's own bounds.

        `params` hold no progress token: the server is always asked to tell how far it is. `resumes`: see Resumes.
        """
        ...

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        """What a response to `tools/call` means for a task. UpstreamFailed where it is none."""
        ...

    @property
    def era(self) -> Era:
        """How the server is spoken to, and so how its responses are written; the legacy era until it is known."""
        ...

    def tell(self, notification: Notification) -> None:
        """Pass a notification of the host on, in the background; dropped where no handshake stands."""
        ...

    async def tools(self) -> Mapping[str, ListedTool]:
        """The server's catalogue by tool name, all pages; read once and again after the server said it changed."""
        ...

    def listed(self, tool: str) -> ListedTool | None:
        """The tool as the server last listed it, to us or to the host; None where it did not.

        That it did not is no reason to read the catalogue.
        """
        ...

    def grants(self, filters: frozenset[str]) -> frozenset[str]:
        """Those of the filter members that the server tells of now; `filters` are of extensions that it declares."""
        ...

    async def close(self) -> None:
        """End the session at the server and forget it; waits no longer than a moment. A second close does nothing."""
        ...


class Vitals(NamedTuple):
    """How a server is thought to do: `circuit` is closed, open or half_open, `up` None where nobody knows."""

    up: bool | None
    circuit: str


class Upstream(Protocol):
    """One configured server."""

    name: str

    def open(self) -> None:
        """It is served from now on: begin to ask it whether it is well, where that is wanted, until it is closed."""
        ...

    def vitals(self) -> Vitals:
        """How it does, as far as is known now."""
        ...

    def session(
        self, listener: SessionCallListener, principal_source: PrincipalSource, host: Peer | None = None
    ) -> UpstreamSession:
        """A new session, not yet opened, for whom `speaks` tells.

        `listener` hears what belongs to no call. What `host` declared is declared to the server, and nothing without
        one.
        """
        ...

    async def close(self) -> None:
        """Let go of every connection."""
        ...


POSTED: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
"""The headers that go with every message, in either era."""


class Outgoing(NamedTuple):
    """One HTTP request to a server, without an address: a transport knows the one it goes to.

    `first_byte` bounds the wait for a head, `idle` the silence within a body; None waits. `principal` is whose request
    it is, where it is somebody's. `left` is told right before the first byte is handed to the network: until then
    nothing can have run. `only_listens` tells that it does nothing at the server, however often it is made, `follows`
    that it belongs to what the server has begun: it answers, tells or ends something. `checks` is of what only finds
    out whether the server is well: nobody is told how often it is tried. `placed` is told the id of the last event of
    the answer that came whole, whenever that is another one, and not before all that came with it was taken.
    """

    verb: str
    headers: Mapping[str, str]
    body: bytes | None = None
    first_byte: timedelta | None = None
    idle: timedelta | None = None
    principal: Principal | None = None
    left: Callable[[], None] | None = None
    only_listens: bool = False
    follows: bool = False
    checks: bool = False
    placed: Callable[[str], None] | None = None


class Incoming(Protocol):
    """A server's HTTP answer: its head has arrived, its body has not."""

    status: int
    session: str | None
    streams: bool
    """Whether the body is an event stream."""

    @property
    def last_event(self) -> str | None:
        """The id of the last event that came whole; None where none has one, or it cannot be sent back."""
        ...

    @property
    def unfinished(self) -> int:
        """How many bytes have come of an event of a stream whose end has not."""
        ...

    @property
    def retry(self) -> timedelta | None:
        """The pause that the server asked for before the stream is taken up again; None where it did not."""
        ...

    def messages(self) -> AsyncIterator[bytes]:
        """The messages of the body: one for a JSON document, one an event for a stream. Needs no closing.

        Raises UpstreamFailed for a body that breaks off, is too large or is neither.
        """
        ...

    async def release(self, *, answered: bool = False) -> None:
        """Be done with the answer; the connection is dropped unless the body was read to its end.

        Where all that matters was heard (`answered`), the end of the body has a moment to arrive. Does not wait.
        """
        ...


class Transport(Protocol):
    """Moves bytes to and from one server."""

    async def send(self, outgoing: Outgoing) -> Incoming:
        """The answer's head. Raises UpstreamFailed: unreachable if nothing can have arrived, else closed, timeout, …

        Tells `outgoing.left` before anything of it can arrive.
        """
        ...

    async def close(self) -> None:
        """Drop every connection."""
        ...
