"""The seams towards servers: an upstream is one configured server, a session one conversation with it.

And below the session the one small interface that moves bytes, so that the way they move can be replaced.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from taskgate.dialects.base import ListedTool, Params, Server
from taskgate.dialects.questions import Answer, Question
from taskgate.mcp.jsonrpc import Notification, RawJson, Response
from taskgate.mcp.versions import Era, Peer
from taskgate.tasks.events import CallFaulted, CallSucceeded
from taskgate.upstream.resting import Leave, NextRound


class ServerQuestion(Protocol):
    """A question of a server that waits for its answer. Nothing of it raises or blocks."""

    question: Question

    @property
    def is_open(self) -> bool:
        """Whether the server still waits: nobody has answered, and it was not withdrawn."""
        ...

    def answer(self, answer: Answer, speaker: "Speaker | None" = None) -> None:
        """Give the server its answer, in the background. The first counts; after it, or a withdrawal, it is dropped.

        `speaker` is who answered, None for whom the session speaks at all.
        """
        ...

    def refuse(self) -> None:
        """Answer for a host that gave no answer, as the server's era has it (L-INPUT-8); otherwise as `answer`."""
        ...

    def tell(self, notification: Notification) -> None:
        """Tell the server how far the host is; dropped where it did not ask to know, or does not wait any more."""
        ...

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        """Call `forget` once if the server gives the question up or cannot be answered any more; at once if so now.

        That is so when it says so, when the call it asked for has ended, and when its session has.
        """
        ...


class Between(NamedTuple):
    """What a call goes on with whose server asked, and holds nothing of it until the next round.

    `state` is what it wants back, as written. `asked` are the questions by its keys, as they were heard, if anybody was
    asked; `given` the answers so far, with more as they come.
    """

    state: RawJson | None
    asked: Mapping[str, tuple[Question, ServerQuestion | None]]
    given: Mapping[str, Answer]


class Hearer(Protocol):
    """Told of what a server says besides its answers. Neither may raise or block."""

    def notice(self, notification: Notification) -> None:
        """A notification; progress under the server's token."""
        ...

    def asked(self, question: ServerQuestion) -> None:
        """A question, which is from now on to be answered by somebody."""
        ...

    def refused(self, required: Mapping[str, Any]) -> None:
        """A question that the server was refused at once: the host did not declare `required`, as hosts declare it."""
        ...

    def clog(self) -> Awaitable[None] | None:
        """A wait until the server should be listened to again; None where it should be now, which is nearly always."""
        ...

    def keep(self, between: Between) -> Leave | None:
        """Keep what the next round of the call takes, whose questions were all heard; None where that is not done."""
        ...

    @property
    def passes_rounds(self) -> bool:
        """Whether an answer that is a round of questions goes to the host as it is; else each is heard as a question.

        Asked when such an answer is there, which servers of the stateless era alone give.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Somebody for whom the gateway speaks to a server, as far as they are known.

    `context` tells callers apart and names nobody. `subject`, `client` and `token` are None where nobody was asked for
    a token, or none is at hand; `scopes` and `good_until` are the token's. `is_known` is False for somebody of whom
    only the context is remembered.
    """

    context: str
    subject: str | None = None
    client: str | None = None
    token: str | None = field(default=None, repr=False)
    scopes: frozenset[str] = frozenset()
    good_until: datetime | None = None
    is_known: bool = True


Speaks = Callable[[], Speaker]
"""Tells for whom a session speaks: always the same context, with the token that they were last let in with."""


class UpstreamSession(Protocol):
    """One session with one server, for one host session or one task.

    It opens when it is first needed and again, once, for the next call after the server ended it. Everything that
    fails is UpstreamFailed. To cancel an await of `relay` or `run` tells the server that nobody waits any more.
    """

    async def open(self) -> Server:
        """What the server said in the handshake, which is made if there is none yet. Single flight."""
        ...

    async def relay(
        self,
        method: str,
        params: Params | None,
        *,
        hearer: Hearer,
        tool: str | None = None,
        speaker: Speaker | None = None,
        log_level: str | None = None,
        repeated: Mapping[str, str] | None = None,
    ) -> Response:
        """The server's response to one request; what it says and asks of the call goes to `hearer`.

        `method` and `params` are in the words of the initialize era, whatever the server's own is. `tool` is what a
        `tools/call` calls: bounds may differ. `speaker` is whose request it is, None for whom the session speaks at
        all. `log_level` is the least severe log line that is wanted, where the host said so with its request: more may
        be heard. `repeated` is what headers of the request said of its arguments, by the rest of their names in lower
        case: a server of the stateless era gets what it is not known to want, as it came (H-MOD-6). So with `run`.
        """
        ...

    async def run(
        self,
        tool: str,
        params: RawJson,
        *,
        within: timedelta,
        hearer: Hearer,
        speaker: Speaker | None = None,
        log_level: str | None = None,
        repeated: Mapping[str, str] | None = None,
        resumes: NextRound | None = None,
    ) -> Response:
        """The server's response to a `tools/call`; reason timeout after `within`, if sooner than the call's own bounds.

        `params` hold no progress token: the server is always asked to tell how far it is. `resumes`: see NextRound.
        """
        ...

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        """What a response to `tools/call` means for a task. UpstreamFailed where it is none."""
        ...

    @property
    def era(self) -> Era:
        """How the server is spoken to, and so how its responses are written; the initialize era until it is known."""
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

    def session(self, hearer: Hearer, speaks: Speaks, host: Peer | None = None) -> UpstreamSession:
        """A new session, not yet opened, for whom `speaks` tells.

        `hearer` hears what belongs to no call. What `host` declared is declared to the server, and nothing without one.
        """
        ...

    async def close(self) -> None:
        """Let go of every connection."""
        ...


POSTED: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
"""The headers that go with every message, in either era."""


class Outgoing(NamedTuple):
    """One HTTP request to a server, without an address: a transport knows the one it goes to.

    `first_byte` bounds the wait for a head, `idle` the silence within a body; None waits. `speaker` is whose request it
    is, where it is somebody's. `left` is told right before the first byte is handed to the network: until then nothing
    can have run. `only_listens` tells that it does nothing at the server, however often it is made, `follows` that it
    belongs to what the server has begun: it answers, tells or ends something. `checks` is of what only finds out
    whether the server is well: nobody is told how often it is tried.
    """

    verb: str
    headers: Mapping[str, str]
    body: bytes | None = None
    first_byte: timedelta | None = None
    idle: timedelta | None = None
    speaker: Speaker | None = None
    left: Callable[[], None] | None = None
    only_listens: bool = False
    follows: bool = False
    checks: bool = False


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
