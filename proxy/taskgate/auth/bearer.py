"""Bearer tokens before verification: the token of a request, and its header and claims.

Nothing parsed here is trusted: it selects the keys and rules by which the token is judged, and what
no rule could accept is refused. Header and claims are parsed strictly, so that no other parser
reads them differently.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeGuard
from urllib.parse import unquote_plus

from taskgate.auth.context import Claims
from taskgate.errors import AuthReason, Unauthenticated
from taskgate.jsontext.depth import is_deeper

MAX_TOKEN: Final = 8 * 1024
"""Characters of a token."""
MAX_DEPTH: Final = 16
"""Levels of nesting in header and claims."""
MAX_NAME: Final = 1024
"""Characters of an identifier: a subject, a client, a tenant, a key."""


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
