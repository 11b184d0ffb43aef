"""The neutral vocabulary between the eras, and what a translator on either side promises.

`DownstreamDialect` turns messages into intents and records
into messages; `UpstreamDialect` writes what a server must be told and reads what it says. Both are pure: no clock, no
I/O, no state between two calls.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.listing import ListedTask
from taskgate.domain.policy import TaskSupport
from taskgate.domain.record import InputRequest, RequestId, TaskId, TaskRecord
from taskgate.domain.versions import NEWEST_LEGACY, Peer, Revision
from taskgate.jsontext.large import MessageText
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.catalogue import ListedTool, ToolPage
from taskgate.protocol.envelope import Message, Notification, Response
from taskgate.protocol.extensions import Extension, ExtensionPolicy
from taskgate.protocol.heard import CallAnswered, Heard, Noticed, ProgressTold, Questioned, TaskShown
from taskgate.protocol.intents import (
    AnswerPing,
    AwaitTask,
    CallTool,
    CancelCall,
    CancelTask,
    GetTask,
    Ignore,
    Intent,
    ListTasks,
    OpenSession,
    Relay,
)
from taskgate.protocol.native import NativeDialect
from taskgate.protocol.params import Params
from taskgate.protocol.questions import (
    Answer,
    AnswerInput,
    AnswerQuestion,
    Question,
    ReceivedQuestion,
    TellProgress,
    TellServer,
    Withdrawn,
)

__all__ = [
    "Answer",
    "AnswerInput",
    "AnswerPing",
    "AnswerQuestion",
    "AwaitTask",
    "CallAnswered",
    "CallTool",
    "CancelCall",
    "CancelTask",
    "DownstreamDialect",
    "Foreign",
    "GetTask",
    "Heard",
    "Ignore",
    "Intent",
    "ListTasks",
    "ListedTool",
    "Noticed",
    "OpenSession",
    "Params",
    "ProgressTold",
    "Question",
    "Questioned",
    "ReceivedQuestion",
    "Relay",
    "Server",
    "SupportOf",
    "TaskShown",
    "TellProgress",
    "TellServer",
    "ToolPage",
    "UpstreamDialect",
    "Withdrawn",
]
"""With the words that they speak in, so that their readers need one import."""


# --- the host's side ---------------------------------------------------------------------------------------------


MAX_WELCOME: Final = 1024 * 1024
"""Characters that a server may say of itself: they are kept as long as its session lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a server said in the handshake; the texts are as it wrote them.

    `info` is its serverInfo, None where it tells none that hosts could read. `rest` is an object of the members that
    no revision defines, and of its `_meta`; see `welcomes`. `is_stale` tells that the server has gone down since.
    """

    peer: Peer
    capabilities: RawJson
    instructions: RawJson | None
    info: RawJson | None = None
    rest: RawJson = "{}"
    is_stale: bool = False


class Foreign(NamedTuple):
    """That an answer comes from a server of another era than its host's: to what method, for what host's revision.

    `extension` is that of the method, None for one of the core.
    """

    method: str
    host: Revision
    extension: Extension | None = None


SupportOf = Callable[[str, Mapping[str, bool]], TaskSupport]
"""From a tool's name and its server's hints to what hosts are told."""


class DownstreamDialect(Protocol):
    """How hosts of one era speak and are spoken to. What it returns are whole JSON-RPC messages, but for `decode`."""

    def decode(self, message: Message, peer: Peer | None, *, offers_tasks: bool, extensions: ExtensionPolicy) -> Intent:
        """What a message asks. `peer` is the session's, None before there is one.

        Raises InvalidParams, UnknownMethod, SessionRequired, TaskNotFound (for an id that can be none of ours) or
        MalformedMessage (for a lone surrogate in a tool's name).
        """
        ...

    def welcome(
        self,
        intent: OpenSession,
        server: Server,
        *,
        offers_tasks: bool,
        extensions: ExtensionPolicy,
        info: RawJson | None = None,
    ) -> str:
        """The answer to `initialize`; `info` replaces the server's own serverInfo, None does not."""
        ...

    def pong(self, id: RequestId) -> str:
        """The answer to `ping`."""
        ...

    def answer(self, id: RequestId, response: Response, foreign: Foreign | None = None) -> str:
        """A server's response under the host's id, else to the byte; one of a server of another era made to fit."""
        ...

    def tools(
        self,
        id: RequestId,
        response: Response,
        support: SupportOf | None,
        shows: Callable[[str], bool] | None = None,
        foreign: Foreign | None = None,
    ) -> str:
        """A page of `tools/list` under the host's id, each tool telling whether it can be a task.

        `support` None is for a session without tasks: then no tool says anything of them. A tool that `shows` says no
        to is left out; None shows all.
        """
        ...

    def on_notification(self, notification: Notification, token: RequestId | None, task: TaskId | None = None) -> str:
        """A server's notification; progress under the host's own token, and what concerns a task with its id."""
        ...

    def progress(self, token: RequestId, done: float, message: str, task: TaskId | None = None) -> str:
        """Progress that the gateway tells by itself."""
        ...

    def question(self, id: str, question: Question) -> str:
        """A server's question, under our id."""
        ...

    def input_id(self, task: TaskId, key: str) -> str:
        """The id that a host is asked a task's input under; `decode` reads the task and the key from it again."""
        ...

    def input_of(self, id: str) -> tuple[TaskId, str] | None:
        """The task and the key that such an id is of; None for any other text."""
        ...

    def wants_task(self, params: RawJson) -> bool:
        """Whether the server asked the host to make a task of its own of a question with these parameters."""
        ...

    def settles(self, method: str, params: RawJson, answer: Answer) -> str | None:
        """The task of the host's own that its server has the last word of by the answer to that question, if any."""
        ...

    def input_request(self, record: TaskRecord, request: InputRequest) -> str:
        """A task's input request, under `input_id`."""
        ...

    def withdrawal(self, id: str, reason: str) -> str:
        """The notification that the answer to that question is not waited for any more."""
        ...

    def takes(self, peer: Peer, method: str, params: RawJson) -> bool:
        """Whether the host declared that it can be asked that; `params` is the text of an object, or empty."""
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

    def task_outcome(self, id: RequestId, record: TaskRecord) -> MessageText:
        """What the call itself would have returned; the record is terminal and has its bodies.

        Whatever the era of the server that it ran at: what does not exist in this one is left out.
        """
        ...

    def task_changed(self, record: TaskRecord) -> str:
        """The notification of a task's state."""
        ...


# --- the server's side ---------------------------------------------------------------------------------------------


class UpstreamDialect(Protocol):
    """How servers of one era are spoken to. Everything unreadable is UpstreamFailed with reason malformed."""

    @property
    def native(self) -> NativeDialect:
        """How those of them are spoken to, besides, that make tasks of calls themselves."""
        ...

    def handshake(self, id: RequestId, host: Peer | None, offered: Revision = NEWEST_LEGACY) -> str:
        """The opening request, which offers that revision.

        It declares what `host` did, as far as it crosses the gateway, and nothing without one.
        """
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

    def tracked(self, params: RawJson) -> Params:
        """The parameters of a call that have no progress token, opened for one."""
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

    def hear(self, message: bytes, host: Peer | None) -> Heard:
        """What a message means. What `host` did not declare is refused in its name (L-INPUT-6)."""
        ...

    def answer(self, id: RequestId, answer: Answer) -> str:
        """The response to what the server asked under `id`."""
        ...

    def no_answer(self, method: str) -> Answer:
        """What a server is told to whose question nobody gave an answer (L-INPUT-8)."""
        ...

    def request_contexts(self, response: Response, host: Peer | None) -> tuple[Question, ...]:
        """What `host` is to be asked before the refused request is sent again (10.3); none for any other response."""
        ...

    def agrees(self, answer: Answer) -> bool:
        """Whether the answer to such a question agrees to it."""
        ...

    def passes(self, notification: Notification, host: Peer | None) -> bool:
        """Whether a notification of `host` is for its server, by what it declared."""
        ...

    def pass_on(self, notification: Notification, token: RequestId | None = None) -> str:
        """A host's notification; progress under the server's own `token`."""
        ...

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        """What a response to `tools/call` means for a task."""
        ...
