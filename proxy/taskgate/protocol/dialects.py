"""The dialects: one protocol per era and side, which translate between text and values.

A downstream dialect speaks with hosts, an upstream dialect with servers. All are pure: no call
changes the result of a later one. A method that returns `str` or `MessageText` returns a whole
JSON-RPC message, unless said otherwise. Its `id` is the id of that message. `host` or `peer` is the
host of a session or request, None if there is none.

`protocol.legacy` and `protocol.modern` implement them; the composition root alone chooses. One
module, so that the two eras can be compared side by side.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.listing import ListedTask
from taskgate.domain.policy import TaskSupport
from taskgate.domain.record import InputRequest, RequestId, TaskId, TaskRecord
from taskgate.domain.versions import NEWEST_LEGACY, Era, Peer, Revision
from taskgate.jsontext.large import MessageText
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.discovery import CataloguePage, ServerDescription, ToolPage
from taskgate.protocol.extensions import Extension, ExtensionPolicy
from taskgate.protocol.host_requests import (
    CallTool,
    LegacyIntent,
    ModernIntent,
    OpenSession,
    Relay,
    RequestMeta,
    Retry,
    Subscription,
)
from taskgate.protocol.messages import Message, Notification, Params, Request, Response
from taskgate.protocol.server_messages import (
    Answer,
    EncodedRequest,
    LegacyServerMessage,
    ModernServerMessage,
    Question,
    RequestDraft,
    ServerRound,
    ServerSubscription,
    ServerTask,
)

SupportOf = Callable[[str, Mapping[str, bool]], TaskSupport]
"""Returns the task support that hosts see, by a tool's name and its server's hints."""


class EraCrossing(NamedTuple):
    """The facts that decide how a modern server's response is converted for a legacy host.

    `method` is that of the request, `host` the host's revision. `extension` is that of the method,
    None for a method of the core.
    """

    method: str
    host: Revision
    extension: Extension | None = None


class Round(NamedTuple):
    """A modern server's response that asks for more; `state` is what it wants back, None if
    nothing.
    """

    state: str | None


# --- legacy hosts -----------------------------------------------------------------------------------------------------


class LegacyDownstreamDialect(Protocol):
    """Messages from and to legacy hosts."""

    def decode(
        self, message: Message, peer: Peer | None, *, offers_tasks: bool, extensions: ExtensionPolicy
    ) -> LegacyIntent:
        """The intent of a message; `peer` is the host of its session, None without a session.

        `offers_tasks` says whether calls at this mount can become tasks. Raises SessionRequired for
        anything but `initialize` if `peer` is None. Raises InvalidParams, UnknownMethod,
        TaskNotFound (an id of a wrong form) or MalformedMessage (a lone surrogate in a tool's
        name).
        """
        ...

    def welcome(
        self,
        intent: OpenSession,
        server: ServerDescription,
        *,
        offers_tasks: bool,
        extensions: ExtensionPolicy,
        info: RawJson | None = None,
    ) -> str:
        """The answer to `initialize`; `info` replaces the server's serverInfo, None leaves it."""
        ...

    def pong(self, id: RequestId) -> str:
        """The answer to `ping`."""
        ...

    def answer(self, id: RequestId, response: Response, crossing: EraCrossing | None = None) -> str:
        """A server's response under the host's id.

        `crossing` is None for a response of a legacy server. With it, the response is of a modern
        server, and is converted.
        """
        ...

    def tools(
        self,
        id: RequestId,
        response: Response,
        support: SupportOf | None,
        shows: Callable[[str], bool] | None = None,
        crossing: EraCrossing | None = None,
    ) -> str:
        """A page of `tools/list` under the host's id, with the task support of each tool.

        Without `support`, for a session without tasks, no tool mentions them. Tools that `shows`
        rejects are left out; None shows all.
        """
        ...

    def notification(self, notification: Notification, token: RequestId | None, task: TaskId | None = None) -> str:
        """A server's notification with the host's progress token, and the id of its task if any."""
        ...

    def progress(self, token: RequestId, done: float, message: str, task: TaskId | None = None) -> str:
        """A progress notification of the gateway itself; `task` is the one it names, if any.

        An empty `message` is left out.
        """
        ...

    def question(self, id: str, question: Question) -> str:
        """The request that asks the host; the gateway's `id` replaces a progress token."""
        ...

    def input_id(self, task: TaskId, key: str) -> str:
        """The id for an input request of a task; `decode` reads task and key from it."""
        ...

    def input_of(self, id: str) -> tuple[TaskId, str] | None:
        """The task and key of such an id; None for any other text."""
        ...

    def wants_task(self, params: RawJson) -> bool:
        """Whether a question with these parameters asks the host to make a task of it."""
        ...

    def settled_task(self, method: str, params: RawJson, answer: Answer) -> str | None:
        """The id of the host's own task that needs no more questions after this answer; else None.

        The question is one of the server about such a task, such as `tasks/result`.
        """
        ...

    def input_request(self, record: TaskRecord, request: InputRequest) -> str:
        """An input request of a task, under its `input_id`."""
        ...

    def withdrawal(self, id: str, reason: str) -> str:
        """The notification that the question `id` needs no answer any more."""
        ...

    def can_ask(self, peer: Peer, method: str, params: RawJson) -> bool:
        """Whether the host declared support for that question; `params` is the text of an object,
        or empty.

        Raises MalformedMessage if it repeats a key.
        """
        ...

    def task_created(self, id: RequestId, record: TaskRecord, response: str | None) -> str:
        """The handle of a new task; `response` is a text for the model meanwhile, None for none."""
        ...

    def task_state(self, id: RequestId, record: TaskRecord) -> str:
        """The answer to `tasks/get`, and to a successful `tasks/cancel`."""
        ...

    def task_page(self, id: RequestId, tasks: Sequence[ListedTask], cursor: str | None) -> str:
        """The answer to `tasks/list`; `cursor` is of the next page, None on the last."""
        ...

    def task_outcome(self, id: RequestId, record: TaskRecord) -> MessageText:
        """The answer to `tasks/result`: the response that the call would have had without a task.

        The record must be terminal, and be loaded with its bodies. An outcome from a modern server
        is converted to this era. A cancelled task has the error `faults.CANCELLED`.
        """
        ...

    def task_status(self, record: TaskRecord) -> str:
        """The notification of a task's state."""
        ...


# --- legacy servers ---------------------------------------------------------------------------------------------------


class LegacyTaskDialect(Protocol):
    """Requests and responses about tasks that servers of 2025-11-25 make of calls.

    A call is sent with `with_task`; `read_created` reads its answer. If that is a task, the caller
    polls by `tasks/get` and `read_state`, and gets the outcome by `tasks/result` and
    `read_outcome`. Task ids are the server's own; hosts never see them. A malformed response raises
    UpstreamFailed.
    """

    def is_supported(self, server: Peer) -> bool:
        """Whether the server makes tasks of calls on request (L-TOOL-6)."""
        ...

    def with_task(self, params: Params, ttl: timedelta) -> Params:
        """The parameters of a call with a `task` member, which asks for a task of that ttl.

        The ttl is cut to what servers support. Parameters that are no object stay as they are.
        """
        ...

    def request(self, id: RequestId, method: str, task: str) -> str:
        """The request `method`, one of `tasks/*`, about that task."""
        ...

    def read_created(self, response: Response) -> ServerTask | None:
        """The task that a response announces; None for any other response, which is the call's
        own.
        """
        ...

    def read_state(self, task: str, response: Response) -> ServerTask | None:
        """The task in a response to `tasks/get`; None if the server does not know it.

        Raises UpstreamFailed (refused) for any other error, which says nothing about the task.
        """
        ...

    def read_outcome(self, task: ServerTask, response: Response) -> Response | None:
        """The response to the call itself, from the response to `tasks/result`.

        `task` is the state at the last poll. A tool result counts whatever that state is; anything
        else is the outcome only if the task has ended. None if it has not, as far as known: the
        caller polls, and calls this again.

        Raises UpstreamFailed: `closed` if the server cancelled the task, `malformed` for a task
        without a result, `call_lost` if it completed and its result is gone. For `refused` nothing
        is known about the outcome, and the caller may ask again.
        """
        ...


class LegacyUpstreamDialect(Protocol):
    """Messages to and from legacy servers. A malformed message raises UpstreamFailed."""

    @property
    def tasks(self) -> LegacyTaskDialect:
        """The dialect for tasks that servers make of calls."""
        ...

    def handshake(self, id: RequestId, host: Peer | None, offered: Revision = NEWEST_LEGACY) -> str:
        """`initialize` with that revision, and with the capabilities of `host` that cross the
        gateway.
        """
        ...

    def read_welcome(self, response: Response) -> ServerDescription:
        """The server's answer to `initialize`; UpstreamFailed if it refused or speaks no known
        revision.
        """
        ...

    def initialized(self) -> str:
        """The notification that ends the handshake."""
        ...

    def call(self, id: RequestId, method: str, params: Params | None) -> str:
        """A request whose id is its progress token too."""
        ...

    def with_token_slot(self, params: RawJson) -> Params:
        """The parameters of a call, split where a progress token belongs; `call` puts it there.

        Parameters that are no object or repeat a key stay whole, and the call gets no progress.
        """
        ...

    def list_tools(self, id: RequestId, cursor: RawJson | None) -> str:
        """The request for a page of `tools/list`."""
        ...

    def read_tools(self, response: Response) -> ToolPage:
        """The tools and next cursor of a page of `tools/list`; UpstreamFailed if the server
        refused.
        """
        ...

    def cancel(self, id: RequestId, reason: str) -> str:
        """The notification that the gateway no longer waits for a call."""
        ...

    def decode(self, message: bytes, host: Peer | None) -> LegacyServerMessage:
        """A message of the server; None for a notification that is ignored.

        A `ping`, and a question that `host` cannot be asked, give an ImmediateReply, which the
        caller sends to the server (L-INPUT-6). Raises UpstreamFailed (malformed) for no JSON-RPC.
        """
        ...

    def answer(self, id: RequestId, answer: Answer) -> str:
        """The response to the server's question `id`."""
        ...

    def default_answer(self, method: str) -> Answer:
        """The answer to a question that nothing answered (L-INPUT-8)."""
        ...

    def url_questions(self, response: Response, host: Peer | None) -> tuple[Question, ...]:
        """The questions to ask `host` if a server refused a request until URLs are visited.

        If all are accepted, the caller sends the request again. Empty if the response is for the
        host as it is.
        """
        ...

    def is_accepted(self, answer: Answer) -> bool:
        """Whether the answer to a question of `url_questions` accepts it."""
        ...

    def allows_notification(self, notification: Notification, host: Peer | None) -> bool:
        """Whether a notification of `host` is for its server, by the host's capabilities."""
        ...

    def notification(self, notification: Notification, token: RequestId | None = None) -> str:
        """A host's notification; progress under the server's `token`."""
        ...

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        """What a response to `tools/call` means for a task."""
        ...


# --- modern hosts -----------------------------------------------------------------------------------------------------


class ModernDownstreamDialect(Protocol):
    """Messages from and to modern hosts.

    `era` is the era of the server whose response is encoded. `info` is the serverInfo for the host;
    None leaves the server's own. A round is a response that asks questions; the host sends its
    request again, as a retry with the answers.
    """

    @property
    def info(self) -> RawJson:
        """The gateway's serverInfo, for results that it makes itself."""
        ...

    def decode(
        self, request: Request, meta: RequestMeta, *, offers_tasks: bool, extensions: ExtensionPolicy
    ) -> ModernIntent:
        """The intent of a request; `meta` is from `classify`, which has checked the request first.

        Raises InvalidParams, TaskNotFound (an id of a wrong form), UnknownMethod or
        MalformedMessage (invalid Unicode, or a duplicate key).
        """
        ...

    def discovery(
        self,
        id: RequestId,
        server: ServerDescription,
        *,
        offers_tasks: bool,
        extensions: ExtensionPolicy,
        info: RawJson | None = None,
    ) -> str:
        """The answer to `server/discover`."""
        ...

    def answer(
        self,
        id: RequestId,
        method: str,
        response: Response,
        era: Era,
        info: RawJson | None = None,
        extension: Extension | None = None,
    ) -> str:
        """A server's response to that method under the host's id; an incomplete result is an error.

        `extension` is that of the method, None for a method of the core.
        """
        ...

    def tools(
        self,
        id: RequestId,
        response: Response,
        era: Era,
        shows: Callable[[str], bool] | None = None,
        info: RawJson | None = None,
    ) -> str:
        """A page of `tools/list` under the host's id, without tools that `shows` rejects; None
        shows all.
        """
        ...

    def round_of(self, response: Response) -> Round | None:
        """The round in a response of a modern server, to be passed on by `passed_round`.

        None for any other response, and for a malformed round. Both go to `answer`, which turns a
        malformed round into an error.
        """
        ...

    def missing_capabilities(self, response: Response, host: Peer) -> Mapping[str, Any]:
        """The capabilities that a host lacks for the questions of a round; empty if it lacks
        none.
        """
        ...

    def passed_round(self, id: RequestId, response: Response, state: str | None, info: RawJson | None = None) -> str:
        """A server's round under the host's id, with `state` in place of the server's; None for no
        state.
        """
        ...

    def input_required(self, id: RequestId, questions: Mapping[str, Question], state: str) -> str:
        """A round of the gateway for a held call: one that waits for the retry of its host.

        The host answers by the keys of `questions`, and sends `state` back.
        """
        ...

    def is_valid_answer(self, method: str, answer: Answer) -> bool:
        """Whether an answer has the members that a question of that method needs (M-MRTR-5)."""
        ...

    def digest(self, request: CallTool | Relay) -> str:
        """A digest of the method and parameters of a request, without `_meta` and members of a
        retry.

        It ignores order and spacing, so two sendings of the same request have the same digest.
        """
        ...

    def with_answers(self, retry: Retry, state: str | None) -> CallTool | Relay:
        """The request of a retry for a modern server, with the host's answers as written.

        `state` is the server's own, None without one.
        """
        ...

    def notification(self, notification: Notification, token: RequestId | None, id: RequestId | None = None) -> str:
        """A server's notification on the stream of a request, with the host's progress token.

        A notification that names its stream, as in some extensions, gets `id`, the host's request
        id.
        """
        ...

    def progress(self, token: RequestId, done: float, message: str) -> str:
        """Progress from the gateway itself."""
        ...

    def wants_log(self, notification: Notification, level: str | None) -> bool:
        """Whether a request with this log level wants that log message (M-LOG-1)."""
        ...

    # Tasks.

    def task_created(self, id: RequestId, record: TaskRecord) -> str:
        """The handle of a new task."""
        ...

    def task_state(self, id: RequestId, record: TaskRecord) -> MessageText:
        """The answer to `tasks/get`; a terminal record must be loaded with its bodies."""
        ...

    def acknowledgement(self, id: RequestId) -> str:
        """The answer to `tasks/update` and `tasks/cancel`, whatever their effect."""
        ...

    def open_inputs(self, record: TaskRecord) -> Mapping[str, InputRequest]:
        """The input requests that a modern host sees and may answer, by key."""
        ...

    # Streams of `subscriptions/listen`.

    def subscription_granted(self, id: RequestId, granted: Subscription) -> str:
        """The first message: the granted part of the subscription (M-NOTIF-2)."""
        ...

    def stream_notification(self, id: RequestId, notification: Notification) -> str:
        """A server's notification, on the stream of the listen request `id`."""
        ...

    def task_notification(self, id: RequestId, record: TaskRecord) -> MessageText:
        """The content of `tasks/get` as a notification (M-NOTIF-4).

        A terminal record must be loaded with its bodies.
        """
        ...

    def subscription_ended(self, id: RequestId) -> str:
        """The result that ends the stream (M-NOTIF-6)."""
        ...


# --- modern servers ---------------------------------------------------------------------------------------------------


class ModernUpstreamDialect(Protocol):
    """Messages to and from modern servers. A malformed message raises UpstreamFailed.

    `host` is the host behind a request, None if there is no host to ask. A modern server has no
    requests of its own: its response is a round of questions, and the request is sent again with
    the answers.
    """

    def discover(self, id: int, host: Peer | None) -> EncodedRequest:
        """`server/discover`."""
        ...

    def read_discovery(self, response: Response) -> ServerDescription | None:
        """The server's description, from the response to `server/discover`.

        None if the server supports no known modern revision, and for an error that a legacy
        server could send too. Raises UpstreamFailed (refused) for an error that only this era has.
        """
        ...

    def request(self, id: int, draft: RequestDraft, host: Peer | None) -> EncodedRequest:
        """A request under that id, which is its progress token too if progress is wanted."""
        ...

    def listen(self, id: int, wants: ServerSubscription, host: Peer | None) -> EncodedRequest:
        """`subscriptions/listen`: the request for a stream of these notifications."""
        ...

    def list_tools(self, id: int, cursor: RawJson | None, host: Peer | None) -> EncodedRequest:
        """The request for a page of `tools/list`."""
        ...

    def read_tools(self, response: Response) -> CataloguePage:
        """A page of `tools/list`; UpstreamFailed if the server refused."""
        ...

    def without_unsound_tools(self, response: Response) -> Response:
        """An answer to `tools/list` without the tools whose header annotations are unsound."""
        ...

    def decode(self, message: bytes, host: Peer | None) -> ModernServerMessage:
        """A message of the server; None for a notification that is ignored.

        A notification loses the keys of `_meta` that do not cross. A request raises UpstreamFailed
        (malformed): no server of this era may send one, and no answer could be sent (H-MOD-8).
        """
        ...

    def read_unaddressed_error(self, id: int, message: bytes) -> Response | None:
        """An error without an id as the response to `id`; the caller knows that it answers that
        request.

        Servers that refuse a request unread do not know its id. None for any other message.
        """
        ...

    def round_of(self, method: str, id: int, response: Response) -> ServerRound | None:
        """The round in a response to request `id`; None for a complete result or an error.

        A missing `resultType` means complete. Malformed are an unknown one (V-META-7), a task that
        was not asked for, a round for a method without rounds, and an empty round (M-MRTR-1).
        """
        ...

    def server_declares_tasks(self, server: ServerDescription) -> bool:
        """Whether the server may make tasks of calls, for requests that follow tasks."""
        ...

    def host_declares_tasks(self, host: Peer | None) -> bool:
        """Whether the host declared the tasks extension."""
        ...

    def needs_tasks(self, response: Response) -> bool:
        """Whether the server refused a call because it runs it only as a task."""
        ...

    def read_created_task(self, method: str, response: Response) -> ServerTask | None:
        """The task in a response to a request that follows tasks; None for any other response.

        A task that cannot be followed is malformed. Responses to other requests go to `round_of`.
        """
        ...

    def get_task(self, id: int, task: str, host: Peer | None) -> EncodedRequest:
        """The request for the state of a server's task."""
        ...

    def read_task(self, call: int, task: str, response: Response) -> ServerTask | None:
        """The task in the response to `get_task`; None for an error.

        If it has ended, its `response` is that of the call, under the call's id `call`.
        """
        ...

    def update_task(self, id: int, task: str, answers: RawJson, host: Peer | None) -> EncodedRequest:
        """The request with answers for a server's task, from `input_responses`."""
        ...

    def cancel_task(self, id: int, task: str, host: Peer | None) -> EncodedRequest:
        """The request that cancels a server's task."""
        ...

    def can_ask(self, host: Peer | None, question: Question) -> bool:
        """Whether the host can be asked that, by the capabilities that the server saw."""
        ...

    def input_responses(self, answers: Mapping[str, tuple[Question, Answer]]) -> RawJson | None:
        """The `inputResponses` by the server's keys, for the next request or `update_task`.

        None if an answer has no form in this era, as an error has none.
        """
        ...

    def default_answer(self, question: Question) -> Answer:
        """The answer to a question without a host's answer.

        Only that of an elicitation has a form in this era; `input_responses` returns None for
        others.
        """
        ...

    def unanswered_error(self, id: int) -> Response:
        """The gateway's error response to the call `id`, whose questions cannot be answered."""
        ...

    def error(self, id: int, code: int, text: str) -> Response:
        """An error response that the gateway makes itself."""
        ...

    def empty_result(self, id: int) -> Response:
        """An empty result that the gateway makes itself."""
        ...

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        """What a response to `tools/call` means for a task."""
        ...
