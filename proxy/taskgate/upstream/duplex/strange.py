"""What a server says that is not one message: arrays of them, and answers that cannot be read.

A revision has arrays, and servers of others send them too. What must not live here: who waits for what (`channel`).
What holds: nothing is taken for an answer that is not plainly one. Pure.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.spans import Member, decode, read_pairs
from taskgate.protocol.batches import is_array, split
from taskgate.protocol.jsonrpc import is_id
from taskgate.protocol.vocabulary import PARSE_ERROR
from taskgate.upstream.duplex.words import MAX_DEPTH, Answers, kind_of

MOST_PARTS: Final = 4096
"""Elements of an array that is taken apart."""


def parts_of(message: bytes) -> list[bytes]:
    """The elements of an array; none of what is no array, or cannot be read as one."""
    if not is_array(message):
        return []
    try:
        return split(message, max_depth=MAX_DEPTH, most=MOST_PARTS)
    except (UnparsableMessage, MalformedMessage):
        return []


class Strange(NamedTuple):
    """What can be told of what is not one message: its `parts`, else whom it answers, else whether it `says_unread`."""

    parts: Sequence[bytes] = ()
    answered: Collection[RequestId] = ()
    says_unread: bool = False


def look_at(message: bytes) -> Strange:
    """What can be told of what is not one message."""
    parts = parts_of(message)
    return Strange(parts) if parts else Strange((), answered_by(message), says_unread(message))


def answered_by(message: bytes) -> Collection[RequestId]:
    """The requests that it names as if it answered them, where it can be no question and no notification."""
    members = _members_of(message)
    if members is None and is_array(message):
        # What it begins with may be told all the same.
        first = kind_of(message.lstrip()[1:])
        return [first.id] if isinstance(first, Answers) else []
    if members is None or any(name == "method" for name, _ in members):
        return []
    return {member.value for name, member in members if name == "id" and is_id(member.value)}


def may_be_message(beginning: bytes) -> bool:
    """Whether what begins like that may be a message, or an array of them."""
    return beginning.lstrip()[:1] in (b"{", b"[")


def says_unread(message: bytes) -> bool:
    """Whether it tells that something could not be read, and not what: JSON-RPC has no id for that."""
    members = dict(_members_of(message) or ())
    id_, error = members.get("id"), members.get("error")
    said = None if error is None else error.value
    code = said.get("code") if isinstance(said, dict) else None
    return "method" not in members and (id_ is None or id_.value is None) and code == PARSE_ERROR


def _members_of(message: bytes) -> tuple[tuple[str, Member], ...] | None:
    try:
        return read_pairs(decode(message, MAX_DEPTH))
    except (UnparsableMessage, MalformedMessage):
        return None
