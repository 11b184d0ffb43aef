"""Requests and notifications of hosts as values: `LegacyIntent` and `ModernIntent`. No era's text
in them.

The downstream dialects make them from messages by `decode`, the gateway handles each by its type.
A request has the host's `id`, under which it is answered. At the end are the digests by which two
sendings of one call are recognized.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from taskgate.domain.listing import TaskFilter, TaskOrder
from taskgate.domain.record import RequestId, TaskId
from taskgate.domain.versions import Client, Peer
from taskgate.errors import InvalidParams
from taskgate.jsontext.spans import Member, RawJson, members
from taskgate.protocol.messages import Notification, Params, is_unicode
from taskgate.protocol.meta import HOP_KEYS, OWN_PREFIX
from taskgate.protocol.server_messages import Answer
from taskgate.protocol.vocabulary import BAGGAGE, IDEMPOTENCY_KEY, TRACEPARENT, TRACESTATE

# --- both eras --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CallTool:
    """`tools/call`; `params` are ready to be sent to a server.

    `wants_task` is true if a legacy host asked for a task and its session has tasks; a modern host
    cannot ask. `ttl` is what the host asked for, None if it left that to the gateway.
    `stored_params` is `params` for a record, without a progress token; None if the call cannot
    become a task. The idempotency key is in neither of them. With `is_own_key` the gateway made it from
    the call: then it names a call only until its result was fetched, or is too old. `handed_to` is as in the
    record. With `goes_on` the host has answered questions of the call, so it is no other call made again.
    """

    id: RequestId
    tool: str
    params: Params
    stored_params: RawJson | None
    progress_token: RequestId | None
    wants_task: bool
    ttl: timedelta | None
    idempotency_key: str | None = None
    is_own_key: bool = False
    handed_to: str | None = None
    goes_on: bool = False


@dataclass(slots=True, kw_only=True)
class HandleRequest:
    """A call of a tool of the gateway, for the call that has become `task`: to wait for its result, or to cancel it.

    `answers` are those of a modern host to questions that the wait before has returned, by key. `state` is
    what the host got with these.
    """

    call: CallTool
    task: TaskId
    cancels: bool
    answers: Mapping[str, Answer] | None = None
    state: str | None = None


@dataclass(slots=True)
class InboxRequest:
    """A call of the tool of the gateway that lists calls. `knows_tasks`: its host can use the ids of tasks."""

    id: RequestId
    knows_tasks: bool


@dataclass(slots=True)
class Relay:
    """Any other request of a host that its server answers; `params` are ready to be sent."""

    id: RequestId
    method: str
    params: Params | None
    progress_token: RequestId | None


@dataclass(slots=True)
class GetTask:
    """`tasks/get`."""

    id: RequestId
    task: TaskId


@dataclass(slots=True, kw_only=True)
class CancelTask:
    """`tasks/cancel`."""

    id: RequestId
    task: TaskId


# --- legacy -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class OpenSession:
    """`initialize`; `peer.revision` is the one that the gateway answers with."""

    id: RequestId
    peer: Peer


@dataclass(slots=True, kw_only=True)
class AnswerPing:
    """`ping`."""

    id: RequestId


@dataclass(slots=True, kw_only=True)
class AwaitTask:
    """`tasks/result`: the outcome as soon as the task has one."""

    id: RequestId
    task: TaskId


@dataclass(slots=True, kw_only=True)
class ListTasks:
    """`tasks/list`: the page after `cursor` of the tasks that match `where`; None for the first
    page.
    """

    id: RequestId
    where: TaskFilter
    order: TaskOrder
    cursor: str | None


@dataclass(slots=True, kw_only=True)
class CancelCall:
    """`notifications/cancelled`: the host no longer waits for one of its plain requests."""

    request: RequestId


@dataclass(slots=True, kw_only=True)
class AnswerInput:
    """The response to the input request `key` of a task; whether it exists is not checked yet."""

    task: TaskId
    key: str
    answer: Answer
    host_task: str | None = None
    """The id of a task of the host itself, if the answer is the handle of one."""


@dataclass(slots=True, kw_only=True)
class AnswerQuestion:
    """The response to a question outside of tasks; `id` is its id, which may be unknown."""

    id: str
    answer: Answer


@dataclass(slots=True, kw_only=True)
class ReportProgress:
    """Progress of a host on the question or input request `id`."""

    id: str
    notification: Notification


@dataclass(slots=True, kw_only=True)
class NotifyServer:
    """A notification of a host for its server."""

    notification: Notification


@dataclass(slots=True, kw_only=True)
class Ignore:
    """A message that needs no action: a notification without effect, or an answer under an id that
    no question has.
    """


LegacyIntent = (
    OpenSession
    | HandleRequest
    | InboxRequest
    | AnswerPing
    | CallTool
    | GetTask
    | AwaitTask
    | ListTasks
    | CancelTask
    | Relay
    | CancelCall
    | AnswerInput
    | AnswerQuestion
    | ReportProgress
    | NotifyServer
    | Ignore
)

# --- modern -----------------------------------------------------------------------------------------------------------


class RequestMeta(NamedTuple):
    """Declarations of a modern request about itself, mostly in its `_meta`; valid for it alone.

    `peer.info` is empty if the host does not name itself. `log_level` is one of LOG_LEVELS, None if
    the host wants no log. `header_params` are the values of `Mcp-Param-*` headers, as
    `headers.read_headers` gives them, not yet compared with the arguments. `client` is `peer.info` for
    reports.
    """

    peer: Peer
    log_level: str | None
    progress_token: RequestId | None
    declares_tasks: bool
    header_params: Mapping[str, str] = MappingProxyType({})
    client: Client = Client(None, None)


@dataclass(slots=True, kw_only=True)
class Discover:
    """`server/discover`."""

    id: RequestId


@dataclass(slots=True, kw_only=True)
class UpdateTask:
    """`tasks/update`: answers to input requests of a task, by key; unknown keys are ignored."""

    id: RequestId
    task: TaskId
    answers: Mapping[str, Answer]


@dataclass(slots=True, kw_only=True)
class Retry:
    """A request sent again with answers; `request` has the new id, and is without answers and
    state.

    `state` is the state that the host hands back, None without one. `responses` is the text of its
    `inputResponses` as written, None without any; `answers` are the same one by one. `text` is the
    whole message, for another process to read.
    """

    request: CallTool | Relay
    answers: Mapping[str, Answer]
    responses: RawJson | None
    state: str | None
    text: RawJson = field(default="", compare=False, repr=False)


@dataclass(slots=True, kw_only=True)
class LegacyTaskRequest:
    """A request about a task by a modern host that did not declare the tasks extension (AMB-19).

    It is served only for a task that was made in the legacy era. For any other id, known or not,
    the gateway answers that the capability is missing.
    """

    request: GetTask | CancelTask


@dataclass(slots=True, kw_only=True)
class Subscription:
    """Events that a host subscribes to; a list is None if the host does not have that member.

    `tasks` are the ids that have taskgate's form, not yet checked further. `filters` are the
    members of allowed extensions that are true.
    """

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    resource_uris: tuple[str, ...] | None = None
    tasks: tuple[TaskId, ...] | None = None
    filters: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Listen:
    """`subscriptions/listen`; every message on its stream has its `id`."""

    id: RequestId
    wants: Subscription


ModernIntent = (
    Discover
    | CallTool
    | HandleRequest
    | InboxRequest
    | Relay
    | Retry
    | GetTask
    | UpdateTask
    | CancelTask
    | LegacyTaskRequest
    | Listen
)
"""A `CallTool` of a modern host has `stored_params` if the call may become a task."""


# --- recognizing a repeated call --------------------------------------------------------------------------------------
#
# Digests ignore the order of members and white space at any depth, except in long texts. Numbers
# count as they are written: two numbers that a server could tell apart stay different.

MAX_KEY: Final = 256
"""Longest idempotency key, in characters."""

LONG: Final = 16 * 1024
"""Length of arguments up to which spelling makes no difference, in characters."""

_DIGEST_SIZE: Final = 16
_COUNTED: Final = frozenset({"name", "arguments", "task"})
"""The parameters of a call that its digest has by itself, or that do not cross."""
_OF_ONE_USE: Final = frozenset({"claudecode/toolUseId", "vscode.requestId", "callId", "x-codex-turn-metadata"})
"""The keys of `_meta` by which Claude Code, VS Code and Codex name the use of a tool, or the turn of the model."""
_OF_ONE_SENDING: Final = HOP_KEYS | _OF_ONE_USE | {"progressToken", TRACEPARENT, TRACESTATE, BAGGAGE}
"""The keys of `_meta` in which a call differs from the same call made again."""


def read_idempotency_key(member: Member) -> str:
    """The idempotency key of a call, from that member of its `_meta`.

    Raises InvalidParams for anything but valid Unicode text of 1 to 256 characters.
    """
    key = member.value
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY or not is_unicode(key):
        raise InvalidParams(f"{IDEMPOTENCY_KEY} must be a string of 1 to {MAX_KEY} characters")
    return key


def key_digest(key: str) -> str:
    """The digest of an idempotency key for storage: 128 bits in hexadecimal."""
    return blake2b(key.encode(), digest_size=_DIGEST_SIZE).hexdigest()


def call_digest(tool: str, params: RawJson) -> str:
    """A digest of a tool and all that its server sees of a call; `params` is the text of an object.

    The keys of `_meta` that concern one hop or one use of the tool, the progress token and the trace do not
    count. Long members count as they are written: sorting their members takes a hundred times as long.
    """
    if len(params) <= LONG:
        pairs, long = sorted_members(params), ""
    else:
        texts = {name: params[place.start : place.end] for name, place in members(params).items()}
        long = texts.pop("arguments") if len(texts.get("arguments", "")) > LONG else ""
        pairs = [(name, _spelled(name, texts[name])) for name in sorted(texts) if name != "name"]
    content: tuple[Any, ...] = (tool, False if long else [value for name, value in pairs if name == "arguments"])
    if others := [crossing for pair in pairs if pair[0] not in _COUNTED if (crossing := _crossing(*pair))]:
        content = (*content, others)
    found = blake2b(ascii(content).encode(), digest_size=_DIGEST_SIZE)
    found.update(long.encode("utf-8", "surrogatepass"))
    return found.hexdigest()


def _spelled(name: str, text: RawJson) -> Any:
    """The value of a parameter; a long one as it is written, and a long `_meta` by its members."""
    if len(text) <= LONG:
        return _sorted_value(text)
    if name != "_meta" or not text.startswith("{"):
        return "long", blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_SIZE).hexdigest()
    inner = members(text)
    return "object", [(key, _spelled(key, text[inner[key].start : inner[key].end])) for key in sorted(inner)]


def _crossing(name: str, value: Any) -> tuple[str, Any] | None:
    """A parameter as its server sees it; None for one of which nothing crosses."""
    if name != "_meta" or not (isinstance(value, tuple) and value[0] == "object"):
        return name, value
    kept = [pair for pair in value[1] if pair[0] not in _OF_ONE_SENDING and not pair[0].startswith(OWN_PREFIX)]
    return (name, kept) if kept else None


def sorted_members(params: RawJson) -> list[tuple[str, Any]]:
    """The members of an object sorted by name at every depth: equal for equal objects."""
    pairs: list[tuple[str, Any]] = _sorted_value(params)[1]
    return pairs


def _sorted_value(text: RawJson) -> Any:
    return json.loads(text, object_pairs_hook=_sorted, parse_int=_number, parse_float=_number)


def _sorted(pairs: list[tuple[str, Any]]) -> tuple[str, Any]:
    return "object", sorted(pairs, key=itemgetter(0))


def _number(text: str) -> tuple[str, str]:
    return "number", text
