"""Message contents that decide its receiver: task, subscription, resource. Fully decoded; pure.

Few messages need this; `words` reads the kind of a message from its ends.
"""

from typing import Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.spans import Members
from taskgate.protocol.jsonrpc import is_id, parse
from taskgate.protocol.messages import Message, Notification, Request, Response, meta_of, value_of
from taskgate.protocol.vocabulary import NOTE_CANCELLED, RELATED_TASK, SUBSCRIPTION_ID
from taskgate.upstream.duplex.words import MAX_DEPTH

_SHOWN: Final = ("taskId", "status", "pollInterval", "pollIntervalMs")
Read = bytes | Message | None
"""A message as the functions here take it: its bytes, or its decoded form, which is None if it is
invalid."""
_LONGEST: Final = 3_600_000
"""Milliseconds between two polls that are accepted."""


def message_in(message: bytes) -> Message | None:
    """Decode a message; None if it is invalid. Large messages are decoded so on another thread."""
    try:
        return parse(message, max_depth=MAX_DEPTH)
    except (UnparsableMessage, MalformedMessage):
        return None


def subscription_of(message: Read) -> RequestId | None:
    """Return the request whose stream a notification names; None if it names none."""
    parsed = _parsed(message)
    if not isinstance(parsed, Notification):
        return None
    if parsed.method == NOTE_CANCELLED:
        # A server ends such a stream so.
        return _named(value_of(parsed.params, "requestId"))
    return _named(value_of(meta_of(parsed.params), SUBSCRIPTION_ID))


class Shown(NamedTuple):
    """A server's task in an answer. `status` is None if the answer is the task's result. `interval`
    is the poll interval in seconds, 0 if unknown."""

    id: str
    status: str | None
    interval: float


def task_shown_in(message: bytes) -> Shown | None:
    """Return the server's task that an answer shows or is the result of; None without one."""
    response = response_in(message)
    result = None if response is None or response.result is None else response.result.members
    if result is None:
        return None
    inner = value_of(result, "task")
    task = inner if isinstance(inner, dict) else {name: value_of(result, name) for name in _SHOWN}
    id_, status = task.get("taskId"), task.get("status")
    if isinstance(id_, str) and isinstance(status, str):
        return Shown(id_, status, _seconds(task.get("pollInterval") or task.get("pollIntervalMs")))
    related = value_of(meta_of(result), RELATED_TASK)
    id_ = related.get("taskId") if isinstance(related, dict) else None
    return Shown(id_, None, 0.0) if isinstance(id_, str) else None


def uri_in(message: Read) -> str | None:
    """Return the resource that a request or notification names."""
    return _text(_params(message), "uri")


def task_in(message: Read) -> str | None:
    """Return the server's task that a request names, in its parameters or metadata."""
    params = _params(message)
    related = value_of(meta_of(params), RELATED_TASK)
    return _text(params, "taskId") or (related.get("taskId") if isinstance(related, dict) else None)


def response_in(message: Read) -> Response | None:
    """Return the response; None for anything else."""
    parsed = _parsed(message)
    return parsed if isinstance(parsed, Response) else None


def declared_in(message: bytes) -> bytes:
    """Return the text of the parameters of a request, here `initialize`, as the gateway wrote
    it."""
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
