"""The context of one request, `RequestContext`, as metrics, the audit log, spans and log lines show it.

The listener makes one where a request enters, and code that learns something about the request sets
a field. A context variable (`current`) passes it on to everything that the request starts, so that
an event emitted deep below belongs to its request. It is for reports only: no decision reads it.
Work for many requests, such as a connection to a server, starts outside of any (`no_request`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

from taskgate.domain.record import CallerNames
from taskgate.domain.versions import Client
from taskgate.protocol.messages import Message, Request
from taskgate.telemetry.tracing import Span


class CallerIdentity(Protocol):
    """The claims of a token that reports show; implemented by `auth.context.Identity`."""

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
    @property
    def method(self) -> str: ...


class Caller(Protocol):
    """The caller of a request; implemented by `auth.context.AuthContext`."""

    @property
    def key(self) -> str: ...
    @property
    def identity(self) -> CallerIdentity | None: ...
    @property
    def names(self) -> CallerNames | None: ...


@dataclass(slots=True, eq=False, repr=False)
class RequestContext:
    """The context of one request. A field is None while its value is unknown.

    It lives from the arrival of the request until its last event is reported. That event is the
    context itself: metrics and the audit log read it whole. A task's call has a copy, which lives
    until the call ends. Each message of a batch has one, too.

    - `id`: made by the gateway of letters, digits and hyphens; unique over restarts
    - `address`: where the request came from; `verb`, `path`: its HTTP method and path
    - `agent`, `message`: as the host sent them; `client`: how the host introduced itself
    - `mount`: the name of the server that it is for; `caller`: who sent it, as authenticated
    - `revision`: the revision of the protocol that its host speaks
    - `status`: the HTTP status; None if no answer was sent, because the host had disconnected or the
      listener was closed; `span`: the span of the request, if it is traced
    - `route`: `mcp` for a mount, `prm` for a metadata document, else `other`; None for a message of
      a batch, which has no answer of HTTP
    - `seconds`: from the head to the end of the answer
    - `method`: that of the JSON-RPC request, once it is answered; `rpc_seconds`: how long that took
    - `rpc_revision`: that of its session, or the one that a refused message named
    - `error`: a JSON-RPC code, `tool_error`, or `cancelled`: the host cancelled the request or
      disconnected, or the gateway aborted it; `refusal`: why it was refused
    - `task`: the id of the task that the request created, or that it gave a tool of the gateway as its handle
    - `names_handle`: whether it calls a tool of the gateway, so that its arguments are no payload but a handle
    - `parts`: the number of messages of a batch, else 0
    - `result_bytes`: the length of the result of a tool call
    - `background`: whether this is the context of a task's call, whose request may have ended
    """

    id: str
    address: str
    verb: str
    path: str
    agent: str | None = None
    status: int | None = None
    mount: str | None = None
    caller: Caller | None = None
    message: Message | None = None
    revision: str | None = None
    client: Client | None = None
    task: str | None = None
    error: str | None = None
    refusal: str | None = None
    span: Span | None = None
    route: str | None = None
    seconds: float | None = None
    method: str | None = None
    rpc_seconds: float = 0.0
    rpc_revision: str | None = None
    parts: int = 0
    result_bytes: int | None = None
    background: bool = False
    names_handle: bool = False

    def for_message(self, message: Message | None) -> RequestContext:
        """A copy for one of the messages of this request, without what belongs to another message."""
        context = RequestContext(self.id, self.address, self.verb, self.path, self.agent)
        context.mount, context.caller, context.client = self.mount, self.caller, self.client
        context.revision, context.message = self.revision, message
        return context

    def for_background(self) -> RequestContext:
        """A copy for the call of a task, which outlives the request; without the message."""
        context = self.for_message(None)
        context.span, context.background = self.span, True
        return context

    def snapshot(self) -> RequestContext:
        """A copy for an event that happens now, while the request goes on.

        Not for a task's call: its context is complete from its start.
        """
        copy = RequestContext(self.id, self.address, self.verb, self.path, self.agent)
        copy.mount, copy.caller, copy.message, copy.client = self.mount, self.caller, self.message, self.client
        copy.names_handle = self.names_handle
        copy.revision, copy.task, copy.refusal, copy.span = self.revision, self.task, self.refusal, self.span
        return copy

    def discard_payload(self) -> None:
        """Drop the message but for its id and method; the request has ended and was reported.

        A cancelled timer keeps its context variables, and so this context, until it would have
        fired.
        """
        request = self.message
        self.message = Request(request.id, request.method, {}, "", "") if isinstance(request, Request) else None


LARGE_MESSAGE: Final = 4 * 1024
"""Characters of a message above which it is discarded at the end of its request."""
_CURRENT: Final[ContextVar[RequestContext | None]] = ContextVar("taskgate_request_context", default=None)

current = _CURRENT.get
"""The context that the running code belongs to; None if it belongs to no request."""

attach = _CURRENT.set
"""Make a context the current one; returns the token that `detach` needs."""

detach = _CURRENT.reset
"""Restore the context from before `attach`."""


@contextmanager
def in_request(request_context: RequestContext | None) -> Iterator[None]:
    """A block in which that context is current, also for each asyncio task that starts in it."""
    token = _CURRENT.set(request_context)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def no_request() -> Iterator[None]:
    """A block outside of any request, for work that serves many."""
    with in_request(None):
        yield
