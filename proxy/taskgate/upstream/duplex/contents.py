"""Contents of messages on a channel, by a full parse: task, subscription, resource. Pure.

`words` tells the kind of each message from its first and last bytes alone. Some messages must be
decoded, because the first and last bytes do not name their receiver. `company` asks which
subscription, task or resource they name. `tasks` asks which server task an answer shows,
`transport` what a handshake declares.
"""

from typing import Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.spans import Members
from taskgate.protocol.jsonrpc import is_id, parse
from taskgate.protocol.messages import Message, Notification, Request, Response, meta_of, value_of
from taskgate.protocol.meta import related_task
from taskgate.protocol.server_messages import MAX_SERVER_DEPTH
from taskgate.protocol.vocabulary import NOTE_CANCELLED, SUBSCRIPTION_ID

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
