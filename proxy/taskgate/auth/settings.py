"""Settings of one issuer of tokens: `IssuerSettings`, with the `KeySettings` of its keys.

`config` makes them; `bearer`, `claims`, `jwt` and `jwks` read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path


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


Claims = Mapping[str, object]
"""The payload of a token, as it was sent."""
