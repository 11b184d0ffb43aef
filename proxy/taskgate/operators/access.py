"""Access to the operators' listener: `OperatorAccess` finds the token of a request and its role.

A token is compared in constant time with all configured ones. An address that shows too many wrong
tokens is refused for a while, also with a right one. A request of a web page of another origin is
refused.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest
from math import ceil
from typing import Any, Final, NamedTuple

from taskgate.admission.rates import address_block
from taskgate.domain.rates import RateLimit, gcra

WRONG_TOKENS: Final = 10
"""Wrong tokens that an address may show at once."""
SECONDS_PER_TOKEN: Final = 6.0
"""Seconds after which an address may show one more wrong token."""
MOST_ADDRESSES: Final = 1024
"""Addresses whose wrong tokens are counted apart; the others are counted together."""
UNCONFIGURED: Final = "not allowed: no token is configured (admin.token_file, admin.tokens)"


class Role(StrEnum):
    """The permission of a token: to look, or to act as well."""

    VIEWER = "viewer"
    OPERATOR = "operator"


class Operator(NamedTuple):
    """The owner of a token: the name that the configuration gives it, and its role."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Whether the token allows what `role` may do."""
        return self.role is Role.OPERATOR or role is Role.VIEWER


class ApiError(Exception):
    """A refusal: the HTTP status, a code for programs, and a message for people.

    `operator` is set once the token is known.
    """

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers
        self.operator: Operator | None = None

    def document(self) -> dict[str, Any]:
        """The JSON body of the answer."""
        return {"error": {"code": self.code, "message": self.message}}


class WrongTokens:
    """The wrong tokens of each address. `elapsed` returns monotonic seconds.

    `_until` has the state of each address in the cell rate algorithm: the time at which its tokens
    are forgotten. Addresses whose time has passed are dropped first. Beyond MOST_ADDRESSES, new ones
    share one count.
    """

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._until: OrderedDict[str, float] = OrderedDict()

    def wait(self, address: str) -> float:
        """Seconds until the address may show a token again; 0 if it may now."""
        return gcra(self._until.get(self._key(address)), self._elapsed(), _WRONG)[0].retry_after

    def add(self, address: str) -> None:
        """Count a wrong token."""
        key = self._key(address)
        self._until[key] = gcra(self._until.get(key), self._elapsed(), _WRONG)[1]
        self._until.move_to_end(key)

    def __len__(self) -> int:
        return len(self._until)

    def _key(self, address: str) -> str:
        key = address_block(address)
        if key in self._until or len(self._until) < MOST_ADDRESSES:
            return key
        now = self._elapsed()
        for each in [each for each, until in self._until.items() if until <= now]:
            del self._until[each]
        return key if len(self._until) < MOST_ADDRESSES else _OTHERS


_OTHERS: Final = ""
_WRONG: Final = RateLimit(every=SECONDS_PER_TOKEN, burst=WRONG_TOKENS)


class OperatorAccess:
    """The tokens of operators. A reload sets others with `replace`."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self.elapsed = elapsed
        """Monotonic seconds."""
        self._digests: tuple[tuple[bytes, Operator], ...] = ()
        self._wrong = WrongTokens(elapsed)

    @property
    def has_tokens(self) -> bool:
        """Whether any token is configured."""
        return bool(self._digests)

    def replace(self, tokens: Mapping[bytes, Operator]) -> bool:
        """Take these tokens in place of all others; return whether that is a change."""
        digests = tuple((sha256(token).digest(), operator) for token, operator in tokens.items())
        before, self._digests = self._digests, digests
        return before != digests

    def identify(self, headers: Mapping[str, str], authorizations: list[str], address: str) -> Operator:
        """The operator whose token the request has, in one `Authorization` header.

        `address` is canonical, as from `read_peer`. Raises ApiError: 401 without a right token, 403
        for a foreign origin or if no token is configured, 429 after too many wrong ones.
        """
        check_origin(headers)
        if not self._digests:
            raise ApiError(403, "no_token_configured", UNCONFIGURED)
        scheme, _, given = authorizations[0].partition(" ") if len(authorizations) == 1 else ("", "", "")
        given = given.strip()
        if scheme.lower() != "bearer" or not given:
            raise _unauthenticated()
        wait = self._wrong.wait(address)
        if wait > 0:
            text = "too many wrong tokens from this address: try again later"
            raise ApiError(429, "too_many_wrong_tokens", text, **{"Retry-After": str(ceil(wait))})
        shown = sha256(given.encode(errors="surrogateescape")).digest()
        # All are compared, so that the time tells nothing of which one was nearly right.
        found = [operator for digest, operator in self._digests if compare_digest(digest, shown)]
        if not found:
            self._wrong.add(address)
            raise _unauthenticated()
        return found[0]


def check_origin(headers: Mapping[str, str]) -> None:
    """Raise ApiError (403) for a request that a web page of another origin made."""
    origin, host = headers.get("Origin"), headers.get("Host", "").lower()
    # TLS may end in front of the gateway, so either scheme is the own one.
    is_own = origin is None or origin.lower() in (f"http://{host}", f"https://{host}")
    if not is_own or headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise ApiError(403, "foreign_origin", "not allowed: the request comes from a web page of another origin")


def _unauthenticated() -> ApiError:
    return ApiError(401, "not_authenticated", "not authenticated", **{"WWW-Authenticate": "Bearer"})
