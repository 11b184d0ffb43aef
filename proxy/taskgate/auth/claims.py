"""The requirements for a token, and the identity in it: `IssuerSettings`, `check_header`, `read_claims`.

The operator's settings of an issuer say what its tokens must have. `config` makes them, and `jwks`
reads the `KeySettings` among them. Claims are compared exactly, without normalisation. A claim of
another type than the standard's is refused. The caller passes the time.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from taskgate.auth.bearer import UnverifiedToken, is_name
from taskgate.auth.context import CONTEXT_PARTS, Claims, Identity
from taskgate.errors import AuthReason, Unauthenticated


class TokenProfile(StrEnum):
    """The kinds of JWT that an issuer's access tokens can be."""

    GENERIC = "generic"
    """`typ` is absent, `JWT` or `at+jwt`; ID tokens are refused by their claims."""
    RFC9068 = "rfc9068"
    """`typ` must be `at+jwt` or `application/at+jwt`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySettings:
    """The source of an issuer's keys, `uri`, `file` or discovery (neither), and its limits."""

    uri: str | None = None
    file: Path | None = None
    refresh: timedelta = timedelta(minutes=5)
    cooldown: timedelta = timedelta(seconds=30)
    stale_max: timedelta = timedelta(hours=24)
    timeout: timedelta = timedelta(seconds=5)
    max_size: int = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerSettings:
    """One issuer: `name` is the operator's, and a metric label; `issuer` is the `iss` of its
    tokens.

    An empty `audience` means the address of the called mount. The claim tuples name claims for the
    client id and the scopes, in order of preference. `tenant_claim` None means that there are no
    tenants.
    """

    name: str
    issuer: str
    audience: tuple[str, ...] = ()
    profile: TokenProfile = TokenProfile.GENERIC
    algorithms: tuple[str, ...] = ("ES256", "EdDSA", "PS256", "RS256")
    leeway: timedelta = timedelta(seconds=30)
    max_token_age: timedelta | None = None
    required_claims: tuple[str, ...] = ("iss", "sub", "aud", "exp", "iat")
    client_id_claims: tuple[str, ...] = ("client_id", "azp", "appid", "cid")
    scope_claims: tuple[str, ...] = ("scope", "scp")
    tenant_claim: str | None = None
    keys: KeySettings = field(default_factory=KeySettings)


# --- the checks -------------------------------------------------------------------------------------------------------


class ContextPartMissing(Unauthenticated):
    """A claim that is mapped to a part of the auth context is missing or unusable.

    `setting` maps it.
    """

    def __init__(self, part: str, *, issuer: str) -> None:
        super().__init__(AuthReason.CLAIM, issuer=issuer)
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
    client id may be missing only if it is none of them. Raises Unauthenticated: ISSUER, AUDIENCE,
    EXPIRED, NOT_YET_VALID or CLAIM; ContextPartMissing is one of these.
    """
    if payload.get("iss") != settings.issuer:
        raise _refusal(AuthReason.ISSUER, settings)
    if any(payload.get(name) is None for name in settings.required_claims):
        raise _refusal(AuthReason.CLAIM, settings)
    if not _has_audience(payload.get("aud"), settings.audience or (audience,)):
        raise _refusal(AuthReason.AUDIENCE, settings)
    subject = payload.get("sub")
    if not is_name(subject) or (settings.profile is TokenProfile.GENERIC and _is_id_token(payload, settings)):
        raise _refusal(AuthReason.CLAIM, settings)
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


def _refusal(reason: AuthReason, settings: IssuerSettings) -> Unauthenticated:
    return Unauthenticated(reason, issuer=settings.name)


def _is_accepted_type(header: Mapping[str, object], profile: TokenProfile) -> bool:
    """RFC 7515, 4.1.9: `typ` is a case-insensitive media type, and `application/` is optional."""
    if "typ" not in header:
        return profile is TokenProfile.GENERIC
    typ = header["typ"]
    return isinstance(typ, str) and typ.lower().removeprefix("application/") in _TYPES[profile]


def _has_audience(audience: object, accepted: tuple[str, ...]) -> bool:
    """RFC 7519, section 4.1.3: the claim is a text, or an array of texts only."""
    named = audience if isinstance(audience, list) else [audience]
    return all(isinstance(one, str) for one in named) and any(one in accepted for one in named)


def _is_id_token(payload: Claims, settings: IssuerSettings) -> bool:
    """Whether a token of type JWT looks like an ID token rather than an access token."""
    of_an_access_token = (*settings.scope_claims, *settings.client_id_claims)
    return any(name in payload for name in _ID_TOKEN_CLAIMS) or not any(name in payload for name in of_an_access_token)


# --- times ------------------------------------------------------------------------------------------------------------


def _expiry(payload: Claims, settings: IssuerSettings, now: datetime) -> datetime:
    """When the token stops being accepted, leeway included.

    Raises if it is expired or not valid yet.
    """
    end = _moment(payload, "exp", settings)
    issued_at = _moment(payload, "iat", settings)
    if any(begin and begin > now + settings.leeway for begin in (issued_at, _moment(payload, "nbf", settings))):
        raise _refusal(AuthReason.NOT_YET_VALID, settings)
    if end is None or (issued_at is None and settings.max_token_age is not None):
        raise _refusal(AuthReason.CLAIM, settings)
    if issued_at is not None and settings.max_token_age is not None:
        end = min(end, issued_at + settings.max_token_age)
    if end <= now - settings.leeway:
        raise _refusal(AuthReason.EXPIRED, settings)
    return min(end, _MAX_TIME - settings.leeway) + settings.leeway


def _moment(payload: Claims, name: str, settings: IssuerSettings) -> datetime | None:
    """The NumericDate (RFC 7519, section 2) in a claim; None if there is no such claim."""
    if name not in payload:
        return None
    seconds = payload[name]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _refusal(AuthReason.CLAIM, settings)
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        # NaN, infinite, or out of the range of datetime.
        raise _refusal(AuthReason.CLAIM, settings) from None


# --- parts of the identity --------------------------------------------------------------------------------------------


def _client_id(payload: Claims, settings: IssuerSettings, bound: Collection[str]) -> str | None:
    """The client id; None if there is no claim for it and no auth context depends on it."""
    name = next((name for name in settings.client_id_claims if name in payload), None)
    if name is None and not (settings.client_id_claims and "client_id" in bound):
        return None
    value = None if name is None else payload[name]
    if not is_name(value):
        raise ContextPartMissing("client_id", issuer=settings.name)
    return value


def _tenant(payload: Claims, settings: IssuerSettings) -> str | None:
    """The tenant; None if the issuer has no tenants."""
    if settings.tenant_claim is None:
        return None
    value = payload.get(settings.tenant_claim)
    if not is_name(value):
        raise ContextPartMissing("tenant", issuer=settings.name)
    return value


def _scopes(payload: Claims, settings: IssuerSettings) -> frozenset[str]:
    """The scopes in the first scope claim: words separated by spaces, or an array of words."""
    value = next((payload[name] for name in settings.scope_claims if name in payload), "")
    words = value.split(" ") if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise _refusal(AuthReason.CLAIM, settings)
    return frozenset(word for word in words if word)


_MAX_TIME: Final = datetime.max.replace(tzinfo=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ID_TOKEN_CLAIMS: Final = ("nonce", "at_hash", "c_hash")
"""OpenID Connect Core 1.0, sections 2 and 3.3.2.11: claims that bind an ID token to its request."""
_TYPES: Final = {TokenProfile.GENERIC: frozenset({"jwt", "at+jwt"}), TokenProfile.RFC9068: frozenset({"at+jwt"})}
