"""Input of a server that is not one message: arrays, and answers that cannot be decoded. Pure.

One revision has arrays, and servers of others send them too. `look_at` finds what `Channel` can
use: parts, or the request that is meant. Only input that is plainly an answer is taken for one.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.spans import Member, decode, read_pairs
from taskgate.protocol.jsonrpc import is_batch, is_id, split_batch
from taskgate.protocol.vocabulary import PARSE_ERROR
from taskgate.upstream.duplex.words import MAX_DEPTH, Answers, kind_of

MOST_PARTS: Final = 4096
"""Elements of an array that is split."""


def parts_of(message: bytes) -> list[bytes]:
    """Return the elements of an array; none if it is no array or cannot be decoded."""
    if not is_batch(message):
        return []
    try:
        return split_batch(message, max_depth=MAX_DEPTH, limit=MOST_PARTS)
    except (UnparsableMessage, MalformedMessage):
        return []


class Strange(NamedTuple):
    """Findings about such input, of which at most one applies.

    `parts` are the elements of an array. Else `answered` are the ids of the requests that it seems
    to answer. Else `says_unread`: the server could not read a message, and does not say which.
    """

    parts: Sequence[bytes] = ()
    answered: Collection[RequestId] = ()
    says_unread: bool = False


def look_at(message: bytes) -> Strange:
    """Examine input that is not one message."""
    parts = parts_of(message)
    return Strange(parts) if parts else Strange((), answered_by(message), says_unread(message))


def answered_by(message: bytes) -> Collection[RequestId]:
    """Return the requests that it seems to answer, if it can be no request and no notification."""
    members = _members_of(message)
    if members is None and is_batch(message):
        # Its first element may be readable all the same.
        first = kind_of(message.lstrip()[1:])
        return [first.id] if isinstance(first, Answers) else []
    if members is None or any(name == "method" for name, _ in members):
        return []
    return {member.value for name, member in members if name == "id" and is_id(member.value)}


def may_be_message(beginning: bytes) -> bool:
    """Whether input with this beginning may be a message or an array of them."""
    return beginning.lstrip()[:1] in (b"{", b"[")


def says_unread(message: bytes) -> bool:
    """Whether it is a parse error without an id: the server could not read a message, which one is
    unknown."""
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
