"""What two sendings of one call have in common, in either era: the digests of keys and of calls.

Pure. What holds: the order of members and the space between them make no difference, however deep they stand, unless
they are long. Numbers count as they are written: no two that a server could tell apart are one.
"""

import json
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final

from taskgate.errors import InvalidParams
from taskgate.jsontext.spans import Members, RawJson, members
from taskgate.protocol.vocabulary import IDEMPOTENCY_KEY

MAX_KEY: Final = 256
"""Characters of an idempotency key."""

LONG: Final = 16 * 1024
"""Characters of parameters up to which it makes no difference how arguments are written."""

_SIZE: Final = 16


def repeat_key(meta: Members) -> str | None:
    """What a host calls its call by, from the members of its `_meta`; None where it does not.

    Raises InvalidParams for what is no text of 1 to 256 characters that can be written.
    """
    member = meta.get(IDEMPOTENCY_KEY)
    if member is None:
        return None
    key = member.value
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY or not _is_text(key):
        raise InvalidParams(f"{IDEMPOTENCY_KEY} must be a string of 1 to {MAX_KEY} characters")
    return key


def key_digest(key: str) -> str:
    """What is kept of a key: 128 bits in hexadecimal."""
    return blake2b(key.encode(), digest_size=_SIZE).hexdigest()


def call_digest(tool: str, params: RawJson) -> str:
    """What two calls of a tool with the same arguments have in common, and no others; `params` is an object's text.

    Nothing but the arguments counts, so neither `_meta` nor a progress token does. Long ones count as they are written:
    to sort what is in them takes a hundred times as long.
    """
    if len(params) > LONG:
        place = members(params).get("arguments")
        found = blake2b(ascii((tool, place is None)).encode(), digest_size=_SIZE)
        if place is not None:
            found.update(params[place.start : place.end].encode("utf-8", "surrogatepass"))
        return found.hexdigest()
    arguments = [value for name, value in content(params) if name == "arguments"]
    return blake2b(ascii((tool, arguments)).encode(), digest_size=_SIZE).hexdigest()


def content(params: RawJson) -> list[tuple[str, Any]]:
    """The members of an object, sorted by their names, in a form that is the same for what is the same."""
    found = json.loads(params, object_pairs_hook=_sorted, parse_int=_number, parse_float=_number)
    members: list[tuple[str, Any]] = found[1]
    return members


def _sorted(pairs: list[tuple[str, Any]]) -> tuple[str, Any]:
    return "object", sorted(pairs, key=itemgetter(0))


def _number(text: str) -> tuple[str, str]:
    return "number", text


def _is_text(key: str) -> bool:
    """Whether a string could be written again: an escaped lone surrogate could not."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
