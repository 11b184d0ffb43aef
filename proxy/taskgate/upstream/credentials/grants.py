"""OAuth token requests: `TokenEndpoint` sends client credentials or the exchange of a caller's token.

`speaking.Credentials` creates one per server, and requests a token when it has none cached that is
still valid. Each `grant` is a POST to the endpoint, which `client_auth` authenticates. It returns a
token and its lifetime, or raises UpstreamFailed; no exception of aiohttp passes through. A request
without an answer, or with one for now (429, 5xx), is repeated within its time: nothing ran yet.

No error or log line contains what was sent to the endpoint. Of its answer, only known error codes
are logged.
"""

import asyncio
import re
from codecs import BOM_UTF8
from datetime import timedelta
from logging import getLogger
from typing import Final

import orjson
from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    hdrs,
)
from yarl import URL

from taskgate.authorities import AuthoritiesRefused, read_trust
from taskgate.clock import Clock, Entropy
from taskgate.content_codings import CodingBroken, CodingRefused, read_plain
from taskgate.egress import ForwardProxy
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.credentials.client_auth import ClientAuthenticator, ClientFileRefused
from taskgate.upstream.credentials.tokens import Granted
from taskgate.upstream.pauses import FOR_NOW, asked_pause, share
from taskgate.upstream.settings import ExchangeProfile, GrantKind, GrantSettings

ANSWER_BESIDE_TOKEN: Final = 48 * 1024
"""The most bytes of an answer beside its token."""
UNSAID: Final = 60.0
"""The lifetime in seconds that is assumed if the endpoint states none."""
LONGEST: Final = 86_400.0
"""The longest lifetime in seconds; a longer one of the endpoint is cut to it."""

ATTEMPTS: Final = 4
"""The most requests for one token."""
PAUSE_FIRST: Final = 0.25
"""The longest pause in seconds before the second attempt; it doubles with each further one."""

_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - what kind of token, not one
_JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
# RFC 6750, 2.1: the characters of a bearer token.
_BEARER: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
# Spellings of the type: `Bearer`, and `BearerToken` of an API gateway, whatever stands between words.
_BEARER_TYPES: Final = frozenset({"bearer", "bearertoken"})
_NO_LETTERS: Final = re.compile(r"[^a-z]+")
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
        "interaction_required",
        "login_required",
        "consent_required",
    }
)
"""Error codes that are logged: RFC 6749, 5.2, RFC 6750, 3.1, RFC 8693, 2.2.2, OpenID Connect, 3.1.2.6."""
_SIGN_IN: Final = ": the user must sign in again in the host"
_INTERACT: Final = (
    ": the identity provider wants the user to act, such as to consent or to confirm a sign-in; "
    "the user must sign in again in the host"
)
# Error codes for which the subject token may be the cause, with what its user can do. RFC 8693
# prescribes invalid_request for it; endpoints use the others as well.
_OF_SUBJECTS: Final = {
    "invalid_grant": _SIGN_IN,
    "invalid_token": _SIGN_IN,
    "invalid_request": "",
    "interaction_required": _INTERACT,
    "login_required": _INTERACT,
    "consent_required": _INTERACT,
}
INVALID_CLIENT: Final = "invalid_client"
_OF_CALLERS: Final = _CODES - {INVALID_CLIENT, "unauthorized_client", "unsupported_grant_type"}
"""Error codes of a token exchange that may be about its caller; the others are about the gateway."""

log = getLogger("taskgate.credentials")


class _Refused(Exception):
    """No token was granted. `reason` decides the host's error; `code` is logged for operators: an
    error code of the endpoint, or a word of this module, with `detail`. `is_for_now`: another
    attempt may succeed, after `retry_after` seconds. It is caught in `TokenEndpoint.grant`."""

    def __init__(
        self,
        reason: UpstreamReason,
        code: str,
        *,
        detail: str = "",
        is_for_now: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(code)
        self.reason = reason
        self.code = code
        self.word = f"{code} {detail}" if detail else code
        self.is_for_now = is_for_now
        self.retry_after = retry_after


class TokenEndpoint:
    """One token endpoint, which grants tokens for one server, named `upstream` in log lines.

    `connect` and `patience` bound an attempt to connect, and a grant with all of its attempts, in
    seconds. A `proxy` leads to the endpoint. It belongs to one event loop, and its owner closes it at
    the end.
    """

    def __init__(
        self,
        settings: GrantSettings,
        *,
        upstream: str,
        connect: float,
        patience: float,
        clock: Clock,
        entropy: Entropy,
        proxy: ForwardProxy | None = None,
    ) -> None:
        self._proxy = proxy
        self._upstream = upstream
        self._connect = connect
        self._patience = patience
        self._clock = clock
        self._entropy = entropy
        self.use(settings)
        self._session: ClientSession | None = None
        # The word that was logged last; None after a success, so that the next failure is logged.
        self._told: str | None = None
        self._closed = False

    def use(self, settings: GrantSettings) -> None:
        """Use these settings from the next request on."""
        self._settings = settings
        self._authenticator = ClientAuthenticator(settings, clock=self._clock, entropy=self._entropy)

    async def grant(self, subject_token: str | None) -> Granted:
        """Request a new token. For a token exchange, `subject_token` is the caller's token, else
        None.

        Raises UpstreamFailed: SubjectRefused if the subject token may be the cause, ClientRefused if
        the gateway itself is.
        """
        try:
            granted = await self._attempts(subject_token)
        except _Refused as refused:
            self._tell(refused.word)
            raise _failure_of(refused, subject_token).copy() from None
        self._told = None
        return granted

    async def _attempts(self, subject_token: str | None) -> Granted:
        """Send the request until it is answered, or its time or its attempts are over. Raises
        _Refused."""
        loop = asyncio.get_running_loop()
        until, longest = loop.time() + self._patience, PAUSE_FIRST
        for attempt in range(1, ATTEMPTS):
            try:
                return await self._ask(subject_token, until)
            except _Refused as refused:
                pause = max(longest * share(self._upstream, attempt), refused.retry_after or 0.0)
                if not refused.is_for_now or loop.time() + pause >= until:
                    raise
            await asyncio.sleep(pause)
            longest *= 2
        return await self._ask(subject_token, until)

    async def close(self) -> None:
        """Abort every request. From now on `grant` fails, and no request is made. A second call
        does nothing."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(self, subject_token: str | None, until: float) -> Granted:
        """Send the request once, and return the token of its answer. Raises _Refused."""
        settings = self._settings
        try:
            async with asyncio.timeout_at(until):
                proof = await self._authenticator.proof()
                # The file is read each time, so that a replaced one counts.
                trusted = True if settings.ca_file is None else await read_trust(settings.ca_file)
                if self._closed:
                    raise _Refused(UpstreamReason.UNREACHABLE, "closed")
                if self._session is None:
                    self._session = _new_session(self._proxy)
                async with self._session.post(
                    URL(settings.token_url, encoded=True),
                    data=form_of(settings, subject_token) | proof.fields,
                    headers=_HEADERS | proof.headers,
                    allow_redirects=False,
                    ssl=trusted,
                    timeout=ClientTimeout(total=None, sock_connect=self._connect),
                ) as response:
                    if response.status in FOR_NOW:
                        raise self._for_now(response)
                    body = await _read(response, settings.max_token + ANSWER_BESIDE_TOKEN)
                    return read_answer(settings, response.status, body)
        except ClientFileRefused as refused:
            raise _Refused(UpstreamReason.REFUSED, "client_file", detail=str(refused)) from None
        except AuthoritiesRefused as refused:
            detail = f"credentials.ca_file: {refused}"
            raise _Refused(UpstreamReason.REFUSED, "ca_file", detail=detail) from None
        except TimeoutError:
            raise _Refused(UpstreamReason.TIMEOUT, "timeout", is_for_now=True) from None
        except ClientConnectorCertificateError:
            raise _Refused(UpstreamReason.UNREACHABLE, "tls") from None
        except ClientConnectorError:
            raise _Refused(UpstreamReason.UNREACHABLE, "unreachable", is_for_now=True) from None
        except (ClientError, OSError, ValueError):
            raise _Refused(UpstreamReason.UNREACHABLE, "broken", is_for_now=not self._closed) from None

    def _for_now(self, response: ClientResponse) -> _Refused:
        """Return the error for a status by which the endpoint refuses for now."""
        asked = asked_pause(response.headers.get(hdrs.RETRY_AFTER, ""), self._clock.wall())
        pause = None if asked is None else asked.total_seconds()
        return _Refused(UpstreamReason.UNREACHABLE, "status", is_for_now=True, retry_after=pause)

    def _tell(self, word: str) -> None:
        """Log why there is no token, unless the last failure had the same word."""
        # Not for each call: hosts must not be able to fill the log.
        if self._told != word:
            self._told = word
            log.warning("could not get credentials for a server", extra={"upstream": self._upstream, "reason": word})


def _failure_of(refused: _Refused, subject_token: str | None) -> UpstreamFailed:
    """Return the failure for hosts of a grant that was refused."""
    pause = None if refused.retry_after is None else timedelta(seconds=refused.retry_after)
    if refused.code == INVALID_CLIENT:
        return failures.ClientRefused(refused.reason, word=refused.word)
    if subject_token is not None and refused.code in _OF_SUBJECTS:
        return failures.SubjectRefused(failures.no_credentials(refused.reason, _OF_SUBJECTS[refused.code]))
    if subject_token is not None and refused.code in _OF_CALLERS:
        return failures.CallerRefused(refused.reason, word=refused.word)
    return failures.no_credentials(refused.reason, retry_after=pause, word=refused.word)


def form_of(settings: GrantSettings, subject_token: str | None) -> dict[str, str]:
    """Return the form fields of the token request. `subject_token` is used for an exchange only,
    and then required."""
    form = {"grant_type": "client_credentials"}
    if settings.kind is GrantKind.TOKEN_EXCHANGE:
        assert subject_token is not None, "a token exchange needs the caller's token"
        if settings.profile is ExchangeProfile.ENTRA:
            # The scopes name the resource; the endpoint has no fields for it.
            return {
                "grant_type": _JWT_BEARER,
                "assertion": subject_token,
                "requested_token_use": "on_behalf_of",
                "scope": " ".join(settings.scopes or (f"{settings.audience}/.default",)),
            }
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


def read_answer(settings: GrantSettings, status: int, body: bytes) -> Granted:
    """Return the token in an answer. Raises _Refused if there is none, or it is no bearer token."""
    if not 200 <= status < 300:
        raise _refusal(status, body)
    answer = _object(body)
    token, kind = answer.get("access_token"), answer.get("token_type")
    issued = answer.get("issued_token_type", _ACCESS_TOKEN)
    if not isinstance(token, str) or not _BEARER.fullmatch(token):
        raise _Refused(UpstreamReason.REFUSED, "no_token")
    if len(token) > settings.max_token:
        raise _Refused(UpstreamReason.REFUSED, "too_large", detail="credentials.max_token")
    if not _is_bearer(kind) or issued not in (_ACCESS_TOKEN, _JWT):
        raise _Refused(UpstreamReason.REFUSED, "token_type")
    return Granted(token, _lifetime(answer.get("expires_in")))


def _is_bearer(kind: object) -> bool:
    """Whether a value of `token_type` says bearer. So does a missing one."""
    return kind is None or (isinstance(kind, str) and _NO_LETTERS.sub("", kind.lower()) in _BEARER_TYPES)


def _refusal(status: int, body: bytes) -> _Refused:
    """Return the error for an answer with an error status or a redirect."""
    if 300 <= status < 400:
        return _Refused(UpstreamReason.REFUSED, "redirect")
    if status >= 500:
        return _Refused(UpstreamReason.UNREACHABLE, "status")
    try:
        answer = _object(body)
    except _Refused:
        answer = {}
    code = answer.get("error")
    known = code if isinstance(code, str) and code in _CODES else "status"
    return _Refused(UpstreamReason.REFUSED, known, detail=_entra_code(answer.get("error_codes")))


def _entra_code(codes: object) -> str:
    """Return the first code of Entra's own, such as AADSTS65001, which its pages explain; empty without one."""
    match codes:
        case [int() as code, *_] if not isinstance(code, bool) and 0 <= code < 10**9:
            return f"AADSTS{code}"
    return ""


def _object(body: bytes) -> dict[str, object]:
    """Return the JSON object of a body. Raises _Refused for anything else."""
    try:
        answer = orjson.loads(body.removeprefix(BOM_UTF8))
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


_HEADERS: Final = {hdrs.ACCEPT: "application/json", hdrs.ACCEPT_ENCODING: "identity", hdrs.USER_AGENT: "taskgate"}


def _new_session(proxy: ForwardProxy | None) -> ClientSession:
    # Token requests are minutes apart: a reused connection would be closed by then.
    return ClientSession(
        proxy=None if proxy is None else proxy.url,
        connector=TCPConnector(force_close=True, use_dns_cache=False),
        cookie_jar=DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
    )


async def _read(response: ClientResponse, most: int) -> bytes:
    """Read the body, decoded. Raises _Refused if it exceeds `most` bytes, or cannot be decoded."""
    try:
        body = await read_plain(response.content.iter_any(), response.headers.getall(hdrs.CONTENT_ENCODING, ()), most)
    except (CodingRefused, CodingBroken):
        raise _Refused(UpstreamReason.REFUSED, "encoding") from None
    if body is None:
        raise _Refused(UpstreamReason.REFUSED, "too_large")
    return body
