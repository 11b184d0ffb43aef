"""Tokens as they come, and what they must have: `bearer_token`, `parse_token`, `read_claims`.

`parse_token` reads header and claims strictly, so that no other parser reads them differently. What
it returns is not trusted before the signature is verified: it selects the keys and rules by which
the token is judged. A token that no rule could accept is refused.

The operator's `IssuerSettings` say what tokens of an issuer must have. `config` makes them, and
`jwks` reads the `KeySettings` among them. `api_keys` reads the `ApiKeySettings`. Claims are compared
exactly, without normalisation. A claim of another type than the standard's is refused. The caller
passes the time.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeGuard
from urllib.parse import unquote_plus

from taskgate.auth.context import CONTEXT_PARTS, Claims, Identity
from taskgate.errors import AuthReason, Unauthenticated
from taskgate.jsontext.depth import is_deeper

MAX_TOKEN: Final = 32 * 1024
"""Characters of a token. `server.max_header` bounds it too: with 199 groups, a token of Entra has 11,000."""
MAX_DEPTH: Final = 16
"""Levels of nesting in header and claims."""
MAX_NAME: Final = 1024
"""Characters of an identifier: a subject, a client, a tenant, a key."""
MAX_AUDIENCES: Final = 8
"""Audiences that a refusal shows to operators."""
MAX_SHOWN: Final = 256
"""Characters of each of them."""
MOST_TOLD: Final = 3
"""Values of a claim or a setting that a refusal tells the host."""
MAX_TOLD: Final = 120
"""Characters of each of them."""


class UnverifiedToken(NamedTuple):
    """A parsed token whose signature was not checked yet."""

    header: Mapping[str, object]
    issuer: str
    kid: str | None
    algorithm: str
    claims: Claims


def bearer_token(authorization: Sequence[str], query: str) -> str:
    """The bearer token of a request, from all its Authorization fields and its raw query.

    Raises Unauthenticated: MISSING, SCHEME, MALFORMED, or QUERY_TOKEN for a token in the query.
    """
    if query and _has_token(query):
        raise Unauthenticated(AuthReason.QUERY_TOKEN)
    if not authorization:
        raise Unauthenticated(AuthReason.MISSING)
    if len(authorization) > 1:
        raise Unauthenticated(AuthReason.MALFORMED)
    credentials = authorization[0]
    scheme, _, token = credentials.partition(" ")
    if not credentials.strip():
        raise Unauthenticated(AuthReason.MISSING)
    if scheme.lower() != "bearer":
        raise Unauthenticated(AuthReason.SCHEME)
    token = token.lstrip(" ")
    if len(token) > MAX_TOKEN or _TOKEN68(token) is None:
        raise Unauthenticated(AuthReason.MALFORMED)
    return token


def parse_token(token: str) -> UnverifiedToken:
    """Parse a JWT in compact form, without checking its signature.

    Raises Unauthenticated: MALFORMED, or ALG or ISSUER if it names no algorithm or issuer.
    """
    segments = _COMPACT(token) if len(token) <= MAX_TOKEN else None
    if segments is None:
        raise Unauthenticated(AuthReason.MALFORMED)
    header, claims = _parse_segment(segments[1]), _parse_segment(segments[2])
    kid = header.get("kid")
    if not _REFUSED_HEADERS.isdisjoint(header) or ("kid" in header and not is_name(kid)):
        raise Unauthenticated(AuthReason.MALFORMED)
    algorithm, issuer = header.get("alg"), claims.get("iss")
    if not isinstance(algorithm, str):
        raise Unauthenticated(AuthReason.ALG)
    if not isinstance(issuer, str):
        raise Unauthenticated(AuthReason.ISSUER)
    return UnverifiedToken(header, issuer, kid, algorithm, claims)


def is_name(value: object) -> TypeGuard[str]:
    """Whether a value can be an identifier: short text, not empty, without controls and surrogates."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and _UNPRINTABLE(value) is None


def _has_token(query: str) -> bool:
    """Whether the query has the parameter of RFC 6750, section 2.3, in any spelling."""
    names = (pair.partition("=")[0] for pair in query.replace(";", "&").split("&"))
    return any(unquote_plus(name).strip().casefold() == "access_token" for name in names)


def _parse_segment(segment: str) -> dict[str, Any]:
    octets = urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    try:
        found = None if is_deeper(octets, MAX_DEPTH) else _DECODER.decode(octets.decode("utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Unauthenticated(AuthReason.MALFORMED)
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
_LETTER: Final = "[A-Za-z0-9_-]"
# RFC 7515, section 2: base64url without padding. A last letter with unused bits would be a second spelling.
_SEGMENT: Final = f"((?:{_LETTER}{{4}})*+(?:{_LETTER}[AQgw]|{_LETTER}{{2}}[AEIMQUYcgkosw048])?)"
_COMPACT: Final = re.compile(rf"{_SEGMENT}\.{_SEGMENT}\.{_SEGMENT}").fullmatch
_TOKEN68: Final = re.compile("[A-Za-z0-9._~+/-]+=*").fullmatch
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]").search
_REFUSED_HEADERS: Final = frozenset({"crit", "b64", "jku", "jwk", "x5u", "x5c", "zip", "enc"})
"""Header fields that ask to fetch or trust something, or to parse the token in another way."""


# --- the requirements of an issuer ---


class TokenProfile(StrEnum):
    """The kinds of JWT that an issuer's access tokens can be."""

    GENERIC = "generic"
    """`typ` is absent, `JWT` or `at+jwt`; ID tokens are refused by their claims."""
    RFC9068 = "rfc9068"
    """`typ` must be `at+jwt` or `application/at+jwt`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySettings:
    """The source of an issuer's keys, `uri`, `file` or discovery (neither), and its limits.

    `ca_file` has the authorities that are trusted for requests; None means those of the system.
    """

    uri: str | None = None
    file: Path | None = None
    ca_file: Path | None = None
    refresh: timedelta = timedelta(minutes=5)
    cooldown: timedelta = timedelta(seconds=30)
    stale_max: timedelta = timedelta(hours=24)
    timeout: timedelta = timedelta(seconds=5)
    max_size: int = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerSettings:
    """One issuer: `name` is the operator's, and a metric label; `issuer` is the `iss` of its
    tokens.

    An empty `audience` means the address of the called mount. `audience_claim` stands for a missing
    `aud`; None if tokens must have one. The claim tuples name claims for the
    client id and the scopes, in order of preference. `tenant_claim` None means that there are no
    tenants. `place` is where its keys are, for operators, without secrets.
    """

    name: str
    issuer: str
    place: str = ""
    audience: tuple[str, ...] = ()
    profile: TokenProfile = TokenProfile.GENERIC
    algorithms: tuple[str, ...] = ("ES256", "EdDSA", "PS256", "RS256")
    leeway: timedelta = timedelta(seconds=30)
    max_token_age: timedelta | None = None
    required_claims: tuple[str, ...] = ("iss", "sub", "aud", "exp", "iat")
    client_id_claims: tuple[str, ...] = ("client_id", "azp", "appid", "cid")
    scope_claims: tuple[str, ...] = ("scope", "scp")
    tenant_claim: str | None = None
    audience_claim: str | None = None
    keys: KeySettings = field(default_factory=KeySettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeySettings:
    """One API key: its name, the digest of its text, and the caller that it stands for.

    `digest` is the SHA-256 in hexadecimal digits. `expires` None means that it has no end.
    """

    name: str
    digest: str
    subject: str
    tenant: str | None = None
    scopes: frozenset[str] = frozenset()
    expires: datetime | None = None


API_KEY_PREFIX: Final = "tgk_"
"""The beginning of each API key. A JWT begins with the letters of a JSON object, so none begins so."""
API_KEYS: Final = "_API_KEYS"
"""The label that stands for an issuer where API keys are counted. No name of an issuer has such letters."""


# --- the checks -------------------------------------------------------------------------------------------------------


class ContextPartMissing(Unauthenticated):
    """A claim that is mapped to a part of the auth context is missing or unusable.

    `setting` maps it.
    """

    def __init__(self, part: str, *, issuer: str, detail: str) -> None:
        super().__init__(AuthReason.CLAIM, issuer=issuer, detail=detail)
        self.setting = f"auth.issuers.{issuer}.claims.{part}"


def check_header(token: UnverifiedToken, settings: IssuerSettings) -> None:
    """Raise Unauthenticated, ALG or TYP, unless the issuer's settings accept this kind of token."""
    if token.algorithm not in settings.algorithms:
        raise Unauthenticated(AuthReason.ALG, issuer=settings.name)
    if not _is_accepted_type(token.header, settings.profile):
        raise Unauthenticated(AuthReason.TYP, issuer=settings.name)


def read_claims(
    payload: Claims, settings: IssuerSettings, *, audience: str, now: datetime, bound: Collection[str] = CONTEXT_PARTS
) -> Identity:
    """The identity in a token with a verified signature.

    `audience` is required if the settings name none. `bound` are the parts of an auth context: a
    client id may be missing only if it is none of them. Raises Unauthenticated with a `detail`: ISSUER,
    AUDIENCE, EXPIRED, NOT_YET_VALID or CLAIM; ContextPartMissing is one of these.
    """
    if payload.get("iss") != settings.issuer:
        raise _refusal(AuthReason.ISSUER, settings, f"iss is not {_told(settings.issuer)}")
    stands_in = settings.audience_claim if payload.get("aud") is None else None
    claim = stands_in or "aud"
    missing = [
        name for name in settings.required_claims if payload.get(name) is None and (name != "aud" or stands_in is None)
    ]
    if missing:
        raise _refusal(AuthReason.CLAIM, settings, f"the token has no {_listed(missing, 'and no')}")
    accepted = settings.audience or (audience,)
    if not _has_audience(payload.get(claim), settings.audience or _spellings(audience)):
        expected, found = _shown(list(accepted)), _shown(payload.get(claim))
        needed = (
            f"expected is {_listed(expected, 'or')}" if settings.audience else f"this resource is {_told(audience)}"
        )
        raise Unauthenticated(
            AuthReason.AUDIENCE,
            issuer=settings.name,
            expected=expected,
            found=found,
            detail=f"{_told(claim)} is {_listed(found, 'and')}: {needed}",
        )
    subject = payload.get("sub")
    if not is_name(subject):
        raise _refusal(AuthReason.CLAIM, settings, f"sub is no text of 1 to {MAX_NAME} printable characters")
    if settings.profile is TokenProfile.GENERIC and _is_id_token(payload, settings):
        raise _refusal(AuthReason.CLAIM, settings, "this is an ID token: an access token is expected")
    return Identity(
        issuer_name=settings.name,
        issuer=settings.issuer,
        subject=subject,
        client_id=_client_id(payload, settings, bound),
        tenant=_tenant(payload, settings),
        scopes=_scopes(payload, settings),
        expires_at=_expiry(payload, settings, now),
        claims=payload,
    )


def _refusal(reason: AuthReason, settings: IssuerSettings, detail: str) -> Unauthenticated:
    return Unauthenticated(reason, issuer=settings.name, detail=detail)


def _listed(values: Sequence[str], word: str) -> str:
    """The first values for the detail of a refusal, with that word between them."""
    told = [_told(value) for value in values[:MOST_TOLD]]
    more = len(values) - len(told)
    return f" {word} ".join([*told, *([f"{more} more"] if more else [])]) or "missing"


def _told(value: str) -> str:
    """A value for the detail of a refusal, which is a parameter of a header that hosts search by patterns.

    It is short, and without what could end the parameter or begin another.
    """
    told = _UNTOLD("?", value[:MAX_TOLD]) + ("..." if len(value) > MAX_TOLD else "")
    return told.strip() or "empty"


def _span(time: timedelta) -> str:
    """A time for the detail of a refusal."""
    seconds = time.total_seconds()
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _is_accepted_type(header: Mapping[str, object], profile: TokenProfile) -> bool:
    """RFC 7515, 4.1.9: `typ` is a case-insensitive media type, and `application/` is optional."""
    if "typ" not in header:
        return profile is TokenProfile.GENERIC
    typ = header["typ"]
    return isinstance(typ, str) and typ.lower().removeprefix("application/") in _TYPES[profile]


def _spellings(address: str) -> tuple[str, ...]:
    """The address of a mount, and with a slash if it has no path: both are one URL (RFC 3986, 6.2.3).

    Clients that read it as a URL ask for a token with the slash.
    """
    return (address, f"{address}/") if address.count("/") == _SLASHES_OF_ORIGIN else (address,)


def _has_audience(audience: object, accepted: tuple[str, ...]) -> bool:
    """RFC 7519, section 4.1.3: the claim is a text, or an array of texts only."""
    named = audience if isinstance(audience, list) else [audience]
    return all(isinstance(one, str) for one in named) and any(one in accepted for one in named)


def _shown(audience: object) -> tuple[str, ...]:
    """The first audiences of a claim or a setting, cut to MAX_SHOWN; another value as its Python type."""
    named = audience if isinstance(audience, list) else [] if audience is None else [audience]
    return tuple(one[:MAX_SHOWN] if isinstance(one, str) else type(one).__name__ for one in named[:MAX_AUDIENCES])


def _is_id_token(payload: Claims, settings: IssuerSettings) -> bool:
    """Whether a token of type JWT looks like an ID token rather than an access token."""
    kind = payload.get("typ")
    # As Amazon Cognito and Keycloak say it.
    if payload.get("token_use") == "id" or kind == "ID":
        return True
    if kind == "Bearer":
        # Keycloak says it of access tokens, which before version 25 have the nonce too.
        return False
    if any(name in payload for name in _ID_TOKEN_CLAIMS):
        return True
    # Service account tokens of Kubernetes have neither client nor scope.
    is_of_service_account = isinstance(payload.get("kubernetes.io"), dict)
    of_an_access_token = (*settings.scope_claims, *settings.client_id_claims)
    return not is_of_service_account and not any(name in payload for name in of_an_access_token)


# --- times ------------------------------------------------------------------------------------------------------------


def _expiry(payload: Claims, settings: IssuerSettings, now: datetime) -> datetime:
    """When the token stops being accepted, leeway included.

    Raises if it is expired or not valid yet.
    """
    end = _moment(payload, "exp", settings)
    issued_at = _moment(payload, "iat", settings)
    for name, begin in (("iat", issued_at), ("nbf", _moment(payload, "nbf", settings))):
        if begin and begin > now + settings.leeway:
            raise _refusal(AuthReason.NOT_YET_VALID, settings, f"{name} is {_span(begin - now)} ahead of this clock")
    if end is None or (issued_at is None and settings.max_token_age is not None):
        raise _refusal(AuthReason.CLAIM, settings, f"the token has no {'exp' if end is None else 'iat'}")
    if end <= now - settings.leeway:
        raise _refusal(AuthReason.EXPIRED, settings, f"the token expired {_span(now - end)} ago")
    if issued_at is not None and settings.max_token_age is not None:
        oldest = issued_at + settings.max_token_age
        if oldest <= now - settings.leeway:
            ages = f"{_span(now - issued_at)} old: at most {_span(settings.max_token_age)} are accepted"
            raise _refusal(AuthReason.EXPIRED, settings, f"the token is {ages}")
        end = min(end, oldest)
    return min(end, _MAX_TIME - settings.leeway) + settings.leeway


def _moment(payload: Claims, name: str, settings: IssuerSettings) -> datetime | None:
    """The NumericDate (RFC 7519, section 2) in a claim; None if there is no such claim."""
    if name not in payload:
        return None
    seconds = payload[name]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _refusal(AuthReason.CLAIM, settings, f"{name} is no number")
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        # NaN, infinite, or out of the range of datetime.
        raise _refusal(AuthReason.CLAIM, settings, f"{name} is no time") from None


# --- parts of the identity --------------------------------------------------------------------------------------------


def _client_id(payload: Claims, settings: IssuerSettings, bound: Collection[str]) -> str | None:
    """The client id; None if there is no claim for it and no auth context depends on it."""
    name = next((name for name in settings.client_id_claims if name in payload), None)
    if name is None and not (settings.client_id_claims and "client_id" in bound):
        return None
    value = None if name is None else payload[name]
    if not is_name(value):
        detail = f"no client is named by {_listed(settings.client_id_claims, 'or')}"
        raise ContextPartMissing("client_id", issuer=settings.name, detail=detail)
    return value


def _tenant(payload: Claims, settings: IssuerSettings) -> str | None:
    """The tenant; None if the issuer has no tenants."""
    if settings.tenant_claim is None:
        return None
    value = payload.get(settings.tenant_claim)
    if not is_name(value):
        detail = f"no tenant is named by {_told(settings.tenant_claim)}"
        raise ContextPartMissing("tenant", issuer=settings.name, detail=detail)
    return value


def _scopes(payload: Claims, settings: IssuerSettings) -> frozenset[str]:
    """The scopes in the first scope claim: words separated by spaces, or an array of words."""
    name = next((name for name in settings.scope_claims if name in payload), None)
    value = "" if name is None else payload[name]
    words = value.split(" ") if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise _refusal(AuthReason.CLAIM, settings, f"{_told(name or '')} is neither a text nor a list of texts")
    return frozenset(word for word in words if word)


_UNTOLD: Final = re.compile(r"[^A-Za-z0-9 ._~:/?#@!$&'()*+;%|^\[\]{}-]").sub
_SLASHES_OF_ORIGIN: Final = 2
_MAX_TIME: Final = datetime.max.replace(tzinfo=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ID_TOKEN_CLAIMS: Final = ("nonce", "at_hash", "c_hash")
"""OpenID Connect Core 1.0, sections 2 and 3.3.2.11: claims that bind an ID token to its request."""
_TYPES: Final = {TokenProfile.GENERIC: frozenset({"jwt", "at+jwt"}), TokenProfile.RFC9068: frozenset({"at+jwt"})}
