"""Messages of servers as values: answers, progress, questions, tasks, and what a call's outcome is.

The upstream dialects make them from messages, or messages of them; `upstream` and the gateway
handle them. A question is a request of a server to its host. It crosses the gateway with another id
on each side: the server's, and one of the gateway.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeGuard

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.record import FaultReason, RequestId, TaskStatus
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import Member, RawJson, decode, elements, members, read_object
from taskgate.protocol.faults import no_message, protocol_violation
from taskgate.protocol.jsonrpc import UsualProgress, error_text, notification_text, parse
from taskgate.protocol.messages import Message, Notification, Params, Response, value_of
from taskgate.protocol.vocabulary import ELICITATION_CREATE, NOTE_PROGRESS

MAX_SERVER_DEPTH: Final = 256
"""Nesting depth of a server's message, and of each outcome read from one: far above any real one,
and safe for the parser.
"""


def parse_message(message: bytes) -> Message:
    """A message of a server, in any form; an answer has the id that the gateway sent (`sent_id`).

    Raises NoMessage for no JSON-RPC.
    """
    try:
        parsed = parse(message, max_depth=MAX_SERVER_DEPTH)
    except (UnparsableMessage, MalformedMessage):
        raise no_message() from None
    if type(parsed) is Response and type(parsed.id) is str:
        return parsed._replace(id=sent_id(parsed.id))
    return parsed


def sent_id(written: RequestId) -> RequestId:
    """The id or progress token that a server sends back, as the gateway sent it: a number.

    Some servers write its digits as a text. Any other text stays, and belongs to nothing.
    """
    return int(written) if type(written) is str and _SENT_IDS(written) else written


_SENT_IDS: Final = re.compile("[1-9][0-9]{0,9}").fullmatch


Answer = RawJson
"""The outcome of a question: an object with `result` or `error`, either as its sender wrote it."""


class Question(NamedTuple):
    """A request of a server to a host; `params` is split at the server's progress token, if any."""

    method: str
    params: Params | None


def is_declined(method: str, answer: Answer) -> bool:
    """Whether the answer to a question of that method is an error, or declines or cancels an
    elicitation.
    """
    if answer.startswith('{"error":'):
        return True
    if method != ELICITATION_CREATE:
        return False
    result = members(answer)["result"].value
    return isinstance(result, dict) and result.get("action") in ("decline", "cancel")


# --- tasks of servers -------------------------------------------------------------------------------------------------

_NO_QUESTIONS: Final[Mapping[str, Question]] = MappingProxyType({})


class ServerTask(NamedTuple):
    """A task that a server made of a call, as it showed it last; hosts never see its `id`.

    `message` is its status message, and `updated` the time of its last change as written; both are
    None if the server sends none. `interval` is the poll interval in seconds. `questions` are all
    open ones, by the server's keys. `response` is the response to the call itself. It is None for a
    task that is not over or was cancelled, and for one that was only announced.
    """

    id: str
    status: TaskStatus
    message: str | None = None
    updated: str | None = None
    interval: float | None = None
    questions: Mapping[str, Question] = _NO_QUESTIONS
    response: Response | None = None


MAX_SERVER_TASK_ID: Final = 4096
"""Longest task id in bytes: it is sent with each poll, and stored with the record."""
TASK_MEMBERS: Final = ("taskId", "status", "statusMessage", "lastUpdatedAt")
"""The members of a task that both eras have."""


def read_server_task(task: Mapping[str, Any], interval: Any, *, is_new: bool = False) -> ServerTask:
    """The task with the values of `TASK_MEMBERS`; `interval` is its poll interval in milliseconds.

    An interval that is no positive number is ignored. Raises UpstreamFailed (malformed) for an
    invalid id or status. If the task `is_new`, an unknown status counts as working, because only a
    task that is known can be cancelled. The first poll refuses the status then.
    """
    id_, status = task.get("taskId"), task.get("status")
    if not is_server_task_id(id_):
        raise protocol_violation("its task has no valid taskId")
    if not isinstance(status, str) or status not in _STATES:
        if not is_new:
            raise protocol_violation("its task has an unknown status")
        status = TaskStatus.WORKING
    message, updated = task.get("statusMessage"), task.get("lastUpdatedAt")
    has_interval = isinstance(interval, int | float) and not isinstance(interval, bool) and 0 < interval < 2**53
    return ServerTask(
        id=id_,
        status=TaskStatus(status),
        message=status_text(message) if isinstance(message, str) and message else None,
        updated=updated if isinstance(updated, str) else None,
        interval=interval / 1000 if has_interval else None,
    )


def is_server_task_id(value: object) -> TypeGuard[str]:
    """Whether the value can be the id of a server's task."""
    try:
        return isinstance(value, str) and 0 < len(value.encode()) <= MAX_SERVER_TASK_ID
    except UnicodeEncodeError:
        return False


_STATES: Final = frozenset(TaskStatus)


# --- messages ---------------------------------------------------------------------------------------------------------


class CallResponse(NamedTuple):
    """The response to a call, which its id names."""

    response: Response


class CallProgress(NamedTuple):
    """Progress of the call with the progress token `token`."""

    token: int
    notification: Notification


class SessionNotification(NamedTuple):
    """A notification about the session, for the host."""

    notification: Notification


class TaskStatusNotification(NamedTuple):
    """A notification of a legacy server that shows the state of its task."""

    task: ServerTask


class TaskNotification(NamedTuple):
    """A notification of a modern server that its task changed: a reason to poll it."""

    id: str


class ReceivedQuestion(NamedTuple):
    """A question that the host may be asked; `id` and `progress_token` are the server's.

    `task` is the server's id of the task that it asks for, if it names one.
    """

    id: RequestId
    question: Question
    progress_token: RequestId | None
    task: str | None = None


class WithdrawnQuestion(NamedTuple):
    """The server no longer waits for the answer to its question `id`."""

    id: RequestId


@dataclass(frozen=True, slots=True)
class ImmediateReply:
    """The reply to a request of a server that goes to no host; the caller sends it at once.

    `required` are the capabilities without which the host cannot be asked. It is None for `ping`,
    for malformed parameters, and if no capability would help.
    """

    reply: str
    required: Mapping[str, Any] | None = None


class SubscriptionGrant(NamedTuple):
    """The first message on a stream of `subscriptions/listen`: the granted resources and tasks.

    `filters` are the granted flags: list changes, and members of extensions.
    """

    uris: frozenset[str]
    tasks: frozenset[str] = frozenset()
    filters: frozenset[str] = frozenset()


LegacyServerMessage = (
    CallResponse
    | CallProgress
    | SessionNotification
    | TaskStatusNotification
    | ReceivedQuestion
    | WithdrawnQuestion
    | ImmediateReply
    | None
)
"""A message of a legacy server; None for one that is ignored."""

ModernServerMessage = CallResponse | CallProgress | SessionNotification | SubscriptionGrant | TaskNotification | None
"""A message of a modern server; None for one that is ignored."""


# --- requests to modern servers ---------------------------------------------------------------------------------------


class RequestDraft(NamedTuple):
    """A request to a modern server before it has an id, with parameters in legacy form.

    `wants_progress` asks for progress though the parameters have no token. `log_level` is the least
    severe log level wanted, None for no log. `header_paths` are the arguments that headers repeat,
    as `headers.read_header_paths` gives them. `host_headers` are the `Mcp-Param-*` values of the
    host, None without any. `answers` are the `inputResponses` to send. `state` is the state for the
    server, as it wrote it; None in the first round. `follows_tasks` tells the server that the
    gateway follows its tasks to their end.
    """

    method: str
    params: Params | None = None
    wants_progress: bool = False
    log_level: str | None = None
    header_paths: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    host_headers: Mapping[str, str] | None = None
    answers: RawJson | None = None
    state: RawJson | None = None
    follows_tasks: bool = False


class EncodedRequest(NamedTuple):
    """A request ready to send: its text, and the headers that repeat parts of it (H-MOD-1)."""

    message: str
    headers: Mapping[str, str]


class ServerRound(NamedTuple):
    """A modern server's response that asks questions instead of giving a result.

    The caller sends the request again with the answers by the same keys, and with `state` as the
    server wrote it. There are questions or a state, or both.
    """

    questions: Mapping[str, Question]
    state: RawJson | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSubscription:
    """Events that a session subscribes to at a modern server; `tasks` are the server's ids.

    `filters` are the members of allowed extensions.
    """

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    uris: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to subscribe to."""
        return self == _EMPTY


_EMPTY: Final = ServerSubscription()


# --- progress ---------------------------------------------------------------------------------------------------------

MAX_PROGRESS_TEXT: Final = 500
"""Largest part of a status message that comes from a server's progress, in characters."""

TEXT_STEP: Final = 1e-6
"""Limit of the progress added for messages without a number: the protocol wants a number that
grows.
"""


class TextProgress(Notification):
    """A progress notification that the gateway made of a server's status message, without a number
    of the server. `text_progress` makes it.
    """

    __slots__ = ()


class Progress(NamedTuple):
    """The content of a progress notification; `total` and `message` are None if missing."""

    done: float
    total: float | None
    message: str | None

    @property
    def status_message(self) -> str:
        """The progress for people: `3/10: fetching`; the message alone for text progress."""
        if self.message and self.total is None and 0 < self.done < TEXT_STEP:
            return self.message
        place = _number(self.done) if self.total is None else f"{_number(self.done)}/{_number(self.total)}"
        return place if not self.message else f"{place}: {self.message}"


def progress_done(notification: Notification) -> float | None:
    """The progress number of a notification; None if it cannot be compared with another."""
    if type(notification) is UsualProgress:
        return notification.done
    member = notification.params.get("progress")
    if member is None:
        return None
    done: Any = member.value
    # The first checks cover nearly all values.
    return done if type(done) is float or (type(done) is int and -_EXACT < done < _EXACT) or _is_number(done) else None


def read_progress(notification: Notification) -> Progress | None:
    """The progress of a notification; None if it cannot be compared with another."""
    done = progress_done(notification)
    if done is None:
        return None
    params = notification.params
    total, message = value_of(params, "total"), value_of(params, "message")
    return Progress(
        done=done,
        total=total if _is_number(total) else None,
        message=_shortened(message, MAX_PROGRESS_TEXT) if isinstance(message, str) else None,
    )


def text_progress(token: RequestId, message: str, turn: int, after: float = 0.0) -> TextProgress:
    """Progress of a call whose server sends status messages without numbers; `turn` counts them
    from 1.

    `after` is the last number that the server sent. The numbers grow and stay below `after` +
    `TEXT_STEP`.
    """
    done = after + TEXT_STEP * turn / (turn + 1)
    params = f'{{"progressToken":{dump(token)},"progress":{dump(done)},"message":{dump(message)}}}'
    notification = parse(notification_text(NOTE_PROGRESS, params).encode(), max_depth=2)
    assert isinstance(notification, Notification), "the text is a notification"
    return TextProgress(*notification)


def text_of_progress(notification: Notification) -> str | None:
    """The message of a notification from `text_progress`; None for any other progress."""
    return str(notification.params["message"].value) if isinstance(notification, TextProgress) else None


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else f"{value:.6g}"


def _is_number(value: Any) -> bool:
    # An integer beyond every float compares with none.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**1023


_EXACT = 2**53


# --- the outcome of a call --------------------------------------------------------------------------------------------

MAX_SUMMARY: Final = 1_000
"""Largest status message from an error's text, in characters."""
MAX_ERROR_BLOCKS: Final = 256
"""Content blocks that are searched for the text of a tool's error, in content of very many parts.
"""


def call_outcome(response: Response) -> CallSucceeded | CallFaulted:
    """The event that ends a task whose call got this response.

    An error gives CallFaulted. A tool result gives CallSucceeded, also one with `isError`. Raises
    UpstreamFailed (malformed) for any other result.
    """
    if response.error is not None:
        error = response.text[response.error.start : response.error.end]
        message = status_text(value_of(response.error.members or {}, "message"))
        return CallFaulted(error=error, reason=FaultReason.JSONRPC_ERROR, message=message)
    assert response.result is not None, "a response without an error has a result"
    found = response.result.members
    if found is None or ("task" in found and "content" not in found):
        # A call that asked for a server's task is settled by the task's result, not by its handle.
        raise protocol_violation("its result is not a tool result")
    failed = "isError" in found and found["isError"].value is True
    text = response.text[response.result.start : response.result.end]
    return CallSucceeded(
        result=text, tool_error=failed, message=_error_text(response.text, found.get("content")) if failed else None
    )


def status_text(text: str) -> str:
    """A text of a server as a status message: limited in length, and valid UTF-8."""
    return _shortened(text, MAX_SUMMARY)


def _shortened(text: str, limit: int) -> str:
    short = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return short.encode("utf-8", "replace").decode()


def _error_text(text: RawJson, content: Member | None) -> str:
    values = [] if content is None or not content.is_array else _block_texts(text, content)
    texts = [value for value in values if isinstance(value, str)]
    return status_text("\n".join(texts)) if texts else "The tool reported an error"


def _block_texts(text: RawJson, content: Member) -> list[Any]:
    blocks = content.value
    if isinstance(blocks, list):
        return [block.get("text") for block in blocks if isinstance(block, dict)]
    # Very many parts by a count of commas, which may all be in one long text.
    try:
        found = elements(text[content.start : content.end], {}, MAX_ERROR_BLOCKS)
    except MalformedMessage:
        return []
    return [value_of(block.members or {}, "text") for block in found]


def parse_response(text: str) -> Response:
    """The response that is written in `text`, which is made of messages of a server.

    Raises MalformedMessage if a part of it is not JSON, or has a key twice where it matters.
    """
    response = parse(text.encode(), max_depth=MAX_SERVER_DEPTH)
    assert isinstance(response, Response), "the text is a response"
    return response


# --- list changes -----------------------------------------------------------------------------------------------------


def declares_changes(capabilities: Mapping[str, Any], name: str) -> bool:
    """Whether a server tells of changes of that list: tools, prompts or resources."""
    declared = capabilities.get(name)
    return isinstance(declared, dict) and declared.get("listChanged") is True


def _list_changed(name: str) -> Notification:
    parsed = parse(notification_text(f"notifications/{name}/list_changed", "{}").encode(), max_depth=MAX_SERVER_DEPTH)
    assert isinstance(parsed, Notification), "the text is a notification"
    return parsed


LIST_CHANGED: Final = MappingProxyType({name: _list_changed(name) for name in ("tools", "prompts", "resources")})
"""The notification that a list may have changed, by the list: for what a server may not have told."""


# --- errors without an id ---------------------------------------------------------------------------------------------

_ERROR_MEMBERS: Final = frozenset({"jsonrpc", "id", "error"})


def read_unaddressed_error(id: int, message: bytes) -> Response | None:
    """An error without an id as the response to `id`; the caller knows that it answers that request.

    Servers that refuse a request unread do not know its id. None for any other message.
    """
    try:
        text = decode(message, MAX_SERVER_DEPTH)
        found = read_object(text, {})
    except (UnparsableMessage, MalformedMessage):
        return None
    error = found.get("error")
    if error is None or not found.keys() <= _ERROR_MEMBERS or value_of(found, "id") is not None:
        return None
    try:
        return parse_response(error_text(id, text[error.start : error.end]))
    except MalformedMessage:
        raise no_message() from None
