"""The neutral vocabulary between the eras, and what a translator on either side promises.

An intent is what a message of a host asks of the gateway. `DownstreamDialect` turns messages into intents and records
into messages; `UpstreamDialect` writes what a server must be told and reads what it says. Both are pure: no clock, no
I/O, no state between two calls.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol

from taskgate.mcp.jsonrpc import Message, Notification, RawJson, RequestId, Response
from taskgate.mcp.versions import Peer
from taskgate.tasks.events import CallFaulted, CallSucceeded
from taskgate.tasks.listing import ListedTask, TaskFilter, TaskOrder
from taskgate.tasks.policy import TaskSupport
from taskgate.tasks.record import TaskId, TaskRecord


class Params(NamedTuple):
    """Parameters on their way to a server: the host's text, open at the place of its progress token if it has one."""

    head: RawJson
    tail: RawJson | None = None

    def with_token(self, token: int) -> RawJson:
        """The text with our token in the place of the host's; as it is where there is none."""
        return self.head if self.tail is None else f"{self.head}{token}{self.tail}"


# --- intents -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """`initialize`; `peer.revision` is the one the gateway answers with."""

    id: RequestId
    peer: Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPing:
    """`ping`."""

    id: RequestId


class CallTool(NamedTuple):
    """`tools/call`. `params` is for a server now.

    `wants_task` is the host's wish, already false where its session has no tasks; `ttl` None leaves it to us. `kept` is
    `params` for a record, without any progress token; None where no task is wanted.
    """

    id: RequestId
    tool: str
    params: Params
    kept: RawJson | None
    progress_token: RequestId | None
    wants_task: bool
    ttl: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTask:
    """`tasks/get`."""

    id: RequestId
    task: TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitTask:
    """`tasks/result`: the outcome, once there is one."""

    id: RequestId
    task: TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTasks:
    """`tasks/list`: the page after `cursor`, the first where there is none, of what `where` lets through."""

    id: RequestId
    where: TaskFilter
    order: TaskOrder
    cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTask:
    """`tasks/cancel`."""

    id: RequestId
    task: TaskId


class Relay(NamedTuple):
    """Any other request that the server answers."""

    id: RequestId
    method: str
    params: Params | None
    progress_token: RequestId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelCall:
    """`notifications/cancelled`: the host no longer waits for one of its plain requests."""

    request: RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignore:
    """A message that needs no action: an accepted notification, or an answer to nothing that was asked."""


Intent = (
    OpenSession | AnswerPing | CallTool | GetTask | AwaitTask | ListTasks | CancelTask | Relay | CancelCall | Ignore
)


# --- the host's side ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a server said in the handshake; the texts are as it wrote them."""

    peer: Peer
    capabilities: RawJson
    instructions: RawJson | None


SupportOf = Callable[[str, TaskSupport | None], TaskSupport]
"""From a tool's name and its server's own word to what hosts are told."""


class DownstreamDialect(Protocol):
    """How hosts of one era speak and are spoken to. What it returns are whole JSON-RPC messages, but for `decode`."""

    def decode(self, message: Message, peer: Peer | None, *, offers_tasks: bool) -> Intent:
        """What a message asks. `peer` is the session's, None before there is one.

        Raises InvalidParams, UnknownMethod, SessionRequired, TaskNotFound (for an id that can be none of ours) or
        MalformedMessage (for a lone surrogate in a tool's name).
        """
        ...

    def welcome(self, intent: OpenSession, server: Server, *, offers_tasks: bool) -> str:
        """The answer to `initialize`."""
        ...

    def pong(self, id: RequestId) -> str:
        """The answer to `ping`."""
        ...

    def answer(self, id: RequestId, response: Response) -> str:
        """A server's response under the host's id, else to the byte."""
        ...

    def tools(
        self, id: RequestId, response: Response, support: SupportOf | None, shows: Callable[[str], bool] | None = None
    ) -> str:
        """A page of `tools/list` under the host's id, each tool telling whether it can be a task.

        `support` None is for a session without tasks: then no tool says anything of them. A tool that `shows` says no
        to is left out; None shows all.
        """
        ...

    def notice(self, notification: Notification, token: RequestId | None) -> str:
        """A server's notification; progress under the host's own token."""
        ...

    def task_created(self, id: RequestId, record: TaskRecord, response: str | None) -> str:
        """The handle of a new task; `response` is what a model may be told for now, None where it is told nothing."""
        ...

    def task_state(self, id: RequestId, record: TaskRecord) -> str:
        """The answer to `tasks/get`, and to a `tasks/cancel` that did it."""
        ...

    def task_page(self, id: RequestId, tasks: Sequence[ListedTask], cursor: str | None) -> str:
        """The answer to `tasks/list`; `cursor` is of the next page, None where there is none."""
        ...

    def task_outcome(self, id: RequestId, record: TaskRecord) -> str:
        """What the call itself would have returned; the record is terminal and has its bodies."""
        ...

    def task_changed(self, record: TaskRecord) -> str:
        """The notification of a task's state."""
        ...


# --- the server's side ---------------------------------------------------------------------------------------------


class Answered(NamedTuple):
    """The response to the call it names by our id."""

    response: Response


class ProgressTold(NamedTuple):
    """Progress of the call that was given `token`."""

    token: int
    notification: Notification


class Noticed(NamedTuple):
    """A notification about the session, to be passed on."""

    notification: Notification


@dataclass(frozen=True, slots=True)
class Questioned:
    """A request of the server, with the message that answers it at once."""

    reply: str


Heard = Answered | ProgressTold | Noticed | Questioned | None
"""What a message of a server means; None for what is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPage:
    """One page of a server's catalogue: each tool's own task support, and the cursor of the next page."""

    tools: Mapping[str, TaskSupport | None]
    cursor: RawJson | None


class UpstreamDialect(Protocol):
    """How servers of one era are spoken to. Everything unreadable is UpstreamFailed with reason malformed."""

    def handshake(self, id: RequestId) -> str:
        """The opening request."""
        ...

    def read_welcome(self, response: Response) -> Server:
        """What the server answered to it; UpstreamFailed if it refused or speaks no revision we know."""
        ...

    def initialized(self) -> str:
        """The notification that ends the handshake."""
        ...

    def call(self, id: RequestId, method: str, params: Params | None) -> str:
        """A request under our id, which is its progress token too."""
        ...

    def list_tools(self, id: RequestId, cursor: RawJson | None) -> str:
        """The request for a page of the catalogue."""
        ...

    def read_tools(self, response: Response) -> ToolPage:
        """A page of the catalogue; UpstreamFailed if the server refused."""
        ...

    def cancel(self, id: RequestId, reason: str) -> str:
        """The notification that nobody waits for a call any more."""
        ...

    def hear(self, message: bytes) -> Heard:
        """What a message means."""
        ...

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        """What a response to `tools/call` means for a task."""
        ...
