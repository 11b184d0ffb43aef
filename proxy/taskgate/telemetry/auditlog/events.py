"""An event of the audit log before it is a line: small, made on the loop, and told of later on a thread.

What must not live here: which fact becomes which event (`table`), how a line looks (`rendering`). What holds: to make
one is to copy references; nothing is hashed or cleaned. Of a task or a message it keeps what a line tells, and
never the record or the message, which may be large.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice
from sys import getsizeof
from typing import Any, Final, NamedTuple

from taskgate.mcp import vocabulary as words
from taskgate.mcp.jsonrpc import Member, Message, Notification, Request, RequestId
from taskgate.tasks.record import TaskRecord
from taskgate.telemetry.auditlog.catalogue import INFO, SUCCESS
from taskgate.telemetry.auditlog.texts import NAME
from taskgate.telemetry.tracing import Span
from taskgate.telemetry.visit import Caller, Visit

MAX_KEYS: Final = 32
"""How many keys of arguments are told."""
KEPT: Final = 512
"""Letters that are kept of a word of a peer: more than any line tells."""


class Arguments(NamedTuple):
    """The arguments of a call: where they stand in a text, and their first keys. `text` is None where it was let go.

    `keys` is None where they are no object.
    """

    text: str | None
    start: int
    end: int
    keys: tuple[str, ...] | None


class Origin(NamedTuple):
    """Which request something happened in: its visit, as it was then. `task` is what the request asks about.

    `client` is the name and the version of the host.
    """

    id: str
    address: str
    verb: str
    path: str | None
    agent: str | None
    status: int | None
    mount: str | None
    caller: Caller | None
    method: str | None
    request_id: RequestId | None
    tool: str | None
    task: str | None
    revision: str | None
    client: tuple[str | None, str | None] | None
    span: Span | None
    arguments: Arguments | None


class Subject(NamedTuple):
    """Which task something happened to. What is not known is None; `owner` is a context."""

    id: str
    status: str | None
    owner: str | None
    ttl: timedelta | None
    mount: str | None
    tool: str | None


class Limit(NamedTuple):
    """Which limit had its say: `kind` is rate, queue, ttl, or what a cap counts."""

    kind: str
    policy: str | None = None
    scope: str | None = None


class Event(NamedTuple):
    """One event. `weight` is how many bytes of arguments or results it keeps in memory until it is a line.

    `caller` and `mount` count where the origin names none; `method` counts before the origin's. `result` is the text of
    one that is to be hashed.
    """

    name: str
    outcome: str
    reason: str | None
    severity: str
    time: datetime
    origin: Origin | None = None
    subject: Subject | None = None
    limit: Limit | None = None
    data: Mapping[str, Any] | None = None
    caller: Caller | None = None
    mount: str | None = None
    method: str | None = None
    result: str | None = None
    weight: int = 0


def note(
    name: str,
    time: datetime,
    *,
    outcome: str = SUCCESS,
    reason: str | None = None,
    severity: str = INFO,
    data: Mapping[str, Any] | None = None,
) -> Event:
    """An event of the log itself, which no fact tells of."""
    return Event(name, outcome, reason, severity, time, data=data)


def lightened(event: Event) -> Event:
    """The same event without what it keeps of arguments and results: the line says that they were left out."""
    origin = event.origin
    if origin is not None and origin.arguments is not None:
        origin = origin._replace(arguments=origin.arguments._replace(text=None))
    return event._replace(origin=origin, result=None, weight=0)


# --- from what goes along to what is told ------------------------------------------------------------------------


def origin_of(visit: Visit | None, *, keeps: bool = False, last: bool = False) -> Origin | None:
    """What a visit says now; None for none, and for one that is no request's.

    With `keeps` the arguments are kept until the event is a line. The `last` word on a request has its status.
    """
    if visit is None or not visit.id:
        return None
    message: Message | None = visit.message
    # A response has an id too, but it is ours, and may hold the id of a task.
    method = request_id = tool = task = arguments = None
    if type(message) is Request:
        method, params, request_id = _cut(message.method), message.params, message.id
        if method == words.TOOLS_CALL:
            tool = text_of(params.get("name"))
            if keeps and (place := params.get("arguments")) is not None:
                arguments = _arguments(message, place)
        elif method in _ABOUT_TASKS:
            task = text_of(params.get("taskId"))
    elif type(message) is Notification:
        method = _cut(message.method)
    info = visit.client
    client = None if info is None else (_text(info.get("name")), _text(info.get("version")))
    return _NEW(
        Origin,
        (
            visit.id, visit.address, visit.verb, visit.path if visit.refusal != _NOWHERE else None,
            _text(visit.agent), visit.status if last else None, visit.mount, visit.caller, method, request_id, tool,
            visit.task or task, visit.revision, client, visit.span, arguments,
        ),
    )  # fmt: skip


def subject_of(task: TaskRecord) -> Subject:
    """What a line tells of a task."""
    context, mount = task.owner
    return Subject(task.id, task.status.value, context, task.ttl, mount, _cut(task.call.tool))


def weight_of(origin: Origin | None) -> int:
    """How much the arguments in it weigh: letters of some scripts take four bytes each."""
    if origin is None or origin.arguments is None or origin.arguments.text is None:
        return 0
    return getsizeof(origin.arguments.text)


def text_of(member: Member | None) -> str | None:
    """What a peer wrote as the value of a member; None where that is no text, or there is none."""
    return None if member is None else _text(member.value)


def _arguments(message: Request, place: Member) -> Arguments:
    value, at, text = place.value, message.params_at, message.params_text
    keys = tuple(islice(value, MAX_KEYS)) if type(value) is dict else None
    if keys is not None and len(text) > KEPT:
        # Many lines of a host that is up to no good may wait.
        keys = tuple(each[: 2 * NAME] for each in keys)
    # The text of the parameters is there already, so that nothing large is copied here.
    return Arguments(text, place.start - at, place.end - at, keys)


def _text(value: Any) -> str | None:
    return _cut(value) if type(value) is str else None


def _cut(word: str) -> str:
    return word if len(word) <= KEPT else word[:KEPT]


_NEW: Final = tuple.__new__
"""Makes an Origin in half the time that its class takes: every request has one."""
_ABOUT_TASKS: Final = frozenset({words.TASKS_GET, words.TASKS_RESULT, words.TASKS_CANCEL, words.TASKS_UPDATE})
_NOWHERE: Final = "unknown_path"
