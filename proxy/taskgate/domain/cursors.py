"""Cursors of `tasks/list`: positions in one caller's list of tasks, sealed with a keyed tag.

`CursorKeys.seal` makes the opaque text that hosts get. Only the gateway can make one, and it opens
for the same caller, mount and list alone. It is authenticated and not encrypted: a cursor has the
time and the id of a task of the caller.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest, digest

from taskgate.domain.listing import Position
from taskgate.errors import InvalidParams

MAX_LENGTH = 256
"""Largest number of characters of a cursor; with the gateway's own task ids it has 75."""

_PURPOSE = "taskgate tasks/list cursor 1"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_TAG_SIZE, _TIME_SIZE = 16, 8


@dataclass(slots=True)
class CursorKeys:
    """Keys that seal with `current` and open with either, so that a key can be replaced under load.

    A reload of the configuration sets both.
    """

    current: bytes = field(repr=False)
    previous: bytes | None = field(default=None, repr=False)

    def seal(self, position: Position, *, context: str, mount: str, listing: str = "") -> str:
        """Seal a position; the cursor is base64url without padding.

        `listing` is the fingerprint of the list's filter and order: a cursor opens in its own list
        only. The time must be aware and keeps its microseconds. ValueError for an id that makes the
        cursor too long to open.
        """
        time, id = position
        body = ((time - _EPOCH) // _TICK).to_bytes(_TIME_SIZE, "big", signed=True) + id.encode()
        cursor = _sealed(self.current, body, (context, mount, listing))
        if len(cursor) > MAX_LENGTH:
            raise ValueError("the id is too long for a cursor")
        return cursor.decode()

    def open(self, cursor: str, *, context: str, mount: str, listing: str = "") -> Position:
        """The position, its time in UTC.

        Raises InvalidParams for any text that was not sealed for exactly this list. The message is
        always the same, so that it reveals nothing.
        """
        body = _body(cursor)
        for key in (self.current, self.previous):
            # Compared whole after sealing anew, so that a cursor has one spelling: base64 alone lets some bits vary.
            if key is not None and compare_digest(
                _sealed(key, body, (context, mount, listing)), cursor.encode("ascii")
            ):
                time = int.from_bytes(body[:_TIME_SIZE], "big", signed=True)
                return Position(_EPOCH + time * _TICK, body[_TIME_SIZE:].decode())
        raise _invalid()


def _sealed(key: bytes, body: bytes, bound_to: tuple[str, str, str]) -> bytes:
    # JSON separates the parts whatever they contain. Its one line ends at the newline; the body is all that follows.
    message = json.dumps([_PURPOSE, *bound_to]).encode() + b"\n" + body
    return urlsafe_b64encode(digest(key, message, sha256)[:_TAG_SIZE] + body).rstrip(b"=")


def _body(cursor: str) -> bytes:
    """The body (time and id) in a cursor, not yet verified; raises InvalidParams."""
    if len(cursor) > MAX_LENGTH or not cursor.isascii():
        raise _invalid()
    try:
        return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))[_TAG_SIZE:]
    except Error:
        raise _invalid() from None


def _invalid() -> InvalidParams:
    return InvalidParams("Invalid cursor")
