"""Access to the operators' listener: `OperatorAccess` finds the token of a request and its role.

A token is compared in constant time with all configured ones. A right token always passes, so
that others at the address of an operator cannot shut it out. Wrong ones of an address are limited. A
token has too many bits to be guessed. A request of a web page of another origin is
refused. The console signs in with a token. After that it shows the key of a session in a cookie, and
the page's part of it in a header. Browsers send a cookie to each port of a host, so other web
servers get it. The page's part is in the storage of the page, whose origin has a port.
"""

from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest, digest
from ipaddress import ip_address
from math import ceil
from typing import Any, Final, NamedTuple

from taskgate.admission.rates import address_block
from taskgate.domain.rates import RateLimit, gcra
from taskgate.domain.record import CallerNames

WRONG_TOKENS: Final = 10
"""Wrong tokens that an address may show at once."""
SECONDS_PER_TOKEN: Final = 6.0
"""Seconds after which an address may show one more wrong token."""
MOST_ADDRESSES: Final = 1024
"""Addresses whose wrong tokens are counted apart; the others are counted together."""
COOKIE: Final = "taskgate_console"
"""The cookie with the key of a session of the console."""
PAGE_KEY: Final = "Taskgate-Console"
"""The header with the page's part of a session."""
SECRET_BYTES: Final = 32
"""Random bytes of a key, and of the secret that makes the page's part of it."""
SESSION_SECONDS: Final = 8 * 3600
"""Seconds after which a session of the console ends."""
MOST_SESSIONS: Final = 64
"""The most sessions of the console; one more ends the oldest."""
MOST_OF_TOKEN: Final = 16
"""The most sessions with one token, so that it leaves some to others."""
OWN_TOKEN: Final = "own_token"  # noqa: S105 - a name
"""The name of the token that a gateway makes for itself."""
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
        """Seconds until the address may show a wrong token again; 0 if it may now."""
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


class SignedIn(NamedTuple):
    """A session of the console: its operator, the key for the cookie, and the page's part of it."""

    operator: Operator
    key: str
    page_key: str


class _Session(NamedTuple):
    """The digest of its token, the time of its end, and what makes the page's part of its key."""

    token: bytes
    until: float
    secret: bytes


class ConsoleSessions:
    """The sessions of the console, in memory. `elapsed` returns monotonic seconds.

    A session has the digest of its token. Keys are stored as digests too.
    """

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()

    def open(self, key: str, token: bytes, secret: bytes) -> str:
        """Open a session of the token with that digest, and return the page's part of its key.

        A session of that key and token begins anew, and its parts stay. Another one ends the oldest of
        MOST_OF_TOKEN with the same token, or of MOST_SESSIONS.
        """
        earlier = self._sessions.pop(_digest(key), None)
        if earlier is not None and earlier.token == token:
            secret = earlier.secret
        of_token = [each for each, session in self._sessions.items() if session.token == token]
        if len(of_token) >= MOST_OF_TOKEN:
            del self._sessions[of_token[0]]
        elif len(self._sessions) >= MOST_SESSIONS:
            self._sessions.popitem(last=False)
        self._sessions[_digest(key)] = _Session(token, self._elapsed() + SESSION_SECONDS, secret)
        return _page_key(secret, key)

    def token_of(self, key: str) -> bytes | None:
        """The digest of the token of a session; None if it has ended. The key alone permits nothing."""
        session = self._sessions.get(_digest(key))
        return None if session is None or session.until <= self._elapsed() else session.token

    def find(self, key: str, page_key: str) -> bytes | None:
        """The digest of the token of a session; None if it has ended, or `page_key` is not its part."""
        token = self.token_of(key)
        if token is None:
            return None
        expected = _page_key(self._sessions[_digest(key)].secret, key)
        return token if compare_digest(expected.encode(), page_key.encode(errors="surrogateescape")) else None

    def end(self, key: str) -> None:
        """End a session, if there is one of that key."""
        self._sessions.pop(_digest(key), None)

    def retain(self, tokens: Collection[bytes]) -> None:
        """End the sessions of all other tokens."""
        for key in [key for key, session in self._sessions.items() if session.token not in tokens]:
            del self._sessions[key]

    def __len__(self) -> int:
        return len(self._sessions)


class OperatorAccess:
    """The tokens of operators, what they may see, and the sessions of the console.

    A reload sets other tokens with `replace`. While none is configured, `own_token` is good, if it is given.
    """

    def __init__(self, elapsed: Callable[[], float], own_token: bytes | None = None) -> None:
        self._own = {} if own_token is None else {own_token: Operator(OWN_TOKEN, Role.OPERATOR)}
        self.elapsed = elapsed
        """Monotonic seconds."""
        self.shows_payloads = False
        """Whether operators may read the payloads of tasks: `admin.payloads`."""
        self.names_callers = True
        """Whether operators see names of callers: `admin.identity`. `show_names` sets it."""
        self.names_changes = 0
        """How often that has changed."""
        self.allowed_hosts: Collection[str] = ()
        """The names of the listener in lower case, with `*.` for all names below: `admin.allowed_hosts`."""
        self._digests: tuple[tuple[bytes, Operator], ...] = ()
        self._wrong = WrongTokens(elapsed)
        self._sessions = ConsoleSessions(elapsed)

    def allows_host(self, host: str) -> bool:
        """Return whether a Host header is an address, localhost or a name that is allowed.

        A web page can point any other name here.
        """
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        try:
            ip_address(name.strip("[]"))
        except ValueError:
            name = name.lower().removesuffix(".")
        else:
            return True
        if name == "localhost" or name in self.allowed_hosts:
            return True
        while name:
            _, _, name = name.partition(".")
            if f"*.{name}" in self.allowed_hosts:
                return True
        return False

    @property
    def has_tokens(self) -> bool:
        """Whether any token is configured."""
        return bool(self._digests)

    def show_names(self, *, names_callers: bool) -> None:
        """Show names of callers from now on, or none."""
        self.names_changes += names_callers is not self.names_callers
        self.names_callers = names_callers

    def names(self, names: CallerNames | None) -> CallerNames | None:
        """The names of a caller, if operators see them."""
        return names if self.names_callers else None

    def replace(self, tokens: Mapping[bytes, Operator]) -> bool:
        """Take these tokens, or without any the own one, in place of all others; return whether that is a change.

        Sessions of the console end with their token.
        """
        digests = tuple((sha256(token).digest(), operator) for token, operator in (tokens or self._own).items())
        before, self._digests = self._digests, digests
        self._sessions.retain([digest for digest, _ in digests])
        return before != digests

    def identify(
        self, headers: Mapping[str, str], authorizations: list[str], address: str, method: str = "POST"
    ) -> Operator:
        """The operator whose token the request has, in one `Authorization` header.

        Without such a header, the two parts of a session of the console are read. `address` is canonical,
        as from `read_peer`. Raises ApiError: 401 without a right token, 403 for a foreign origin or
        if no token is configured, 429 after too many wrong ones.
        """
        check_origin(headers)
        if not self._digests:
            raise ApiError(403, "no_token_configured", UNCONFIGURED)
        if not authorizations:
            return self._of_session(headers, method)
        return self._of_token(authorizations, address)[1]

    def find(self, headers: Mapping[str, str], authorizations: list[str]) -> Operator | None:
        """The operator of a request that `identify` has accepted before; None if that has ended.

        Nothing is counted: the token may have been right when the request came.
        """
        if authorizations:
            shown = [_digest(authorizations[0].partition(" ")[2].strip())]
        else:
            shown = self._tokens_of_session(headers)
        return next((operator for digest, operator in self._digests if digest in shown), None)

    def sign_in(self, headers: Mapping[str, str], authorizations: list[str], address: str, chance: bytes) -> SignedIn:
        """Open a session of the console, made of `chance`: twice SECRET_BYTES.

        If the cookie has the session of this token, that begins anew: two pages of a browser share it.
        Another session of the cookie ends. Raises ApiError as `identify` does, and 403 unless a page of
        this listener asks.
        """
        check_origin(headers)
        if not self._digests:
            raise ApiError(403, "no_token_configured", UNCONFIGURED)
        _check_page(headers, "POST")
        token, operator = self._of_token(authorizations, address)
        keys = _session_keys(headers)
        shared = [key for key in keys if self._sessions.token_of(key) == token]
        for ended in set(keys).difference(shared[:1]):
            self._sessions.end(ended)
        key = shared[0] if shared else _text(chance[:SECRET_BYTES])
        return SignedIn(operator, key, self._sessions.open(key, token, chance[SECRET_BYTES:]))

    def sign_out(self, headers: Mapping[str, str]) -> None:
        """End the session whose key the request has."""
        for key in _session_keys(headers):
            self._sessions.end(key)

    def _of_token(self, authorizations: list[str], address: str) -> tuple[bytes, Operator]:
        scheme, _, given = authorizations[0].partition(" ") if len(authorizations) == 1 else ("", "", "")
        if scheme.lower() != "bearer" or not given.strip():
            raise _unauthenticated()
        shown = _digest(given.strip())
        # All are compared, so that the time tells nothing of which one was nearly right.
        found = [each for each in self._digests if compare_digest(each[0], shown)]
        if found:
            return found[0]
        wait = self._wrong.wait(address)
        if wait > 0:
            text = "too many wrong tokens from this address: try again later"
            raise ApiError(429, "too_many_wrong_tokens", text, **{"Retry-After": str(ceil(wait))})
        self._wrong.add(address)
        raise _unauthenticated()

    def _of_session(self, headers: Mapping[str, str], method: str) -> Operator:
        tokens = self._tokens_of_session(headers)
        found = [operator for token, operator in self._digests if token in tokens]
        if not found:
            raise _unauthenticated()
        _check_page(headers, method)
        return found[0]

    def _tokens_of_session(self, headers: Mapping[str, str]) -> list[bytes]:
        page_key = headers.get(PAGE_KEY, "")
        found = [self._sessions.find(key, page_key) for key in _session_keys(headers)]
        return [token for token in found if token is not None]


def check_origin(headers: Mapping[str, str]) -> None:
    """Raise ApiError (403) for a request that a web page of another origin made."""
    origin, host = headers.get("Origin"), headers.get("Host", "").lower()
    # TLS may end in front of the gateway, so either scheme is the own one.
    is_own = origin is None or origin.lower() in (f"http://{host}", f"https://{host}")
    if not is_own or headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise ApiError(403, "foreign_origin", "not allowed: the request comes from a web page of another origin")


def _check_page(headers: Mapping[str, str], method: str) -> None:
    """Raise ApiError (403) unless a page of this listener made the request.

    `check_origin` has compared both headers. Browsers send `Sec-Fetch-Site` to secure addresses and
    this machine only, and `Origin` with all methods but GET. A GET without either changes nothing,
    and its answer stays with its own origin.
    """
    site = headers.get("Sec-Fetch-Site")
    if site != "same-origin" and (site is not None or (method != "GET" and "Origin" not in headers)):
        raise ApiError(403, "foreign_origin", "not allowed: a cookie is for the pages of this listener only")


def _session_keys(headers: Mapping[str, str]) -> list[str]:
    pairs = [part.strip().partition("=") for part in headers.get("Cookie", "").split(";")]
    return [value for name, _, value in pairs if name == COOKIE]


def _page_key(secret: bytes, key: str) -> str:
    return _text(digest(secret, key.encode(errors="surrogateescape"), "sha256"))


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogateescape")).digest()


def _unauthenticated() -> ApiError:
    return ApiError(401, "not_authenticated", "not authenticated", **{"WWW-Authenticate": "Bearer"})
