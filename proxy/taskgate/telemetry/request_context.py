"""The account of one request: who asks what from where, and what came of it, for whoever tells operators of it.

One is opened where a request enters the house and filled in on its way. It goes along by itself (`current`), with
everything that the request sets off, so that an event recorded deep below is known to be of that request. What must not
live here: what is told of it. What holds: nothing decides by what stands here, and what many requests share, such as a
connection to a server, is begun outside of any (`nobody`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol

from taskgate.protocol.envelope import Message, Request
from taskgate.telemetry.tracing import Span


class Identity(Protocol):
    """What a token says of a caller; see auth.context.Identity."""

    @property
    def issuer(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def tenant(self) -> str | None: ...
    @property
    def claims(self) -> Mapping[str, Any]: ...


class Caller(Protocol):
    """Whoever asks; see auth.context.AuthContext."""

    @property
    def key(self) -> str: ...
    @property
    def identity(self) -> Identity | None: ...


class Client(NamedTuple):
    """What a host says of itself, as far as anybody is told of it: None for what it does not say, or not in words."""

    name: str | None
    version: str | None


def client_of(info: Mapping[str, Any]) -> Client:
    """What is told of a host that describes itself so: two words, since the whole may be large, and is kept."""
    name, version = info.get("name"), info.get("version")
    return Client(
        name[:_LONGEST] if isinstance(name, str) else None, version[:_LONGEST] if isinstance(version, str) else None
    )


class RequestContext:
    """One request. What is not known, or not yet, is None.

    `id` is ours, of letters, digits and hyphens, unlike any other of this process and of those before it. `agent` and
    `message` are as the host sent them. `client` is what the host said of itself. `error` is a JSON-RPC code or
    `tool_error`, `refusal` why the request was not let do what it asks. `task` is the task that the request made, if it
    made one. `parts` is how many messages came in it where it may be several, else 0; `result_bytes` the length of the
    result that a call of a tool was answered with. In `background` the request itself may be over: what goes on is the
    call of a task that it made.
    """

    __slots__ = (
        "address", "agent", "background", "caller", "client", "error", "id", "message", "mount", "parts", "path",
        "refusal", "result_bytes", "revision", "span", "status", "task", "verb",
    )  # fmt: skip

    def __init__(self, id: str, address: str, verb: str, path: str, agent: str | None = None) -> None:
        self.id = id
        self.address = address
        self.verb = verb
        self.path = path
        self.agent = agent
        self.status: int | None = None
        self.mount: str | None = None
        self.caller: Caller | None = None
        self.message: Message | None = None
        self.revision: str | None = None
        self.client: Client | None = None
        self.task: str | None = None
        self.error: str | None = None
        self.refusal: str | None = None
        self.span: Span | None = None
        self.parts = 0
        self.result_bytes: int | None = None
        self.background = False

    def part(self, message: Message | None) -> RequestContext:
        """A visit of its own for one of several messages that came with this one."""
        part = RequestContext(self.id, self.address, self.verb, self.path, self.agent)
        part.mount, part.caller, part.client, part.revision = self.mount, self.caller, self.client, self.revision
        part.message = message
        return part

    def lighten(self) -> None:
        """Let go of what the host sent, but for what the request is called by: it is over, and was told of.

        A timer that was cancelled keeps its context, and so the visit, until it would have rung.
        """
        request = self.message
        self.message = Request(request.id, request.method, {}, "", "") if isinstance(request, Request) else None

    def behind(self) -> RequestContext:
        """What goes on of it in the background, for the call of a task: without the message, which is not kept."""
        rest = self.part(None)
        rest.span, rest.background = self.span, True
        return rest


LARGE: Final = 4 * 1024
"""Letters of a message from which on a visit that is over is lightened."""
_LONGEST: Final = 512
"""Letters that are kept of a word of a host's."""
_CURRENT: Final[ContextVar[RequestContext | None]] = ContextVar("taskgate_visit", default=None)

current = _CURRENT.get
"""The visit that whatever runs now belongs to; None for what belongs to no request."""

enter = _CURRENT.set
"""Make a visit the current one, and return what `leave` needs."""

leave = _CURRENT.reset
"""The counterpart of `enter`."""


@contextmanager
def within(request_context: RequestContext | None) -> Iterator[None]:
    """A block that belongs to that visit, and so does every asyncio task that it begins."""
    token = _CURRENT.set(request_context)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def nobody() -> Iterator[None]:
    """A block that belongs to no visit: what is begun there serves many."""
    with within(None):
        yield
