"""Sealed `requestState` values, which modern hosts return with their retries.

`RequestStateKeys.seal` makes the text that hosts send back unread. Only the gateway can make one,
and it opens for the same caller, mount and request alone. It is authenticated and not encrypted: a
state has the id of a held call, or the server's own state.
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
from typing import Final, NamedTuple, Protocol

from taskgate.errors import InvalidParams

MAX_PASS_THROUGH: Final = 64 * 1024
"""Bytes of a server's own state in UTF-8."""

_PURPOSE: Final = "taskgate requestState 1"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
_TAG_SIZE, _TIME_SIZE, _ROUND_SIZE = 32, 8, 4
_HELD, _PASS_THROUGH, _EMPTY_PASS_THROUGH = b"h", b"p", b"n"
_MAX_BYTES: Final = _TAG_SIZE + _TIME_SIZE + 1 + MAX_PASS_THROUGH
MAX_LENGTH: Final = (_MAX_BYTES * 4 + 2) // 3
"""Characters of a sealed state."""


class HeldCallState(NamedTuple):
    """The id of a call that the gateway holds, and the round that is being answered, from 0."""

    id: str
    round: int


class PassThroughState(NamedTuple):
    """The state of a modern server, to be passed back to it; None if it sent none."""

    state: str | None


class RequestStates(Protocol):
    """Seals and opens states with the current keys, as `RequestStateKeys` does."""

    def seal(
        self, state: HeldCallState | PassThroughState, *, context: str, mount: str, digest: str, until: datetime
    ) -> str:
        """Seal a state for one request, until `until`."""
        ...

    def open(
        self, text: str, *, contexts: Sequence[str], mount: str, digest: str, now: datetime
    ) -> HeldCallState | PassThroughState:
        """Open a state of the same request; raises InvalidParams."""
        ...


@dataclass(frozen=True, slots=True)
class RequestStateKeys:
    """Keys that seal with `current` and open with either, so that a key can be replaced under load."""

    current: bytes = field(repr=False)
    previous: bytes | None = field(default=None, repr=False)

    def seal(
        self, state: HeldCallState | PassThroughState, *, context: str, mount: str, digest: str, until: datetime
    ) -> str:
        """Seal a state that is valid before `until`; the text is base64url without padding.

        `digest` is of the request: the state opens for no other. The time must be aware and keeps
        its microseconds. ValueError for a state that is too long, or is not encodable.
        """
        body = ((until - _EPOCH) // _TICK).to_bytes(_TIME_SIZE, "big", signed=True) + _encode(state)
        if _TAG_SIZE + len(body) > _MAX_BYTES:
            raise ValueError("the state is too long to be sealed")
        return _sealed(self.current, body, (context, mount, digest)).decode()

    def open(
        self, text: str, *, contexts: Sequence[str], mount: str, digest: str, now: datetime
    ) -> HeldCallState | PassThroughState:
        """The state that was sealed for this request in one of these contexts.

        Raises InvalidParams for any other text, and after the time of the state. The message is
        always the same, so that it reveals nothing.
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
    # JSON separates the parts whatever they contain; the body is last and needs no delimiter.
    message = json.dumps([_PURPOSE, *bound_to]).encode() + b"\n" + body
    return urlsafe_b64encode(authenticate(key, message, sha256) + body).rstrip(b"=")


def _encode(state: HeldCallState | PassThroughState) -> bytes:
    if isinstance(state, HeldCallState):
        return _HELD + state.round.to_bytes(_ROUND_SIZE, "big") + state.id.encode()
    return _EMPTY_PASS_THROUGH if state.state is None else _PASS_THROUGH + state.state.encode()


def _decode(encoded: bytes) -> HeldCallState | PassThroughState:
    """The state in verified bytes."""
    kind, rest = encoded[:1], encoded[1:]
    if kind == _HELD:
        return HeldCallState(rest[_ROUND_SIZE:].decode(), int.from_bytes(rest[:_ROUND_SIZE], "big"))
    return PassThroughState(rest.decode() if kind == _PASS_THROUGH else None)


def _body(text: str) -> bytes:
    """The body of a sealed state, not yet verified."""
    if len(text) > MAX_LENGTH or not text.isascii():
        raise _invalid()
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))[_TAG_SIZE:]
    except Error:
        raise _invalid() from None


def _invalid() -> InvalidParams:
    return InvalidParams("Invalid requestState")
