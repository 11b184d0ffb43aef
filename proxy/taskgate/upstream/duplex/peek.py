"""Reading of a server's messages on a channel: kinds by the two ends, contents, and malformed input.

`kind_of` tells response, progress, request or notification by the first and last bytes alone. The
rest may be large and is decoded by its receiver. For one valid message the result is the same as
that of a full parse. For other JSON that looks like a response, it names the request: its reader
then rejects it at once, instead of waiting.

Some messages must be decoded, because the first and last bytes do not name their receiver. The
functions that take a `Read` do that. `inspect_malformed` examines what is no valid message: arrays
(batches) are split, and of an invalid message it finds the request that it seems to answer. So that
request fails at once, instead of at its timeout. Pure.
"""

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.spans import Member, Members, decode, read_pairs
from taskgate.protocol.jsonrpc import is_batch, is_id, parse, split_batch
from taskgate.protocol.messages import Message, Notification, Request, Response, meta_of, value_of
from taskgate.protocol.meta import related_task
from taskgate.protocol.server_messages import MAX_SERVER_DEPTH, sent_id
from taskgate.protocol.vocabulary import NOTE_CANCELLED, NOTE_PROGRESS, NOTE_TASKS, PARSE_ERROR, SUBSCRIPTION_ID


class ResponsePeek(NamedTuple):
    """The response to the request `id`."""

    id: RequestId


class ProgressPeek(NamedTuple):
    """Progress of the request with this progress token. The gateway uses the request id as the
    token."""

    token: RequestId


class RequestPeek(NamedTuple):
    """A request with this id and method."""

    id: RequestId
    method: str


class NotificationPeek(NamedTuple):
    """Any other notification."""

    method: str


Kind = ResponsePeek | ProgressPeek | RequestPeek | NotificationPeek


def kind_of(message: bytes) -> Kind | None:
    """Return the kind of a message; None if it is no message."""
    return kind_by_its_ends(message) or _read(message)


def is_bounded(kind: Kind | None) -> bool:
    """Whether it is a notification that is dropped if large. A task notification may hold a result,
    and is not."""
    return isinstance(kind, ProgressPeek) or (isinstance(kind, NotificationPeek) and kind.method != NOTE_TASKS)


def kind_by_its_ends(message: bytes) -> Kind | None:
    """Return the kind without reading the rest; None if the ends do not tell."""
    head = _HEAD(message)
    if head is None:
        return None
    token = head["token"]
    if token is not None:
        return ProgressPeek(_sent_id(token))
    method, written = head["method"], head["id"] or head["id_first"]
    if method == _PROGRESS:
        # Its token is not in the usual place.
        return None
    if written is None and not (method or b"").startswith(_NOTE):
        written = _last_id(message)
        if written is None:
            return None
    if method is None:
        return ResponsePeek(_sent_id(written))
    return NotificationPeek(method.decode()) if written is None else RequestPeek(_id(written), method.decode())


def _read(message: bytes) -> Kind | None:
    """Return the kind by a full parse."""
    try:
        parsed = parse(message, max_depth=MAX_SERVER_DEPTH)
    except MalformedMessage as refused:
        # An id without a method: the waiting request must fail on this answer.
        return None if refused.id is None or b'"method"' in message else ResponsePeek(sent_id(refused.id))
    except UnparsableMessage:
        return None
    match parsed:
        case Response(id=id_):
            return ResponsePeek(sent_id(id_))
        case Request(id=id_, method=method):
            return RequestPeek(id_, method)
        case Notification(method=method, params=params) if method == NOTE_PROGRESS:
            token = value_of(params, "progressToken")
            return ProgressPeek(sent_id(token)) if is_id(token) else NotificationPeek(method)
        case Notification(method=method):
            return NotificationPeek(method)
    return None


def _id(written: bytes) -> RequestId:
    return written[1:-1].decode() if written[0] == _QUOTE else int(written)


def _sent_id(written: bytes) -> RequestId:
    return sent_id(_id(written))


def _last_id(message: bytes) -> bytes | None:
    """Return the id that stands last, before the version: that of the message, since the last brace
    follows."""
    at = message.rfind(b'"id":', -_TAIL_BYTES)
    # A quote after a comma starts a key: what follows here cannot come after a string.
    if at < 0 or not (message[at - 1 : at] == b"," or message[at - 2 : at] == _BEFORE):
        return None
    tail = _TAIL(message, at)
    return None if tail is None else tail["id"]


_QUOTE: Final = ord('"')
_NOTE: Final = b"notifications/"
_PROGRESS: Final = NOTE_PROGRESS.encode()
_TAIL_BYTES: Final = 160
_BEFORE: Final = b", "
_PLAIN: Final = r"[ !#-\[\]-~]"
# Only unambiguous ids: short, in ASCII, without escapes.
_ID: Final = rf'(?:-?(?:0|[1-9][0-9]{{0,17}})(?=[ \t\r\n,}}])|"{_PLAIN}{{0,64}}")'
_VERSION: Final = r'"jsonrpc": ?"2\.0"'
_TOKEN: Final = rf'"method": ?"notifications/progress", ?"params": ?\{{"progressToken": ?(?P<token>{_ID})'
_HEAD: Final = re.compile(
    (
        rf'[ \t\r\n]*\{{ ?(?:"id": ?(?P<id_first>{_ID}), ?)?(?:{_VERSION}, ?(?:"id": ?(?P<id>{_ID}), ?)?)?'
        rf'(?:"(?:result|error)":|{_TOKEN}|"method": ?"(?P<method>{_PLAIN}{{1,128}})")'
    ).encode()
).match
_TAIL: Final = re.compile(rf'"id": ?(?P<id>{_ID})(?:, ?{_VERSION})?[ \t\r\n]*\}}[ \t\r\n]*\Z'.encode()).match


# The members of a task that `task_shown_in` reads.
_SHOWN: Final = ("taskId", "status", "pollInterval", "pollIntervalMs")
Read = bytes | Message | None
"""A message as the functions here take it: its bytes, or the result of `message_in`. None stands
for an invalid message, and names nothing."""
_LONGEST: Final = 3_600_000
"""Milliseconds: a poll interval of so many or more counts as unknown."""


def message_in(message: bytes) -> Message | None:
    """Decode a message; None if it is invalid. The caller runs it on another thread if the message
    is large."""
    try:
        return parse(message, max_depth=MAX_SERVER_DEPTH)
    except (UnparsableMessage, MalformedMessage):
        return None


def subscription_of(message: Read) -> RequestId | None:
    """Return the id of the request on whose stream a notification belongs; None if it names none,
    or is no notification.

    For a cancellation, that is the request whose stream the server ends.
    """
    parsed = _parsed(message)
    if not isinstance(parsed, Notification):
        return None
    if parsed.method == NOTE_CANCELLED:
        # By this notification a modern server ends a subscription's stream.
        return _named(value_of(parsed.params, "requestId"))
    return _named(value_of(meta_of(parsed.params), SUBSCRIPTION_ID))


class Shown(NamedTuple):
    """The state of a server's task, as an answer shows it. `status` is None if the answer is the
    task's result. `interval` is the poll interval in seconds, 0 if unknown."""

    id: str
    status: str | None
    interval: float


def task_shown_in(message: bytes) -> Shown | None:
    """Return the server's task whose state or result an answer is; None if it is about no task."""
    response = response_in(message)
    result = None if response is None or response.result is None else response.result.members
    if result is None:
        return None
    inner = value_of(result, "task")
    task = inner if isinstance(inner, dict) else {name: value_of(result, name) for name in _SHOWN}
    id_, status = task.get("taskId"), task.get("status")
    if isinstance(id_, str) and isinstance(status, str):
        return Shown(id_, status, _seconds(task.get("pollInterval") or task.get("pollIntervalMs")))
    id_ = related_task(meta_of(result))
    return None if id_ is None else Shown(id_, None, 0.0)


def uri_in(message: Read) -> str | None:
    """Return the resource that a request or notification names; None if it names none."""
    return _text(_params(message), "uri")


def task_in(message: Read) -> str | None:
    """Return the id of the server's task that a request names, in its parameters or metadata; None
    if it names none."""
    params = _params(message)
    return _text(params, "taskId") or related_task(meta_of(params))


def response_in(message: Read) -> Response | None:
    """Return the decoded response; None if the message is anything else or invalid."""
    parsed = _parsed(message)
    return parsed if isinstance(parsed, Response) else None


def declared_in(message: bytes) -> bytes:
    """Return the JSON text of the parameters of a request of the gateway, here `initialize`.

    Sessions that declare the same text may share a channel.
    """
    parsed = _parsed(message)
    assert isinstance(parsed, Request), "the gateway sends only requests here"
    return parsed.params_text.encode()


def _named(value: object) -> RequestId | None:
    return value if isinstance(value, str | int) and is_id(value) else None


def _seconds(milliseconds: object) -> float:
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return 0.0
    return milliseconds / 1000 if 0 < milliseconds < _LONGEST else 0.0


def _params(message: Read) -> Members:
    parsed = _parsed(message)
    return parsed.params if isinstance(parsed, Request | Notification) else {}


def _text(params: Members, name: str) -> str | None:
    value = value_of(params, name)
    return value if isinstance(value, str) else None


def _parsed(message: Read) -> Message | None:
    return message_in(message) if isinstance(message, bytes) else message


MOST_PARTS: Final = 4096
"""The most elements of an array that is split; a longer one has no parts."""


def parts_of(message: bytes, limit: int = MOST_PARTS) -> list[bytes]:
    """Return the elements of an array; none if it is no array, has more than `limit`, or cannot be decoded."""
    if not is_batch(message):
        return []
    try:
        return split_batch(message, max_depth=MAX_SERVER_DEPTH, limit=limit)
    except (UnparsableMessage, MalformedMessage):
        return []


class MalformedInput(NamedTuple):
    """Findings about such input. `Dispatcher` uses the first that applies, in this order:

    - `parts` are the elements of an array, to be handled one by one; without parts it is empty.
    - `answered` are the ids that it seems to answer. More than one can come of repeated `id`
      members. It counts as an answer only if exactly one of them waits for one.
    - `reports_parse_error`: it is a parse error without an id. The server could not read a message, and
      does not say which. It can only mean a request if just one waits.
    """

    parts: Sequence[bytes] = ()
    answered: Collection[RequestId] = ()
    reports_parse_error: bool = False


def inspect_malformed(message: bytes) -> MalformedInput:
    """Return the findings about input that is not one message; all empty if it is of no use."""
    parts = parts_of(message)
    return MalformedInput(parts) if parts else MalformedInput((), answered_by(message), reports_parse_error(message))


def answered_by(message: bytes) -> Collection[RequestId]:
    """Return the ids of the requests that it seems to answer; none if it has a `method`, and so may
    be a request or notification.

    Of an array that cannot be decoded, the id of the first element is returned if that is an
    answer.
    """
    members = _members_of(message)
    if members is None and is_batch(message):
        # Its first element may be readable all the same.
        first = kind_of(message.lstrip()[1:])
        return [first.id] if isinstance(first, ResponsePeek) else []
    if members is None or any(name == "method" for name, _ in members):
        return []
    return {sent_id(member.value) for name, member in members if name == "id" and is_id(member.value)}


def may_be_message(beginning: bytes) -> bool:
    """Whether input with this beginning may be a message or an array of them: a JSON object or
    array begins."""
    return beginning.lstrip()[:1] in (b"{", b"[")


def reports_parse_error(message: bytes) -> bool:
    """Whether it is a parse error (JSON-RPC) with a null id or none, by which a server reports that
    it could not read a message."""
    error = _unaddressed_error(message)
    return isinstance(error, dict) and error.get("code") == PARSE_ERROR


def seems_to_answer(id: RequestId, message: bytes) -> bool:
    """Whether input on the stream of the request `id` seems to answer it: by that id, or as an error
    without any."""
    return id in answered_by(message) or isinstance(_unaddressed_error(message), dict)


def _unaddressed_error(message: bytes) -> object:
    """Return the error of an answer whose id is null or missing; None of anything else."""
    members = dict(_members_of(message) or ())
    id_, error = members.get("id"), members.get("error")
    is_answer = error is not None and "method" not in members and (id_ is None or id_.value is None)
    return error.value if error is not None and is_answer else None


def _members_of(message: bytes) -> tuple[tuple[str, Member], ...] | None:
    """Return the members of a JSON object, repeated ones too, and none of another value; None if it
    cannot be decoded."""
    try:
        return read_pairs(decode(message, MAX_SERVER_DEPTH))
    except (UnparsableMessage, MalformedMessage):
        return None
