"""The configuration of who may use the gateway, and what they may call: the sections `auth` and `authorization`.

What lives here: their keys with types, defaults and bounds. What must not: rules between keys (auth_coherence), and
what floors below make of them (access).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from taskgate.config.addresses import FetchedUrl, FilePath, Issuer, Url
from taskgate.config.fields import (
    HOUR,
    KIB,
    MIB,
    MINUTE,
    ONCE_EACH,
    SECOND,
    SOME,
    Count,
    Flag,
    Glob,
    Name,
    Positive,
    Scope,
    Section,
    Text,
)
from taskgate.config.units import DurationIn, SizeIn

Algorithm = Literal["ES256", "ES384", "ES512", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"]

_MADE_HERE = frozenset(
    {"resource", "authorization_servers", "bearer_methods_supported", "scopes_supported", "resource_documentation"}
)
# In YAML one of them, U+0085, does not come back from where it was written to.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _verifiable(written: object) -> object:
    if isinstance(written, str) and written.upper().startswith("HS"):
        raise ValueError("must not be one of a shared secret: whoever can check such a token can make one")
    if isinstance(written, str) and written.lower() == "none":
        raise ValueError("must not be none: anybody can make a token that nobody signed")
    return written


def _with_issuer_and_subject(written: tuple[str, ...]) -> tuple[str, ...]:
    if not {"iss", "sub"} <= set(written):
        raise ValueError("must hold iss and sub: without both of them, strangers would share their tasks")
    return written


def _not_made_here(written: str) -> str:
    if written in _MADE_HERE:
        raise ValueError("must not be given: the gateway says this itself")
    return written


def _json(written: object) -> object:
    try:
        json.dumps(written, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError):
        raise ValueError("must be what JSON can say: finite numbers and Unicode text") from None
    if any(map(_CONTROL.search, _texts(written))):
        raise ValueError("must not hold control characters or line ends")
    return written


def _texts(written: object) -> Iterator[str]:
    if isinstance(written, str):
        yield written
    if isinstance(written, Mapping):
        yield from written
        written = list(written.values())
    for each in written if isinstance(written, list) else []:
        yield from _texts(each)


class ClaimsSection(Section):
    """Where an issuer's tokens say what."""

    client_id: tuple[Text, ...] = ("client_id", "azp", "appid", "cid")
    """Claims that may name the client; the first that a token has counts."""
    scope: tuple[Text, ...] = ("scope", "scp")
    """Claims that may hold scopes, as words or as a list; the first that a token has counts."""
    tenant: Text | None = None
    """The claim that names the tenant, which every token must have then; null means that there are no tenants."""


class JwksSection(Section):
    """How an issuer's keys are kept."""

    refresh: Positive = 5 * MINUTE
    """How long fetched keys are fresh; the issuer can shorten it."""
    cooldown: Positive = 30 * SECOND
    """For the sake of unknown keys, there is one fetch in this time; after a pause, up to three come at once."""
    stale_max: Positive = 24 * HOUR
    """How long fetched keys serve while newer ones cannot be had."""
    timeout: Annotated[timedelta, DurationIn(most=MINUTE)] = 5 * SECOND
    """How long one fetch may take."""
    max_size: Annotated[int, SizeIn(least=KIB, most=16 * MIB)] = 256 * KIB
    """Largest answer that is read."""


class IssuerSection(Section):
    """One issuer of tokens."""

    issuer: Issuer
    """What its tokens have as iss, letter by letter: an https URL, or an http one on a loopback host."""
    audience: tuple[Text, ...] = ()
    """Values of aud, one of which a token must have; [] means the address of the upstream's path on this gateway."""
    discovery: Flag = True
    """Whether the keys are found through the issuer's metadata; jwks_uri and jwks_file go before it."""
    jwks_uri: FetchedUrl | None = None
    """Where the keys are: an https URL, or an http one on a loopback host."""
    jwks_file: FilePath | None = None
    """The file that the keys are in."""
    profile: Literal["generic", "rfc9068"] = "generic"
    """generic: typ is absent, JWT or at+jwt, and ID tokens are refused; rfc9068: typ is at+jwt."""
    algorithms: Annotated[
        tuple[Annotated[Algorithm, BeforeValidator(_verifiable)], ...], *SOME, *ONCE_EACH
    ] = ("ES256", "EdDSA", "PS256", "RS256")  # fmt: skip
    """What its tokens may be signed with: ES256, ES384, ES512, EdDSA, PS256, PS384, PS512, RS256, RS384 and RS512."""
    leeway: Annotated[timedelta, DurationIn(least=timedelta(), most=5 * MINUTE)] = 30 * SECOND
    """How far its clock may be from ours."""
    max_token_age: Positive | None = None
    """How long after iat a token is accepted, whatever its exp; null means until exp."""
    required_claims: Annotated[tuple[Text, ...], *ONCE_EACH] = ("iss", "sub", "aud", "exp", "iat")
    """Claims that a token must have; iss, sub, aud and exp are needed anyway."""
    claims: ClaimsSection = ClaimsSection()
    jwks: JwksSection = JwksSection()


class TokenCacheSection(Section):
    """For how long a verified token is known."""

    size: Count = 10_000
    """How many tokens."""
    max_ttl: Annotated[timedelta, DurationIn(least=timedelta(), most=HOUR)] = 60 * SECOND
    """For how long, never beyond the token's end; so long it may go unnoticed that its key was withdrawn."""


class MetadataSection(Section):
    """The documents under /.well-known/oauth-protected-resource that tell hosts where tokens are to be had."""

    enabled: Flag = True
    """Whether they are served; without them hosts must know the issuers themselves."""
    scopes_supported: Annotated[tuple[Scope, ...], *ONCE_EACH] = ()
    """The scopes that they name; offline_access is left out."""
    documentation: Url | None = None
    """The page for developers that they name."""
    extra: Mapping[Annotated[Text, AfterValidator(_not_made_here)], Annotated[Any, AfterValidator(_json)]] = {}
    """Members to add to them; those that the gateway makes itself are refused."""


class ContextSection(Section):
    """What a task is bound to."""

    bind: Annotated[
        tuple[Literal["iss", "tenant", "sub", "client_id"], ...], *ONCE_EACH, AfterValidator(_with_issuer_and_subject)
    ] = ("iss", "tenant", "sub", "client_id")
    """The parts that must be the same for a task to be somebody's: iss and sub always, tenant and client_id or not."""
    key_file: FilePath | None = None
    """The key of the references to contexts; null means one that is made in the data directory."""


class LookupFailuresSection(Section):
    """What becomes of a caller who asks for tasks that are not theirs."""

    threshold: Count = 20
    """So many failed look-ups within the window are passed over; the next one brings the penalty."""
    window: Positive = MINUTE
    """For how long a failed look-up counts."""
    penalty: Positive = 5 * MINUTE
    """For how long every look-up is refused then."""


class AuthSection(Section):
    """Who may use the gateway."""

    mode: Literal["required", "none"]
    """required: whoever has a token of one of the issuers; none: whoever reaches the listener."""
    allow_insecure: Flag = False
    """Whether the listeners may be on addresses that other machines reach although auth.mode is none."""
    issuers: Mapping[Name, IssuerSection] = {}
    """Whose tokens are accepted, by name; the names appear in metrics and logs."""
    token_cache: TokenCacheSection = TokenCacheSection()
    protected_resource_metadata: MetadataSection = MetadataSection()
    context: ContextSection = ContextSection()
    lookup_failures: LookupFailuresSection = LookupFailuresSection()


class AuthorizationRule(Section):
    """What becomes of some requests. It is for those that all of its conditions match; null and {} mean any."""

    name: Text | None = None
    """What the rule is called where it is told of; null means its place in the list."""
    methods: Annotated[tuple[Glob, ...], *SOME] | None = None
    """Globs over methods, one of which must match; null means every method."""
    upstream: Text | None = None
    """Name of the upstream that the rule is for; null means every one."""
    tool: Glob | None = None
    """Glob over names of tools, of requests that name one; null means every request."""
    claims: Mapping[Text, Annotated[tuple[Text, ...], *SOME]] = {}
    """Claims and the values, one of which the token must have; {} means every token.

    Numbers and booleans are written as text: "5", "true".
    """
    require_scopes: Annotated[tuple[Scope, ...], *ONCE_EACH] = ()
    """The scopes that are needed, all of them."""
    effect: Literal["allow", "deny"] = "allow"
    """allow: with the scopes that are needed; deny: never."""
    shadow: Flag = False
    """Whether the rule only tells what it would have refused, and decides nothing."""


class AuthorizationSection(Section):
    """Who may call what."""

    default: Literal["allow", "deny"] = "allow"
    """What becomes of a request that no rule is for."""
    only_listed_tools: Literal["auto", True, False] = "auto"
    """Whether tools are refused that their server does not list; auto: at upstreams of which a rule refuses some tools.

    A server may trim or normalise the name of a tool that a rule compares letter by letter.
    """
    rules: tuple[AuthorizationRule, ...] = ()
    """The first rule that matches decides."""
    scope_implies: Mapping[Scope, tuple[Scope, ...]] = {}
    """Scopes and those that they stand for, as well as what these stand for."""
