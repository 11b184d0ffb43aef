"""Sealed `requestState` values, which modern hosts return with their retries.

When a call needs input from its modern host, the answer has a `requestState` beside the questions.
`RequestStateKeys.seal` makes this text. The host sends it back unread with the retry of the call,
and `open` returns what was sealed. That is the id of a held call, or the server's own state.

Only the gateway can make such a text. It opens only for the same caller, mount and request, and
until its time is over; it may be opened more than once. It is authenticated and not encrypted.

A context is the key of a caller, derived from its token. One caller has two while the deployment
key is being replaced: `seal` takes the current one, and `open` tries each.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as authenticate
from itertools import product
from typing import Final, NamedTuple

from taskgate.errors import InvalidParams

MAX_PASS_THROUGH: Final = 64 * 1024
"""Largest number of bytes, in UTF-8, of a server's own state."""

_PURPOSE: Final = "taskgate requestState 1"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
_TAG_SIZE, _TIME_SIZE, _ROUND_SIZE = 32, 8, 4
# The first byte of an encoded state: a held call, a server's state (perhaps an empty text), or none from the server.
_HELD, _PASS_THROUGH, _EMPTY_PASS_THROUGH = b"h", b"p", b"n"
_MAX_BYTES: Final = _TAG_SIZE + _TIME_SIZE + 1 + MAX_PASS_THROUGH
MAX_LENGTH: Final = (_MAX_BYTES * 4 + 2) // 3
"""Largest number of characters of a sealed state."""


class HeldCallState(NamedTuple):
    """The id of a call that the gateway holds, and the round that is being answered, from 0."""

    id: str
    round: int


class PassThroughState(NamedTuple):
    """The state of a modern server, to be passed back to it; None if it sent none."""

    state: str | None


@dataclass(slots=True)
class RequestStateKeys:
    """Keys that seal with `current` and open with either, so that a key can be replaced under load.

    A reload of the configuration sets both.
    """

    current: bytes = field(repr=False)
    previous: bytes | None = field(default=None, repr=False)

    def seal(
        self, state: HeldCallState | PassThroughState, *, context: str, mount: str, digest: str, until: datetime
    ) -> str:
        """Seal a state that is valid before `until`; the text is base64url without padding.

        `context` is the key of the caller and `digest` that of the request: the state opens for no
        other. The time must be aware and keeps its microseconds. ValueError for a state that is too
        long, or is not encodable.
        """
        body = ((until - _EPOCH) // _TICK).to_bytes(_TIME_SIZE, "big", signed=True) + _encode(state)
        if _TAG_SIZE + len(body) > _MAX_BYTES:
            raise ValueError("the state is too long to be sealed")
        return _sealed(self.current, body, (context, mount, digest)).decode()

    def open(
        self, text: str, *, contexts: Sequence[str], mount: str, digest: str, now: datetime
    ) -> HeldCallState | PassThroughState:
        """The state that was sealed for this request in one of these contexts.

        `contexts` are all keys of the caller. Raises InvalidParams for any other text, and once the
        time of the state is over. The message is always the same, so that it reveals nothing.
        """
        body = _body(text)
        keys = [self.current] if self.previous is None else [self.current, self.previous]
        for key, context in product(keys, contexts):
            # Compared whole after sealing anew, so that a state has one spelling: base64 alone lets some bits vary.
            if compare_digest(_sealed(key, body, (context, mount, digest)), text.encode("ascii")):
                until = _EPOCH + int.from_bytes(body[:_TIME_SIZE], "big", signed=True) * _TICK
                if now < until:
                    return _decode(body[_TIME_SIZE:])
        raise _invalid()


def _sealed(key: bytes, body: bytes, bound_to: tuple[str, str, str]) -> bytes:
    # JSON separates the parts whatever they contain. Its one line ends at the newline; the body is all that follows.
    message = json.dumps([_PURPOSE, *bound_to]).encode() + b"\n" + body
    return urlsafe_b64encode(authenticate(key, message, sha256) + body).rstrip(b"=")


def _encode(state: HeldCallState | PassThroughState) -> bytes:
    if isinstance(state, HeldCallState):
        return _HELD + state.round.to_bytes(_ROUND_SIZE, "big") + state.id.encode()
    return _EMPTY_PASS_THROUGH if state.state is None else _PASS_THROUGH + state.state.encode()


def _decode(encoded: bytes) -> HeldCallState | PassThroughState:
    """The state in verified bytes, so they are well formed."""
    kind, rest = encoded[:1], encoded[1:]
    if kind == _HELD:
        return HeldCallState(rest[_ROUND_SIZE:].decode(), int.from_bytes(rest[:_ROUND_SIZE], "big"))
    return PassThroughState(rest.decode() if kind == _PASS_THROUGH else None)


def _body(text: str) -> bytes:
    """The body (time and state) in a sealed text, not yet verified; raises InvalidParams."""
    if len(text) > MAX_LENGTH or not text.isascii():
        raise _invalid()
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))[_TAG_SIZE:]
    except Error:
        raise _invalid() from None


def _invalid() -> InvalidParams:
    return InvalidParams("Invalid requestState")
