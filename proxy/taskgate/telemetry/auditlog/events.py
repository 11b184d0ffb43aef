"""An event of the audit log before it is a line: small, made on the loop, and told of later on a thread.

What must not live here: which fact becomes which event (`table`), how a line looks (`rendering`). What holds: to make
one is to copy references; nothing is hashed or cleaned. It keeps no record of a task, which may be large, and no large
message: of those it keeps what a line tells.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from sys import getsizeof
from typing import Any, Final, NamedTuple

from taskgate.domain.record import RequestId, TaskRecord
from taskgate.jsontext.spans import LargeMember, Member, keys_in, keys_of
from taskgate.protocol import vocabulary as words
from taskgate.protocol.envelope import Message, Notification, Request
from taskgate.telemetry.auditlog.catalogue import INFO, SUCCESS
from taskgate.telemetry.request_context import Caller, Client, RequestContext
from taskgate.telemetry.tracing import Span

MAX_KEYS: Final = 32
"""How many keys of arguments are told."""
MAX_TEXT: Final = 512
"""Letters that are kept of a word of a peer: more than any line tells."""
MAX_KEY: Final = 256
"""Characters of an argument key that are kept: more than any line shows."""
MAX_SHORT_MESSAGE: Final = 1024
"""Letters of a message that is kept as it is, until the event is a line."""
UNREAD: Final[tuple[str, ...]] = ("",)
"""Stands for keys that are not known."""


class CallArguments(NamedTuple):
    """The arguments of a call: where they stand in a text, and their first keys. `text` is None where it was let go.

    `keys` is None where they are no object, and `UNREAD` of long ones: to look for them is work for a thread.
    """

    text: str | None
    start: int
    end: int
    keys: tuple[str, ...] | None

    def first_keys(self) -> tuple[str, ...] | None:
        """The keys, looked for where they are not known; None where the text was let go before."""
        if self.keys is not UNREAD:
            return self.keys
        return None if self.text is None else _truncated(keys_in(self.text, self.start, MAX_KEYS))


class RequestSummary(NamedTuple):
    """What a line tells of a message. `task` is the one that it is about."""

    method: str | None = None
    request_id: RequestId | None = None
    tool: str | None = None
    task: str | None = None
    arguments: CallArguments | None = None


class EventOrigin(NamedTuple):
    """Which request something happened in: its visit, as it was then. `task` is the one that the request made."""

    id: str
    address: str
    verb: str
    path: str | None
    agent: str | None
    status: int | None
    mount: str | None
    caller: Caller | None
    summary: RequestSummary
    task: str | None
    revision: str | None
    client: Client | None
    span: Span | None


class TaskSubject(NamedTuple):
    """Which task something happened to. What is not known is None; `owner` is a context."""

    id: str
    status: str | None
    owner: str | None
    ttl: timedelta | None
    mount: str | None
    tool: str | None


class LimitHit(NamedTuple):
    """Which limit had its say: `kind` is rate, queue, ttl, or what a cap counts."""

    kind: str
    policy: str | None = None
    scope: str | None = None


class AuditEvent(NamedTuple):
    """One event. `weight` is how many bytes of arguments or results it keeps in memory until it is a line.

    `origin` is the visit itself where the event is the last word on it, and there is nothing large to let go of.
    `caller` and `mount` count where the origin names none; `method` counts before the origin's. `result` is the text of
    one that is to be hashed.
    """

    name: str
    outcome: str
    reason: str | None
    severity: str
    time: datetime
    origin: EventOrigin | RequestContext | None = None
    subject: TaskSubject | None = None
    limit: LimitHit | None = None
    data: Mapping[str, Any] | None = None
    caller: Caller | None = None
    mount: str | None = None
    method: str | None = None
    result: str | None = None
    weight: int = 0


def internal_event(
    name: str,
    time: datetime,
    *,
    outcome: str = SUCCESS,
    reason: str | None = None,
    severity: str = INFO,
    data: Mapping[str, Any] | None = None,
) -> AuditEvent:
    """An event of the log itself, which no fact tells of."""
    return AuditEvent(name, outcome, reason, severity, time, data=data)


def without_payload(event: AuditEvent) -> AuditEvent:
    """The same event without what it keeps of arguments and results: the line says that they were left out."""
    origin = event.origin
    if type(origin) is RequestContext:
        origin = origin_of(origin, keeps=True, last=True)
    if type(origin) is EventOrigin and origin.summary.arguments is not None:
        summary = origin.summary._replace(arguments=origin.summary.arguments._replace(text=None))
        origin = origin._replace(summary=summary)
    return event._replace(origin=origin, result=None, weight=0)


# --- from what goes along to what is told ------------------------------------------------------------------------


def origin_of(request_context: RequestContext | None, *, keeps: bool = False, last: bool = False) -> EventOrigin | None:
    """What a visit says now; None for none, and for one that is no request's.

    With `keeps` the arguments are kept until the event is a line. The `last` word on a request has its status.
    """
    if request_context is None or not request_context.id:
        return None
    summary, agent = summary_of(request_context.message, keeps=keeps), request_context.agent
    path = request_context.path if request_context.refusal != _UNKNOWN_PATH else None
    return EventOrigin(
        request_context.id,
        request_context.address,
        request_context.verb,
        path,
        agent and agent[:MAX_TEXT],
        request_context.status if last else None,
        request_context.mount,
        request_context.caller,
        summary,
        request_context.task,
        request_context.revision,
        request_context.client,
        request_context.span,
    )


def final_origin(request_context: RequestContext, keeps: bool) -> tuple[RequestContext | EventOrigin | None, int]:
    """The origin of the last event of a visit, nearly always the visit itself, for that changes no more; its weight."""
    agent = request_context.agent
    if keeps and request_context.refusal is None and (agent is None or len(agent) <= MAX_TEXT):
        message = request_context.message
        if message is None:
            return request_context, 0
        text = message.text
        if len(text) <= MAX_SHORT_MESSAGE:
            # Its text, and that of its parameters. To ask the system takes as long as all the rest of an event.
            return request_context, 2 * (len(text) + _EMPTY_STRING_BYTES if text.isascii() else getsizeof(text))
    origin = origin_of(request_context, keeps=keeps, last=True)
    return origin, weight_of(origin)


def summary_in(origin: EventOrigin | RequestContext | None) -> RequestSummary:
    """What was asked where something happened."""
    if type(origin) is RequestContext:
        return summary_of(origin.message, keeps=True)
    return origin.summary if type(origin) is EventOrigin else _NO_REQUEST


def summary_of(message: Message | None, *, keeps: bool) -> RequestSummary:
    """What is told of a message; with `keeps`, of its arguments, too."""
    # A response has an id too, but it is ours, and may hold the id of a task.
    if type(message) is Notification:
        return RequestSummary(message.method[:MAX_TEXT])
    if type(message) is not Request:
        return _NO_REQUEST
    method, params = message.method[:MAX_TEXT], message.params
    tool = task = arguments = None
    if method == words.TOOLS_CALL:
        tool = text_of(params.get("name"))
        if keeps and (place := params.get("arguments")) is not None:
            arguments = _arguments(message, place)
    elif method in _TASK_METHODS:
        task = text_of(params.get("taskId"))
    return RequestSummary(method, message.id, tool, task, arguments)


def subject_of(task: TaskRecord) -> TaskSubject:
    """What a line tells of a task."""
    context, mount = task.owner
    return TaskSubject(task.id, task.status.value, context, task.ttl, mount, task.call.tool[:MAX_TEXT])


def weight_of(origin: EventOrigin | None) -> int:
    """How much of a message it keeps in memory: letters of some scripts take four bytes each."""
    if origin is None or origin.summary.arguments is None or origin.summary.arguments.text is None:
        return 0
    return getsizeof(origin.summary.arguments.text)


def text_of(member: Member | None) -> str | None:
    """What a peer wrote as the value of a member; None where that is no text, or there is none."""
    value = None if member is None else member.value
    return value[:MAX_TEXT] if type(value) is str else None


def _arguments(message: Request, place: Member) -> CallArguments:
    at, text = message.params_at, message.params_text
    keys = UNREAD if type(place) is LargeMember else keys_of(place, MAX_KEYS)
    if keys is not UNREAD and len(text) > MAX_TEXT:
        # Many lines of a host that is up to no good may wait.
        keys = _truncated(keys)
    # The text of the parameters is there already, so that nothing large is copied here.
    return CallArguments(text, place.start - at, place.end - at, keys)


def _truncated(keys: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if keys is None else tuple(each[:MAX_KEY] for each in keys)


_NO_REQUEST: Final = RequestSummary()
_EMPTY_STRING_BYTES: Final = getsizeof("")
_TASK_METHODS: Final = frozenset({words.TASKS_GET, words.TASKS_RESULT, words.TASKS_CANCEL, words.TASKS_UPDATE})
_UNKNOWN_PATH: Final = "unknown_path"
