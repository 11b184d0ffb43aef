"""What a request and its token say of themselves, before any signature is looked at. Pure.

Nothing that is read here is to be believed: it only tells whose keys and rules the token is to be judged by, and turns
away what no rule could accept. Header and claims are read as strictly as can be, so that no two readers differ on them.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeGuard
from urllib.parse import unquote_plus

from taskgate.auth.settings import Claims, IssuerSettings, Profile
from taskgate.errors import AuthReason, Unauthenticated
from taskgate.jsontext.depth import is_deeper

MAX_TOKEN: Final = 8 * 1024
"""Letters of a token."""
MAX_DEPTH: Final = 16
"""Levels that header and claims may nest."""
MAX_NAME: Final = 1024
"""Letters of what names somebody or something: a subject, a client, a tenant, a key."""


class Unverified(NamedTuple):
    """What a token claims to be. `claims` are its own words until its signature was checked."""

    header: Mapping[str, object]
    issuer: str
    kid: str | None
    algorithm: str
    claims: Claims


def token_of(authorization: Sequence[str], query: str) -> str:
    """The bearer token of a request, from all its Authorization fields and its query as it was sent.

    Raises Unauthenticated: MISSING, SCHEME, MALFORMED, or QUERY_TOKEN where the query has one, whatever else was sent.
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


def look_at(token: str) -> Unverified:
    """What a token in compact form says of itself.

    Raises Unauthenticated: MALFORMED, ALG or ISSUER where it does not name an algorithm or an issuer.
    """
    segments = _COMPACT(token) if len(token) <= MAX_TOKEN else None
    if segments is None:
        raise Unauthenticated(AuthReason.MALFORMED)
    header, claims = _read(segments[1]), _read(segments[2])
    kid = header.get("kid")
    if not _REFUSED_HEADERS.isdisjoint(header) or ("kid" in header and not is_name(kid)):
        raise Unauthenticated(AuthReason.MALFORMED)
    algorithm, issuer = header.get("alg"), claims.get("iss")
    if not isinstance(algorithm, str):
        raise Unauthenticated(AuthReason.ALG)
    if not isinstance(issuer, str):
        raise Unauthenticated(AuthReason.ISSUER)
    return Unverified(header, issuer, kid, algorithm, claims)


def check_header(seen: Unverified, settings: IssuerSettings) -> None:
    """Raises Unauthenticated, ALG or TYP, for a kind of token that the operator does not take from this issuer."""
    if seen.algorithm not in settings.algorithms:
        raise Unauthenticated(AuthReason.ALG, issuer=settings.name)
    if not _is_typ_taken(seen.header, settings.profile):
        raise Unauthenticated(AuthReason.TYP, issuer=settings.name)


def is_name(value: object) -> TypeGuard[str]:
    """Whether a value can name somebody or something: text, not empty, not long, without controls and surrogates."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and _UNPRINTABLE(value) is None


def _has_token(query: str) -> bool:
    """Whether a parameter is the one of RFC 6750, section 2.3, however it is written."""
    names = (pair.partition("=")[0] for pair in query.replace(";", "&").split("&"))
    return any(unquote_plus(name).strip().casefold() == "access_token" for name in names)


def _is_typ_taken(header: Mapping[str, object], profile: Profile) -> bool:
    """RFC 7515, section 4.1.9: a media type, so in any case, and `application/` goes without saying."""
    if "typ" not in header:
        return profile is Profile.GENERIC
    typ = header["typ"]
    return isinstance(typ, str) and typ.lower().removeprefix("application/") in _TYPES[profile]


def _read(segment: str) -> dict[str, Any]:
    """The JSON object in one part of a token."""
    octets = urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    try:
        found = None if is_deeper(octets, MAX_DEPTH) else _DECODER.decode(octets.decode("utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Unauthenticated(AuthReason.MALFORMED)
    return found


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unrepeated, parse_constant=_refuse_constant)
_LETTER: Final = "[A-Za-z0-9_-]"
# RFC 7515, section 2: base64url without padding. A last letter with bits to spare would be a second spelling.
_SEGMENT: Final = f"((?:{_LETTER}{{4}})*+(?:{_LETTER}[AQgw]|{_LETTER}{{2}}[AEIMQUYcgkosw048])?)"
_COMPACT: Final = re.compile(rf"{_SEGMENT}\.{_SEGMENT}\.{_SEGMENT}").fullmatch
_TOKEN68: Final = re.compile("[A-Za-z0-9._~+/-]+=*").fullmatch
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]").search
_REFUSED_HEADERS: Final = frozenset({"crit", "b64", "jku", "jwk", "x5u", "x5c", "zip", "enc"})
"""What would have us fetch or trust something that the token brings, or read it in another way than all others."""
_TYPES: Final = {Profile.GENERIC: frozenset({"jwt", "at+jwt"}), Profile.RFC9068: frozenset({"at+jwt"})}
