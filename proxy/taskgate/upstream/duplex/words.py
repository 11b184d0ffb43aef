"""Whose a message on a line is, read from its two ends: the rest of it may be large, and is read where it arrives.

What must not live here: what becomes of a message. What holds: of JSON that is one message, this tells what the walk
over all members would; of anything else that looks like an answer, whose answer it would be, so that its reader refuses
it at once and nobody waits for it. Pure.
"""

import re
from typing import Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.protocol.envelope import Notification, Request, Response
from taskgate.protocol.jsonrpc import is_id, parse
from taskgate.protocol.reading import value_of
from taskgate.protocol.vocabulary import NOTE_PROGRESS, NOTE_TASKS

MAX_DEPTH: Final = 256
"""How deep a message may nest that is read to its last member; see the dialects."""


class Answers(NamedTuple):
    """The response to what was asked under `id`."""

    id: RequestId


class Tells(NamedTuple):
    """How far the request is that has `token`."""

    token: RequestId


class RequestPeek(NamedTuple):
    """A request of `method` under `id`."""

    id: RequestId
    method: str


class NotificationPeek(NamedTuple):
    """Any other notification."""

    method: str


Kind = Answers | Tells | RequestPeek | NotificationPeek


def kind_of(message: bytes) -> Kind | None:
    """Whose the message is; None for what is none."""
    return kind_by_its_ends(message) or _read(message)


def is_bounded(kind: Kind | None) -> bool:
    """Whether it is a notification that is passed over where it is large: one of a task may hold the task's result."""
    return isinstance(kind, Tells) or (isinstance(kind, NotificationPeek) and kind.method != NOTE_TASKS)


def kind_by_its_ends(message: bytes) -> Kind | None:
    """The same without a look at the rest; None where the ends do not tell."""
    head = _HEAD(message)
    if head is None:
        return None
    token = head["token"]
    if token is not None:
        return Tells(_id(token))
    method, written = head["method"], head["id"] or head["id_first"]
    if method == _PROGRESS:
        return None
    if written is None and not (method or b"").startswith(_NOTE):
        written = _last_id(message)
        if written is None:
            return None
    if method is None:
        return Answers(_id(written))
    return NotificationPeek(method.decode()) if written is None else RequestPeek(_id(written), method.decode())


def _read(message: bytes) -> Kind | None:
    try:
        parsed = parse(message, max_depth=MAX_DEPTH)
    except MalformedMessage as refused:
        # An id and nothing that makes it a question: whoever waits for that answer is to hear that this is none.
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
    """The id that stands last but for the version: of the message itself, for the brace after it is the last."""
    at = message.rfind(b'"id":', -_TAIL_BYTES)
    # A quote after a comma begins a key, for no string can be followed by what comes here.
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
# Ids that can be nothing else: short, in ASCII, without escapes.
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
