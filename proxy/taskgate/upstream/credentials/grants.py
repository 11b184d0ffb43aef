"""OAuth token requests: `TokenEndpoint` sends client credentials or a token exchange.

`speaking.Credentials` creates one per server, and requests a token when it has none cached that is
still valid. Each `grant` is one POST to the endpoint. It returns a token and its lifetime, or
raises UpstreamFailed; no exception of aiohttp passes through.

No error or log line contains what was sent to the endpoint. Of its answer, only known error codes
are logged.
"""

import asyncio
import re
from base64 import b64encode
from logging import getLogger
from typing import Final, NamedTuple
from urllib.parse import quote_plus

import orjson
from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    hdrs,
)

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.settings import GrantKind, GrantSettings

MAX_ANSWER: Final = 64 * 1024
"""The most bytes of an answer; no token that a server accepts is nearly as large."""
UNSAID: Final = 60.0
"""The lifetime in seconds that is assumed if the endpoint states none."""
LONGEST: Final = 86_400.0
"""The longest lifetime in seconds; a longer one of the endpoint is cut to it."""

_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - what kind of token, not one
_JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
# RFC 6750, 2.1: the characters of a bearer token.
_BEARER: Final = re.compile(r"[A-Za-z0-9._~+/-]{1,8192}=*")
_SECONDS: Final = re.compile(r"[0-9]{1,10}")
_CODES: Final = frozenset(
    {
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "invalid_scope",
        "invalid_target",
        "invalid_token",
        "unauthorized_client",
        "unsupported_grant_type",
    }
)
"""Error codes that are logged: RFC 6749, 5.2, RFC 6750, 3.1 and RFC 8693, 2.2.2."""
# Error codes for which the subject token may be the cause. RFC 8693 prescribes invalid_request for
# it; endpoints use the others as well.
_OF_SUBJECTS: Final = frozenset({"invalid_grant", "invalid_request", "invalid_token"})

log = getLogger("taskgate.credentials")


class Granted(NamedTuple):
    """A token, and its lifetime in seconds."""

    token: str
    lifetime: float


class SubjectRefused(failures.StaleToken):
    """The endpoint refused, and the caller's token (the subject token) may be the cause.

    With a newer token of the caller the request may succeed. It is raised in place of `failure`,
    with the same reason and text.
    """

    def __init__(self, failure: UpstreamFailed) -> None:
        super().__init__(UpstreamReason(failure.reason), str(failure), dispatched=failure.dispatched)


class _Refused(Exception):
    """No token was granted. `reason` decides the host's error; `word` is logged for operators: an
    error code of the endpoint, or a word of this module. It is caught in `TokenEndpoint.grant`."""

    def __init__(self, reason: UpstreamReason, word: str) -> None:
        super().__init__(word)
        self.reason = reason
        self.word = word


class TokenEndpoint:
    """One token endpoint, which grants tokens for one server, named `upstream` in log lines.

    `patience` is the timeout of a token request in seconds. It belongs to one event loop, and its
    owner closes it at the end.
    """

    def __init__(self, settings: GrantSettings, *, upstream: str, patience: float) -> None:
        self._settings = settings
        self._upstream = upstream
        self._patience = patience
        self._headers = {
            hdrs.ACCEPT: "application/json",
            hdrs.ACCEPT_ENCODING: "identity",
            hdrs.AUTHORIZATION: basic(settings.client_id, settings.client_secret),
            hdrs.USER_AGENT: "taskgate",
        }
        self._session: ClientSession | None = None
        # The word that was logged last; None after a success, so that the next failure is logged.
        self._told: str | None = None
        self._closed = False

    async def grant(self, subject_token: str | None) -> Granted:
        """Request a new token. For a token exchange, `subject_token` is the caller's token, else
        None.

        Raises UpstreamFailed; SubjectRefused, which is one, if the subject token may be the cause.
        """
        try:
            granted = read_answer(*await self._ask(form_of(self._settings, subject_token)))
        except _Refused as refused:
            self._tell(refused.word)
            failure = failures.no_credentials(refused.reason)
            if subject_token is not None and refused.word in _OF_SUBJECTS:
                failure = SubjectRefused(failure)
            raise failure.copy() from None
        self._told = None
        return granted

    async def close(self) -> None:
        """Abort every request. From now on `grant` fails, and no request is made. A second call
        does nothing."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(self, form: dict[str, str]) -> tuple[int, bytes]:
        """POST the form; return status and body of the answer, whatever the status. Raises
        _Refused."""
        if self._closed:
            raise _Refused(UpstreamReason.UNREACHABLE, "closed")
        if self._session is None:
            self._session = _new_session()
        url, headers = self._settings.token_url, self._headers
        try:
            async with (
                asyncio.timeout(self._patience),
                self._session.post(url, data=form, headers=headers, allow_redirects=False) as response,
            ):
                return response.status, await _read(response)
        except TimeoutError:
            raise _Refused(UpstreamReason.TIMEOUT, "timeout") from None
        except ClientConnectorError:
            raise _Refused(UpstreamReason.UNREACHABLE, "unreachable") from None
        except (ClientError, OSError, ValueError):
            raise _Refused(UpstreamReason.UNREACHABLE, "broken") from None

    def _tell(self, word: str) -> None:
        """Log why there is no token, unless the last failure had the same word."""
        # Not for each call: hosts must not be able to fill the log.
        if self._told != word:
            self._told = word
            log.warning("could not get credentials for a server", extra={"upstream": self._upstream, "reason": word})


def basic(client_id: str, client_secret: str) -> str:
    """Return the value of `Authorization` by which the gateway authenticates as a client.

    It is the Basic form of RFC 6749, 2.3.1, which every endpoint accepts.
    """
    return "Basic " + b64encode(f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()).decode()


def form_of(settings: GrantSettings, subject_token: str | None) -> dict[str, str]:
    """Return the form fields of the token request. `subject_token` is used for an exchange only,
    and then required."""
    form = {"grant_type": "client_credentials"}
    if settings.kind is GrantKind.TOKEN_EXCHANGE:
        assert subject_token is not None, "a token exchange needs the caller's token"
        form = {
            "grant_type": _EXCHANGE,
            "subject_token": subject_token,
            "subject_token_type": _ACCESS_TOKEN,
            "requested_token_type": _ACCESS_TOKEN,
        }
    for name, value in (("resource", settings.resource), ("audience", settings.audience)):
        if value is not None:
            form[name] = value
    if settings.scopes:
        form["scope"] = " ".join(settings.scopes)
    return form


def read_answer(status: int, body: bytes) -> Granted:
    """Return the token in an answer. Raises _Refused if there is none, or it is no bearer token."""
    if status != 200:
        raise _refusal(status, body)
    answer = _object(body)
    token, kind = answer.get("access_token"), answer.get("token_type")
    issued = answer.get("issued_token_type", _ACCESS_TOKEN)
    if not isinstance(token, str) or not _BEARER.fullmatch(token):
        raise _Refused(UpstreamReason.REFUSED, "no_token")
    if not isinstance(kind, str) or kind.lower() != "bearer" or issued not in (_ACCESS_TOKEN, _JWT):
        raise _Refused(UpstreamReason.REFUSED, "token_type")
    return Granted(token, _lifetime(answer.get("expires_in")))


def _refusal(status: int, body: bytes) -> _Refused:
    """Return the error for an answer with an error status or a redirect."""
    if 300 <= status < 400:
        return _Refused(UpstreamReason.REFUSED, "redirect")
    if status >= 500:
        return _Refused(UpstreamReason.UNREACHABLE, "status")
    try:
        code = _object(body).get("error")
    except _Refused:
        code = None
    return _Refused(UpstreamReason.REFUSED, code if isinstance(code, str) and code in _CODES else "status")


def _object(body: bytes) -> dict[str, object]:
    """Return the JSON object of a body. Raises _Refused for anything else."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):
        raise _Refused(UpstreamReason.REFUSED, "not_json")
    return answer


def _lifetime(said: object) -> float:
    """Return the lifetime in seconds for a value of `expires_in`, from 0 to LONGEST."""
    # Some endpoints write the number as text.
    if isinstance(said, str) and _SECONDS.fullmatch(said):
        said = int(said)
    if isinstance(said, bool) or not isinstance(said, int | float):
        return UNSAID
    return float(min(max(said, 0), LONGEST))


def _new_session() -> ClientSession:
    # Token requests are minutes apart: a reused connection would be closed by then.
    return ClientSession(
        connector=TCPConnector(force_close=True, use_dns_cache=False),
        cookie_jar=DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        timeout=ClientTimeout(total=None, sock_connect=None),
    )


async def _read(response: ClientResponse) -> bytes:
    """Read the body. Raises _Refused if it exceeds MAX_ANSWER."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MAX_ANSWER:
            raise _Refused(UpstreamReason.REFUSED, "too_large")
    return bytes(body)
