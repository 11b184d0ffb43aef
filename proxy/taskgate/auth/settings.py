"""What an operator decides about one issuer of tokens.

Values only; where they come from is the configuration's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path


class Profile(StrEnum):
    """What kind of JWT an issuer's access tokens are."""

    GENERIC = "generic"
    """`typ` is absent, `JWT` or `at+jwt`; ID tokens are refused by what they say."""
    RFC9068 = "rfc9068"
    """`typ` is `at+jwt` or `application/at+jwt`, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySettings:
    """Where an issuer's keys are, and how they are kept. One of `uri`, `file` and discovery (neither) is the source."""

    uri: str | None = None
    file: Path | None = None
    refresh: timedelta = timedelta(minutes=5)
    cooldown: timedelta = timedelta(seconds=30)
    stale_max: timedelta = timedelta(hours=24)
    timeout: timedelta = timedelta(seconds=5)
    max_size: int = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerSettings:
    """One issuer. `name` is the operator's and a metric label; `issuer` is the exact `iss` of its tokens.

    `audience` empty means the address of the mount that was called. The claim tuples name, in order, where a client
    id and scopes may stand; `tenant_claim` None means that there are no tenants.
    """

    name: str
    issuer: str
    audience: tuple[str, ...] = ()
    profile: Profile = Profile.GENERIC
    algorithms: tuple[str, ...] = ("ES256", "EdDSA", "PS256", "RS256")
    leeway: timedelta = timedelta(seconds=30)
    max_token_age: timedelta | None = None
    required_claims: tuple[str, ...] = ("iss", "sub", "aud", "exp", "iat")
    client_id_claims: tuple[str, ...] = ("client_id", "azp", "appid", "cid")
    scope_claims: tuple[str, ...] = ("scope", "scp")
    tenant_claim: str | None = None
    keys: KeySettings = field(default_factory=KeySettings)


Claims = Mapping[str, object]
"""The payload of a token whose signature was verified, as it was sent."""
