"""What a message on a line is about, where that decides whose it is: read to its last member, as few have to be.

What must not live here: what a message is (`words`), and what becomes of it. Pure.
"""

from typing import Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.spans import Members
from taskgate.protocol.envelope import Message, Notification, Request, Response
from taskgate.protocol.jsonrpc import is_id, parse
from taskgate.protocol.reading import meta_of, value_of
from taskgate.protocol.vocabulary import NOTE_CANCELLED, RELATED_TASK, SUBSCRIPTION_ID
from taskgate.upstream.duplex.words import MAX_DEPTH

_SHOWN: Final = ("taskId", "status", "pollInterval", "pollIntervalMs")
Read = bytes | Message | None
"""A message, or what it was read as before: None for what is none."""
_LONGEST: Final = 3_600_000
"""Milliseconds between two looks at a task that are believed to be meant."""


def message_in(message: bytes) -> Message | None:
    """The message, read to its last member; None for what is none. The same may be asked of it as of its bytes."""
    try:
        return parse(message, max_depth=MAX_DEPTH)
    except (UnparsableMessage, MalformedMessage):
        return None


def subscription_of(message: Read) -> RequestId | None:
    """The request whose stream a notification belongs to, by what it says of it; None where it says nothing."""
    parsed = _parsed(message)
    if not isinstance(parsed, Notification):
        return None
    if parsed.method == NOTE_CANCELLED:
        # How a server ends such a stream.
        return _named(value_of(parsed.params, "requestId"))
    return _named(value_of(meta_of(parsed.params), SUBSCRIPTION_ID))


class Shown(NamedTuple):
    """A task as an answer shows it. `status` None: it has nothing more to show. `interval` in seconds, 0 unknown."""

    id: str
    status: str | None
    interval: float


def task_shown_in(message: bytes) -> Shown | None:
    """The server's task that an answer is about: as it shows itself, or as the one whose outcome it is."""
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
    """The resource that a request or a notification is about."""
    return _text(_params(message), "uri")


def task_in(message: Read) -> str | None:
    """The server's task that a request is about: by its parameters, or by what it says of itself."""
    params = _params(message)
    related = value_of(meta_of(params), RELATED_TASK)
    return _text(params, "taskId") or (related.get("taskId") if isinstance(related, dict) else None)


def response_in(message: Read) -> Response | None:
    """The response that it is; None for anything else."""
    parsed = _parsed(message)
    return parsed if isinstance(parsed, Response) else None


def declared_in(message: bytes) -> bytes:
    """The text of a request's parameters, as the gateway wrote it."""
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
