"""Kind of a message, by its two ends: `kind_of` tells response, progress, request, notification.

The rest of a message may be large and is decoded by its receiver. For one valid message the result
is the same as that of a full parse. For other JSON that looks like an answer, it names the request:
its reader then rejects it at once, instead of waiting. Pure.
"""

import re
from typing import Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.protocol.jsonrpc import is_id, parse
from taskgate.protocol.messages import Notification, Request, Response, value_of
from taskgate.protocol.server_messages import MAX_SERVER_DEPTH
from taskgate.protocol.vocabulary import NOTE_PROGRESS, NOTE_TASKS


class Answers(NamedTuple):
    """The response to the request `id`."""

    id: RequestId


class Tells(NamedTuple):
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


Kind = Answers | Tells | RequestPeek | NotificationPeek


def kind_of(message: bytes) -> Kind | None:
    """Return the kind of a message; None if it is no message."""
    return kind_by_its_ends(message) or _read(message)


def is_bounded(kind: Kind | None) -> bool:
    """Whether it is a notification that is dropped if large. A task notification may hold a result,
    and is not."""
    return isinstance(kind, Tells) or (isinstance(kind, NotificationPeek) and kind.method != NOTE_TASKS)


def kind_by_its_ends(message: bytes) -> Kind | None:
    """Return the kind without reading the rest; None if the ends do not tell."""
    head = _HEAD(message)
    if head is None:
        return None
    token = head["token"]
    if token is not None:
        return Tells(_id(token))
    method, written = head["method"], head["id"] or head["id_first"]
    if method == _PROGRESS:
        # Its token is not in the usual place.
        return None
    if written is None and not (method or b"").startswith(_NOTE):
        written = _last_id(message)
        if written is None:
            return None
    if method is None:
        return Answers(_id(written))
    return NotificationPeek(method.decode()) if written is None else RequestPeek(_id(written), method.decode())


def _read(message: bytes) -> Kind | None:
    """Return the kind by a full parse."""
    try:
        parsed = parse(message, max_depth=MAX_SERVER_DEPTH)
    except MalformedMessage as refused:
        # An id without a method: the waiting request must fail on this answer.
        return None if refused.id is None or b'"method"' in message else Answers(refused.id)
    except UnparsableMessage:
        return None
    match parsed:
        case Response(id=id_):
            return Answers(id_)
        case Request(id=id_, method=method):
            return RequestPeek(id_, method)
        case Notification(method=method, params=params) if method == NOTE_PROGRESS:
            token = value_of(params, "progressToken")
            return Tells(token) if is_id(token) else NotificationPeek(method)
        case Notification(method=method):
            return NotificationPeek(method)
    return None


def _id(written: bytes) -> RequestId:
    return written[1:-1].decode() if written[0] == _QUOTE else int(written)


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
