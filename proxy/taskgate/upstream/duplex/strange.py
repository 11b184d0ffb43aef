"""Input of a server that is not one valid message: arrays, and invalid answers. Pure.

It is the last attempt of `Channel`, after `words.kind_of` has found no message. Revision 2025-03-26
has arrays of messages (batches), and servers of others send them too: an array is split. Of an
invalid message, `look_at` finds the request that it seems to answer. So that request fails at once,
instead of at its timeout. Input with a `method` is never taken for an answer.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.spans import Member, decode, read_pairs
from taskgate.protocol.jsonrpc import is_batch, is_id, split_batch
from taskgate.protocol.server_messages import MAX_SERVER_DEPTH
from taskgate.protocol.vocabulary import PARSE_ERROR
from taskgate.upstream.duplex.words import Answers, kind_of

MOST_PARTS: Final = 4096
"""The most elements of an array that is split; a longer one has no parts."""


def parts_of(message: bytes) -> list[bytes]:
    """Return the elements of an array; none if it is no array or cannot be decoded."""
    if not is_batch(message):
        return []
    try:
        return split_batch(message, max_depth=MAX_SERVER_DEPTH, limit=MOST_PARTS)
    except (UnparsableMessage, MalformedMessage):
        return []


class Strange(NamedTuple):
    """Findings about such input. `Channel` uses the first that applies, in this order:

    - `parts` are the elements of an array, to be handled one by one; without parts it is empty.
    - `answered` are the ids that it seems to answer. More than one can come of repeated `id`
      members. It counts as an answer only if exactly one of them waits for one.
    - `says_unread`: it is a parse error without an id. The server could not read a message, and
      does not say which. It can only mean a request if just one waits.
    """

    parts: Sequence[bytes] = ()
    answered: Collection[RequestId] = ()
    says_unread: bool = False


def look_at(message: bytes) -> Strange:
    """Return the findings about input that is not one message; all empty if it is of no use."""
    parts = parts_of(message)
    return Strange(parts) if parts else Strange((), answered_by(message), says_unread(message))


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
        return [first.id] if isinstance(first, Answers) else []
    if members is None or any(name == "method" for name, _ in members):
        return []
    return {member.value for name, member in members if name == "id" and is_id(member.value)}


def may_be_message(beginning: bytes) -> bool:
    """Whether input with this beginning may be a message or an array of them: a JSON object or
    array begins."""
    return beginning.lstrip()[:1] in (b"{", b"[")


def says_unread(message: bytes) -> bool:
    """Whether it is a parse error (JSON-RPC) with a null id or none, by which a server reports that
    it could not read a message."""
    members = dict(_members_of(message) or ())
    id_, error = members.get("id"), members.get("error")
    said = None if error is None else error.value
    code = said.get("code") if isinstance(said, dict) else None
    return "method" not in members and (id_ is None or id_.value is None) and code == PARSE_ERROR


def _members_of(message: bytes) -> tuple[tuple[str, Member], ...] | None:
    """Return the members of a JSON object, repeated ones too, and none of another value; None if it
    cannot be decoded."""
    try:
        return read_pairs(decode(message, MAX_SERVER_DEPTH))
    except (UnparsableMessage, MalformedMessage):
        return None
