"""What hosts of the modern era are given to hand back with their answers, sealed: nobody else can make or use it.

Opaque to hosts, but no secret from them: a state holds where a held call waits, or what a server itself had them hand
back. What a round is, and how often it may be answered, is the business of who holds the call.
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

MAX_PASSED: Final = 64 * 1024
"""Bytes of a server's own state, as UTF-8."""

_PURPOSE: Final = "taskgate requestState 1"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
_TAG_SIZE, _TIME_SIZE, _ROUND_SIZE = 32, 8, 4
_HELD, _PASSED, _NOTHING_PASSED = b"h", b"p", b"n"
_LONGEST: Final = _TAG_SIZE + _TIME_SIZE + 1 + MAX_PASSED
MAX_LENGTH: Final = (_LONGEST * 4 + 2) // 3
"""Characters of a sealed state, which is base64url without padding."""


class HeldCall(NamedTuple):
    """The call that waits under that id, and which of its rounds is being answered: 0 is the first."""

    id: str
    round: int


class Passed(NamedTuple):
    """What a server of the modern era wants handed back; None where it gave nothing."""

    state: str | None


class States(Protocol):
    """Seals and opens, with the keys that there are at the time; see StateKeys."""

    def seal(self, what: HeldCall | Passed, *, context: str, mount: str, digest: str, until: datetime) -> str:
        """See StateKeys."""
        ...

    def open(self, text: str, *, contexts: Sequence[str], mount: str, digest: str, now: datetime) -> HeldCall | Passed:
        """See StateKeys."""
        ...


@dataclass(frozen=True, slots=True)
class StateKeys:
    """Seals with `current`, and opens what was sealed with either key, so that a key can be replaced under load."""

    current: bytes = field(repr=False)
    previous: bytes | None = field(default=None, repr=False)

    def seal(self, what: HeldCall | Passed, *, context: str, mount: str, digest: str, until: datetime) -> str:
        """The state of a request of one context at one mount, good before `until`; base64url, without padding.

        `digest` is of the request, so that the state opens for no other. The time must be aware and keeps its
        microseconds. ValueError for what is too long to open, or no text that could be written.
        """
        body = ((until - _EPOCH) // _TICK).to_bytes(_TIME_SIZE, "big", signed=True) + _written(what)
        if _TAG_SIZE + len(body) > _LONGEST:
            raise ValueError("the state is too long to be sealed")
        return _sealed(self.current, body, (context, mount, digest)).decode()

    def open(self, text: str, *, contexts: Sequence[str], mount: str, digest: str, now: datetime) -> HeldCall | Passed:
        """What was sealed for this request in one of these contexts.

        InvalidParams, always in the same words, for all that was not sealed for just this, or is past its time.
        """
        body = _body(text)
        keys = [self.current] if self.previous is None else [self.current, self.previous]
        for key, context in product(keys, contexts):
            # Sealed anew and compared whole, a state has one spelling: base64 alone would let some bits vary.
            if compare_digest(_sealed(key, body, (context, mount, digest)), text.encode("ascii")):
                until = _EPOCH + int.from_bytes(body[:_TIME_SIZE], "big", signed=True) * _TICK
                if now < until:
                    return _read(body[_TIME_SIZE:])
        raise _invalid()


def _sealed(key: bytes, body: bytes, of: tuple[str, str, str]) -> bytes:
    # JSON keeps the parts apart, whatever is in them; the body is last and needs no mark where it ends.
    message = json.dumps([_PURPOSE, *of]).encode() + b"\n" + body
    return urlsafe_b64encode(authenticate(key, message, sha256) + body).rstrip(b"=")


def _written(what: HeldCall | Passed) -> bytes:
    if isinstance(what, HeldCall):
        return _HELD + what.round.to_bytes(_ROUND_SIZE, "big") + what.id.encode()
    return _NOTHING_PASSED if what.state is None else _PASSED + what.state.encode()


def _read(written: bytes) -> HeldCall | Passed:
    """What our own bytes say: they are believed by now."""
    kind, rest = written[:1], written[1:]
    if kind == _HELD:
        return HeldCall(rest[_ROUND_SIZE:].decode(), int.from_bytes(rest[:_ROUND_SIZE], "big"))
    return Passed(rest.decode() if kind == _PASSED else None)


def _body(text: str) -> bytes:
    """What a state claims to hold, not yet believed."""
    if len(text) > MAX_LENGTH or not text.isascii():
        raise _invalid()
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))[_TAG_SIZE:]
    except Error:
        raise _invalid() from None


def _invalid() -> InvalidParams:
    return InvalidParams("Invalid requestState")
