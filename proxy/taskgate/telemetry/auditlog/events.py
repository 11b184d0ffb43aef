"""An audit event before it is rendered: `AuditEvent`, with its request and its task.

`mapping` makes events on the event loop, for every request, so an event only copies references:
hashing and cleaning wait until `formats` renders it. It holds no task record and no large message,
only what a line shows of them.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from sys import getsizeof
from typing import Any, Final, NamedTuple

from taskgate.domain.record import RequestId, TaskRecord
from taskgate.domain.versions import Client
from taskgate.jsontext.large import leading_keys
from taskgate.jsontext.spans import LargeMember, Member, first_keys
from taskgate.protocol import vocabulary as words
from taskgate.protocol.messages import Message, Notification, Request
from taskgate.telemetry.auditlog.catalogue import INFO, SUCCESS
from taskgate.telemetry.request_context import Caller, RequestContext
from taskgate.telemetry.tracing import Span

MAX_KEYS: Final = 32
"""Argument keys that a line shows, at most."""
MAX_TEXT: Final = 512
"""Characters kept of a text of a peer: more than any line shows."""
MAX_KEY: Final = 256
"""Characters of an argument key that are kept: more than any line shows."""
make_tuple: Final = tuple.__new__
"""Makes a named tuple in half the time of calling its class: each event makes several."""
UNREAD: Final[tuple[str, ...]] = ("",)
"""Marks argument keys that were not read yet."""

TASK_METHODS: Final = frozenset({words.TASKS_GET, words.TASKS_RESULT, words.TASKS_CANCEL, words.TASKS_UPDATE})
"""The methods whose messages name a task."""


class CallArguments(NamedTuple):
    """The arguments of a call: their span in a text, and their first keys.

    `text` is None when it was dropped to save memory, and bytes if the message has its `body`. `keys`
    is None when the arguments are not an object, and `UNREAD` for long ones: the thread of the sink
    reads those.
    """

    text: str | bytes | None
    start: int
    end: int
    keys: tuple[str, ...] | None

    def encoded(self) -> bytes | memoryview | None:
        """The arguments as the host wrote them; None when the text was dropped before."""
        text, start, end, _ = self
        if type(text) is bytes:
            return memoryview(text)[start:end]
        # The text of a peer may have lone surrogates.
        return text[start:end].encode("utf-8", "surrogatepass") if type(text) is str else None

    def first_keys(self, written: bytes | memoryview | None) -> tuple[str, ...] | None:
        """The first keys, read if necessary from `written`, which is what `encoded` returned."""
        if self.keys is not UNREAD:
            return self.keys
        if type(self.text) is bytes:
            return _truncated(leading_keys(self.text, self.start, MAX_KEYS))
        return _truncated(leading_keys(written, 0, MAX_KEYS)) if type(written) is bytes else None


class RequestSummary(NamedTuple):
    """The members of a message that a line shows. `task` is the id of the task that the message is about."""

    method: str | None = None
    request_id: RequestId | None = None
    tool: str | None = None
    task: str | None = None
    arguments: CallArguments | None = None


class EventOrigin(NamedTuple):
    """The request in which an event happened, as it was then.

    `task` is the task that the request made, or gave a tool of the gateway.
    """

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


Origin = EventOrigin | RequestContext
"""The request of an event; the context itself if that changes no more and holds nothing large."""


class TaskSubject(NamedTuple):
    """The task that an event is about.

    Unknown fields are None; `owner` is the key of an auth context.
    """

    id: str
    status: str | None
    owner: str | None
    ttl: timedelta | None
    mount: str | None
    tool: str | None


class LimitHit(NamedTuple):
    """The applied limit: `kind` is rate, queue, ttl, or what a concurrency limit counts."""

    kind: str
    policy: str | None = None
    scope: str | None = None


class ConstantMembers(dict[str, Any]):
    """The `data` of many equal events, which all hold the same object; it never changes.

    A line template is found by it, so its hash is that of the object.
    """

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]  # a dictionary that may change has none


class AuditEvent(NamedTuple):
    """One event. `time` is in microseconds since 1970.

    `weight` is the number of bytes of arguments or results that it holds until it is rendered.
    `origin` is the request context itself at the last event of a request, and for the call of a
    task. What follows `weight` is set in few events. `caller` and `mount` apply when the origin has
    none; `method` overrides that of the origin. `result` is a text to hash.
    """

    name: str
    outcome: str
    reason: str | None
    severity: str
    time: int
    origin: Origin | None = None
    subject: TaskSubject | None = None
    data: Mapping[str, Any] | None = None
    weight: int = 0
    limit: LimitHit | None = None
    caller: Caller | None = None
    mount: str | None = None
    method: str | None = None
    result: str | None = None


def internal_event(
    name: str,
    time: datetime,
    *,
    outcome: str = SUCCESS,
    reason: str | None = None,
    severity: str = INFO,
    data: Mapping[str, Any] | None = None,
) -> AuditEvent:
    """An event about the audit log itself."""
    return AuditEvent(name, outcome, reason, severity, round(time.timestamp() * 1e6), data=data)


def without_payload(event: AuditEvent) -> AuditEvent:
    """The event without arguments and results; its line says that they were omitted."""
    origin = event.origin
    if type(origin) is RequestContext:
        origin = origin_of(origin, keep_arguments=True, final=True)
    if type(origin) is EventOrigin and origin.summary.arguments is not None:
        summary = origin.summary._replace(arguments=origin.summary.arguments._replace(text=None))
        origin = origin._replace(summary=summary)
    return event._replace(origin=origin, result=None, weight=0)


# --- from a request context to what a line shows -----------------------------------------------------------------


def origin_of(
    request_context: RequestContext | None, *, keep_arguments: bool = False, final: bool = False
) -> Origin | None:
    """The origin that a request context describes now; None without a request.

    It is the context itself if that is of the call of a task, which has no message. With
    `keep_arguments` the arguments stay until the event is rendered. Only the `final` event has the
    status.
    """
    if request_context is None or not request_context.id:
        return None
    message, agent = request_context.message, request_context.agent
    if request_context.background and (agent is None or len(agent) <= MAX_TEXT):
        return request_context
    keep_arguments = keep_arguments and not request_context.names_handle
    summary = _NO_REQUEST if message is None else summary_of(message, keep_arguments=keep_arguments)
    path = request_context.path if request_context.refusal != _UNKNOWN_PATH else None
    fields = (
        request_context.id,
        request_context.address,
        request_context.verb,
        path,
        agent and agent[:MAX_TEXT],
        request_context.status if final else None,
        request_context.mount,
        request_context.caller,
        summary,
        request_context.task,
        request_context.revision,
        request_context.client,
        request_context.span,
    )
    return make_tuple(EventOrigin, fields)


def summary_in(origin: Origin | None) -> RequestSummary:
    """What a line shows of the message of an origin."""
    if type(origin) is RequestContext:
        return summary_of(origin.message, keep_arguments=not origin.names_handle)
    return origin.summary if type(origin) is EventOrigin else _NO_REQUEST


def summary_of(message: Message | None, *, keep_arguments: bool) -> RequestSummary:
    """What a line shows of a message; with `keep_arguments`, of its arguments too."""
    # The id of a response is left out: taskgate chose it, and it may contain the id of a task.
    if type(message) is Notification:
        return RequestSummary(message.method[:MAX_TEXT])
    if type(message) is not Request:
        return _NO_REQUEST
    method, params = message.method[:MAX_TEXT], message.params
    tool = task = arguments = None
    if method == words.TOOLS_CALL:
        tool = text_of(params.get("name"))
        if keep_arguments and (place := params.get("arguments")) is not None:
            arguments = _arguments(message, place)
    elif method in TASK_METHODS:
        task = text_of(params.get("taskId"))
    return make_tuple(RequestSummary, (method, message.id, tool, task, arguments))


def subject_of(task: TaskRecord) -> TaskSubject:
    """What a line shows of a task."""
    owner = task.owner
    return make_tuple(TaskSubject, (task.id, task.status, owner[0], task.ttl, owner[1], task.call[0][:MAX_TEXT]))


def weight_of(origin: Origin | None) -> int:
    """Bytes of a message that the origin holds: characters of some scripts take four bytes each."""
    if type(origin) is not EventOrigin or origin.summary.arguments is None or origin.summary.arguments.text is None:
        return 0
    return getsizeof(origin.summary.arguments.text)


def text_of(member: Member | None) -> str | None:
    """The text of a member; None when it is absent or not a text."""
    value = None if member is None else member.value
    return value[:MAX_TEXT] if type(value) is str else None


def _arguments(message: Request, place: Member) -> CallArguments:
    # One that exists already, so nothing large is copied.
    at, text = (message.params_at, message.params_text) if message.body is None else (0, message.body)
    keys = UNREAD if type(place) is LargeMember else first_keys(place, MAX_KEYS)
    if keys is not UNREAD and len(text) > MAX_TEXT:
        # Events of a hostile host may wait in large numbers.
        keys = _truncated(keys)
    return make_tuple(CallArguments, (text, place[2] - at, place[3] - at, keys))


def _truncated(keys: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if keys is None else tuple(each[:MAX_KEY] for each in keys)


_NO_REQUEST: Final = RequestSummary()
_UNKNOWN_PATH: Final = "unknown_path"
