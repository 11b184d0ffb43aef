"""Cursors of `tasks/list`: a place in one caller's list of tasks, sealed so that nobody else can make or use one.

Opaque to hosts, but no secret from them: a cursor holds the time and the id of a task of the caller's own, and a tag.
What a page is, and how it is ordered, is the business of stores.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Protocol

from taskgate.domain.listing import Position
from taskgate.errors import InvalidParams

MAX_LENGTH = 256
"""Characters of a cursor; ours have 75, with the ids that the gateway makes."""

_PURPOSE = "taskgate tasks/list cursor 1"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_TAG_SIZE, _TIME_SIZE = 16, 8


class Cursors(Protocol):
    """Seals and opens, with the keys that there are at the time; see CursorKeys."""

    def seal(self, place: Position, *, context: str, mount: str, listing: str = "") -> str:
        """See CursorKeys."""
        ...

    def open(self, cursor: str, *, context: str, mount: str, listing: str = "") -> Position:
        """See CursorKeys."""
        ...


@dataclass(frozen=True, slots=True)
class CursorKeys:
    """Seals with `current`, and opens what was sealed with either key, so that a key can be replaced under load."""

    current: bytes = field(repr=False)
    previous: bytes | None = field(default=None, repr=False)

    def seal(self, place: Position, *, context: str, mount: str, listing: str = "") -> str:
        """The cursor of a place in what one context has at one mount; base64url, without padding.

        `listing` is the filter and the order of the list, written in one way: a cursor of one list opens in no other.
        The time must be aware and keeps its microseconds. ValueError for an id that makes the cursor too long to open.
        """
        time, id = place
        body = ((time - _EPOCH) // _TICK).to_bytes(_TIME_SIZE, "big", signed=True) + id.encode()
        cursor = _sealed(self.current, body, (context, mount, listing))
        if len(cursor) > MAX_LENGTH:
            raise ValueError("the id is too long for a cursor")
        return cursor.decode()

    def open(self, cursor: str, *, context: str, mount: str, listing: str = "") -> Position:
        """The place, in UTC. InvalidParams, always in the same words, for all that was not sealed for just this."""
        body = _body(cursor)
        for key in (self.current, self.previous):
            # Sealed anew and compared whole, a cursor has one spelling: base64 alone would let some bits vary.
            if key is not None and compare_digest(
                _sealed(key, body, (context, mount, listing)), cursor.encode("ascii")
            ):
                time = int.from_bytes(body[:_TIME_SIZE], "big", signed=True)
                return Position(_EPOCH + time * _TICK, body[_TIME_SIZE:].decode())
        raise _invalid()


def _sealed(key: bytes, body: bytes, of: tuple[str, str, str]) -> bytes:
    # JSON keeps the parts apart, whatever is in them; the body is last and needs no mark where it ends.
    message = json.dumps([_PURPOSE, *of]).encode() + b"\n" + body
    return urlsafe_b64encode(digest(key, message, sha256)[:_TAG_SIZE] + body).rstrip(b"=")


def _body(cursor: str) -> bytes:
    """What a cursor claims to hold, not yet believed."""
    if len(cursor) > MAX_LENGTH or not cursor.isascii():
        raise _invalid()
    try:
        return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))[_TAG_SIZE:]
    except Error:
        raise _invalid() from None


def _invalid() -> InvalidParams:
    return InvalidParams("Invalid cursor")
