"""Sections `auth` and `authorization`: who may use the gateway, and what they may call.

They are one module, because rules about scopes and claims depend on `auth.mode`. Other sections use
`auth_mode`, `has_tenants` and `without_tenants` for rules of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, PlainValidator

from taskgate.auth.authorization import AccessEffect, AccessPolicy, AccessRule
from taskgate.auth.claims import API_KEY_PREFIX, ApiKeySettings, IssuerSettings, KeySettings, TokenProfile
from taskgate.config.addresses import FilePath, Issuer, SecureUrl, Url, read_listen
from taskgate.config.fields import (
    HOUR,
    KIB,
    MIB,
    MINUTE,
    NOT_EMPTY,
    SECOND,
    UNIQUE,
    Count,
    DurationIn,
    Flag,
    Glob,
    Name,
    PositiveDuration,
    Scope,
    Section,
    SizeIn,
    Text,
    json_pattern,
)
from taskgate.config.problems import Conflict, dotted, list_at, mapping_at, value_at

Algorithm = Literal["ES256", "ES384", "ES512", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"]

_ISSUERS = ("auth", "issuers")
_API_KEYS = ("auth", "api_keys")
_HASH = "^sha256:[0-9a-f]{64}$"
_MOMENT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})$"
_RULES = ("authorization", "rules")
_GATEWAY_MEMBERS = frozenset(
    {"resource", "authorization_servers", "bearer_methods_supported", "scopes_supported", "resource_documentation"}
)
"""Members of the metadata that the gateway makes itself."""
# YAML does not round-trip one of them, U+0085.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _check_algorithm(written: object) -> object:
    if isinstance(written, str) and written.upper().startswith("HS"):
        raise ValueError("must not be one of a shared secret: all who can check such a token can make one")
    if isinstance(written, str) and written.lower() == "none":
        raise ValueError("must not be none: anyone can make an unsigned token")
    return written


def _check_bind(parts: tuple[str, ...]) -> tuple[str, ...]:
    if not {"iss", "sub"} <= set(parts):
        raise ValueError("must hold iss and sub: without both of them, strangers would share their tasks")
    return parts


def _check_hash(text: str) -> str:
    if text.startswith(API_KEY_PREFIX):
        raise ValueError("must be the hash of the key, not the key, which belongs to no file: see taskgate keys hash")
    if not re.fullmatch(_HASH, text):
        raise ValueError("must be sha256: and 64 hexadecimal digits in small letters, as taskgate keys hash prints it")
    return text


def _read_moment(written: object) -> datetime:
    if isinstance(written, datetime) and written.tzinfo is not None:
        return written
    try:
        if isinstance(written, str) and re.fullmatch(_MOMENT, written):
            return datetime.fromisoformat(written)
    except ValueError:
        pass
    raise ValueError("must be a time with its zone, such as 2027-01-31T00:00:00Z")


def _write_moment(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _check_member(name: str) -> str:
    if name in _GATEWAY_MEMBERS:
        raise ValueError("must not be given: the gateway says this itself")
    return name


def _check_json(value: object) -> object:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError):
        raise ValueError("must be what JSON can say: finite numbers and Unicode text") from None
    if any(map(_CONTROL.search, _texts(value))):
        raise ValueError("must not hold control characters or line ends")
    return value


def _texts(value: object) -> Iterator[str]:
    """Find all texts in a JSON value. Its keys are texts: `document` reads each key of a file as one."""
    if isinstance(value, str):
        yield value
    if isinstance(value, Mapping):
        yield from value
        value = list(value.values())
    for each in value if isinstance(value, list) else []:
        yield from _texts(each)


KeyHash = Annotated[str, AfterValidator(_check_hash), json_pattern(_HASH)]
Moment = Annotated[
    datetime,
    PlainValidator(_read_moment),
    PlainSerializer(_write_moment, when_used="json"),
    json_pattern(_MOMENT),
]


# --- auth -----------------------------------------------------------------------------------------------------------


class ClaimsSection(Section):
    """Claims of an issuer's tokens that taskgate reads."""

    client_id: tuple[Text, ...] | None = ("client_id", "azp", "appid", "cid")
    """Claims that may name the client; the first that a token has is used. null means that tokens
    name no client, such as those of Kubernetes.
    """
    scope: tuple[Text, ...] = ("scope", "scp")
    """Claims that may hold scopes, as one text or as a list; the first that a token has is used."""
    tenant: Text | None = None
    """The claim that names the tenant, which every token must have then; null means that there are
    no tenants.
    """
    audience: Text | None = None
    """The claim that is compared with audience in tokens without aud, such as client_id of Amazon
    Cognito; null means that every token must have aud.
    """


class JwksSection(Section):
    """The cache of an issuer's keys."""

    refresh: PositiveDuration = 5 * MINUTE
    """How long fetched keys are fresh; the issuer can shorten it."""
    cooldown: PositiveDuration = 30 * SECOND
    """The interval between fetches because of unknown key ids; after a pause up to three may follow
    at once.
    """
    stale_max: PositiveDuration = 24 * HOUR
    """How long fetched keys are used while newer ones cannot be fetched."""
    timeout: Annotated[timedelta, DurationIn(most=MINUTE)] = 5 * SECOND
    """How long one fetch may take."""
    max_size: Annotated[int, SizeIn(least=KIB, most=16 * MIB)] = 256 * KIB
    """The largest JWKS that is read."""


class IssuerSection(Section):
    """One issuer of tokens."""

    issuer: Issuer
    """The exact value of iss in its tokens: an https URL, or an http one on a loopback host."""
    audience: tuple[Text, ...] = ()
    """Values of aud, one of which a token must have; [] means the address of the upstream's path on
    this gateway.
    """
    discovery: Flag = True
    """Whether the keys are found through the issuer's metadata; jwks_uri and jwks_file take
    precedence.
    """
    jwks_uri: SecureUrl | None = None
    """The URL of the JWKS: an https URL, or an http one on a loopback host."""
    jwks_file: FilePath | None = None
    """The file with the JWKS. It is read again at each reload, such as by SIGHUP."""
    ca_file: FilePath | None = None
    """The certificate authorities that are trusted for metadata and JWKS, as PEM; null means those of
    the system. It is read for each request.
    """
    profile: Literal["generic", "rfc9068"] = "generic"
    """generic: typ is absent, JWT or at+jwt, and ID tokens are refused; rfc9068: typ is at+jwt."""
    algorithms: Annotated[
        tuple[Annotated[Algorithm, BeforeValidator(_check_algorithm)], ...], *NOT_EMPTY, *UNIQUE
    ] = ("ES256", "EdDSA", "PS256", "RS256")  # fmt: skip
    """The accepted signature algorithms: ES256, ES384, ES512, EdDSA, PS256, PS384, PS512, RS256,
    RS384 and RS512.
    """
    leeway: Annotated[timedelta, DurationIn(least=timedelta(), most=5 * MINUTE)] = 30 * SECOND
    """The accepted difference between its clock and ours."""
    max_token_age: PositiveDuration | None = None
    """How long after iat a token is accepted, whatever its exp; null means until exp."""
    required_claims: Annotated[tuple[Text, ...], *UNIQUE] = ("iss", "sub", "aud", "exp", "iat")
    """Claims that a token must have, besides iss, sub, aud and exp."""
    claims: ClaimsSection = ClaimsSection()
    jwks: JwksSection = JwksSection()

    def to_settings(self, name: str) -> IssuerSettings:
        """Return the settings of the issuer of that name."""
        return IssuerSettings(
            name=name,
            issuer=self.issuer,
            audience=self.audience,
            profile=TokenProfile(self.profile),
            algorithms=self.algorithms,
            leeway=self.leeway,
            max_token_age=self.max_token_age,
            required_claims=self.required_claims,
            client_id_claims=self.claims.client_id or (),
            scope_claims=self.claims.scope,
            tenant_claim=self.claims.tenant,
            audience_claim=self.claims.audience,
            keys=KeySettings(
                uri=self.jwks_uri,
                file=self.jwks_file,
                ca_file=self.ca_file,
                refresh=self.jwks.refresh,
                cooldown=self.jwks.cooldown,
                stale_max=self.jwks.stale_max,
                timeout=self.jwks.timeout,
                max_size=self.jwks.max_size,
            ),
        )


class ApiKeySection(Section):
    """One API key of a host, and the caller that it stands for."""

    hash: KeyHash
    """The SHA-256 of the key, as sha256: with 64 hexadecimal digits; taskgate keys new makes a key
    and prints it.
    """
    subject: Text
    """The caller that the key stands for. Keys of one subject and tenant are one caller."""
    tenant: Text | None = None
    """The tenant of the caller; null means none."""
    scopes: Annotated[tuple[Scope, ...], *UNIQUE] = ()
    """The scopes of the key, for rules that need scopes."""
    expires: Moment | None = None
    """When the key ends, as a time with its zone, such as 2027-01-31T00:00:00Z; null means that it
    has no end.
    """

    def to_settings(self, name: str) -> ApiKeySettings:
        """Return the settings of the key of that name."""
        return ApiKeySettings(
            name=name,
            digest=self.hash.removeprefix("sha256:"),
            subject=self.subject,
            tenant=self.tenant,
            scopes=frozenset(self.scopes),
            expires=self.expires,
        )


class TokenCacheSection(Section):
    """The cache of verified tokens."""

    size: Count = 10_000
    """The most tokens in the cache."""
    max_ttl: Annotated[timedelta, DurationIn(least=timedelta(), most=HOUR)] = 60 * SECOND
    """How long a token is cached, at most until its exp. A withdrawn key may stay accepted for as
    long.
    """


class MetadataSection(Section):
    """The documents under /.well-known/oauth-protected-resource that name the issuers to hosts."""

    enabled: Flag = True
    """Whether they are served; without them hosts must know the issuers themselves."""
    scopes_supported: Annotated[tuple[Scope, ...], *UNIQUE] = ()
    """The scopes that they name; offline_access is left out."""
    documentation: Url | None = None
    """The page for developers that they name."""
    extra: Mapping[Annotated[Text, AfterValidator(_check_member)], Annotated[Any, AfterValidator(_check_json)]] = {}
    """Members to add to them; those that the gateway makes itself are refused."""


class ContextSection(Section):
    """The parts of a caller that a task is bound to."""

    bind: Annotated[
        tuple[Literal["iss", "tenant", "sub", "client_id"], ...], *UNIQUE, AfterValidator(_check_bind)
    ] = ("iss", "tenant", "sub", "client_id")  # fmt: skip
    """The parts that must be equal for a caller to own a task: iss and sub always, tenant and
    client_id optionally.
    """
    key_file: FilePath | None = None
    """The file with the key for references to auth contexts; null means one that is created in the
    data directory.
    """


class LookupFailuresSection(Section):
    """The penalty for a caller who asks for tasks that are not theirs."""

    threshold: Count = 20
    """Failed look-ups within the window that have no consequence; the next one starts the penalty.
    """
    window: PositiveDuration = MINUTE
    """For how long a failed look-up counts."""
    penalty: PositiveDuration = 5 * MINUTE
    """How long look-ups of the caller at the mount are refused then, if they find no task."""


class AuthSection(Section):
    """Authentication: who may use the gateway."""

    mode: Literal["required", "none"]
    """required: callers need a token of one of the issuers, or one of the API keys; none: everyone
    who reaches the listener may call.
    """
    allow_insecure: Flag = False
    """Whether the listeners may be on addresses that other machines reach although auth.mode is
    none.
    """
    issuers: Mapping[Name, IssuerSection] = {}
    """The issuers whose tokens are accepted, by name; the names appear in metrics and logs."""
    api_keys: Mapping[Name, ApiKeySection] = {}
    """The API keys of hosts, by name; the names appear in the audit log."""
    token_cache: TokenCacheSection = TokenCacheSection()
    protected_resource_metadata: MetadataSection = MetadataSection()
    context: ContextSection = ContextSection()
    lookup_failures: LookupFailuresSection = LookupFailuresSection()

    def to_issuer_settings(self) -> tuple[IssuerSettings, ...]:
        """Return the settings of the issuers in the order of the file; none with mode none."""
        return tuple(issuer.to_settings(name) for name, issuer in self.issuers.items())

    def to_api_key_settings(self) -> tuple[ApiKeySettings, ...]:
        """Return the settings of the API keys in the order of the file."""
        return tuple(key.to_settings(name) for name, key in self.api_keys.items())


# --- authorization --------------------------------------------------------------------------------------------------


class AuthorizationRule(Section):
    """A rule for the requests that all of its conditions match; null and {} mean any."""

    name: Text | None = None
    """The name of the rule in metrics, logs and refusals; null means its position in the list."""
    methods: Annotated[tuple[Glob, ...], *NOT_EMPTY] | None = None
    """Globs over methods, one of which must match; null means every method."""
    upstream: Text | None = None
    """Name of the upstream that the rule applies to; null means every one."""
    tool: Glob | None = None
    """Glob over names of tools: the rule applies to calls of those; null means every request."""
    claims: Mapping[Text, Annotated[tuple[Text, ...], *NOT_EMPTY]] = {}
    """Claims, and for each the values of which the token must have one; {} means every token.

    Numbers and booleans are written as text: "5", "true".
    """
    require_scopes: Annotated[tuple[Scope, ...], *UNIQUE] = ()
    """The scopes that are needed, all of them."""
    effect: Literal["allow", "deny"] = "allow"
    """allow: the request passes if the token has the scopes; deny: the request is refused."""
    shadow: Flag = False
    """Whether the rule only reports what it would have refused, and decides nothing."""

    def to_rule(self, default_name: str) -> AccessRule:
        """Return the rule of the access policy."""
        return AccessRule(
            name=self.name or default_name,
            methods=self.methods,
            upstream=self.upstream,
            tool=self.tool,
            claims={claim: frozenset(values) for claim, values in self.claims.items()},
            require_scopes=frozenset(self.require_scopes),
            effect=AccessEffect(self.effect),
            shadow=self.shadow,
        )


class AuthorizationSection(Section):
    """Authorization: who may call what."""

    default: Literal["allow", "deny"] = "allow"
    """The effect for a request that no rule matches."""
    only_listed_tools: Literal["auto", True, False] = "auto"
    """Whether tools are refused that their server does not list; auto: at upstreams of which a rule
    refuses some tools.

    A server may trim or normalise the name of a tool that a rule compares letter by letter.
    """
    rules: tuple[AuthorizationRule, ...] = ()
    """The first rule that matches decides."""
    scope_implies: Mapping[Scope, tuple[Scope, ...]] = {}
    """Scopes, and the scopes that each implies, transitively."""

    def to_policy(self, upstreams: Iterable[str]) -> AccessPolicy:
        """Return the access policy over the upstreams of these names.

        A rule without a name is called by its index: `rules[0]`.
        """
        return AccessPolicy(
            rules=tuple(rule.to_rule(f"rules[{index}]") for index, rule in enumerate(self.rules)),
            default=AccessEffect(self.default),
            implied={scope: frozenset(implied) for scope, implied in self.scope_implies.items()},
            only_listed=frozenset(name for name in upstreams if self._refuses_unlisted(name)),
        )

    def _refuses_unlisted(self, upstream: str) -> bool:
        if self.only_listed_tools != "auto":
            return self.only_listed_tools
        return any(
            rule.tool is not None
            and rule.upstream in (None, upstream)
            and not rule.shadow
            and (rule.effect == "deny" or bool(rule.require_scopes))
            for rule in self.rules
        )


# --- rules between keys ---------------------------------------------------------------------------------------------


def auth_mode(raw: object) -> str | None:
    """Return `auth.mode`, None where it is absent or malformed."""
    mode = mapping_at(raw, "auth").get("mode")
    return next((each for each in ("required", "none") if mode == each), None)


def has_tenants(raw: object) -> bool:
    """Whether an issuer has a claim for tenants, or an API key a tenant."""
    issuers, keys = mapping_at(raw, *_ISSUERS).values(), mapping_at(raw, *_API_KEYS).values()
    tenants = [*(mapping_at(each, "claims").get("tenant") for each in issuers)]
    return any(each is not None for each in (*tenants, *(mapping_at(key).get("tenant") for key in keys)))


def without_tenants(raw: object) -> str:
    """Return the end of a message: why a key about tenants cannot be set."""
    if auth_mode(raw) == "none":
        return "with auth.mode none, where callers have no tenant"
    return "unless an issuer has claims.tenant, or an API key a tenant: callers have no tenant"


def count_identity_sources(raw: object) -> int:
    """Return how many issuers there are, where API keys count as one."""
    return len(mapping_at(raw, *_ISSUERS)) + bool(mapping_at(raw, *_API_KEYS))


def auth_conflicts(raw: object) -> Iterator[Conflict]:
    """Find conflicts between keys of `auth` and `authorization`, and with `auth.mode`."""
    mode = auth_mode(raw)
    if mode == "none":
        yield from _without_authentication(raw)
    if mode == "required":
        yield from _with_authentication(raw)
    for name in mapping_at(raw, *_ISSUERS):
        yield from _key_source_conflicts(mapping_at(raw, *_ISSUERS, name), (*_ISSUERS, name))
    yield from _repeated(raw, _ISSUERS, "issuer")
    yield from _repeated(raw, _API_KEYS, "hash")
    for index, rule in enumerate(list_at(raw, *_RULES)):
        if mapping_at(rule).get("effect") == "deny" and list_at(rule, "require_scopes"):
            where = (*_RULES, index, "require_scopes")
            yield where, "must be empty with effect deny, which refuses whatever the scopes"


def _without_authentication(raw: object) -> Iterator[Conflict]:
    if mapping_at(raw, *_ISSUERS):
        yield _ISSUERS, "must be empty with auth.mode none, which uses no tokens"
    if mapping_at(raw, *_API_KEYS):
        yield _API_KEYS, "must be empty with auth.mode none, which uses no API keys"
    if mapping_at(raw, "auth").get("allow_insecure") is not True:
        for keys in (("server", "listen"), ("admin", "listen")):
            address = value_at((raw, {keys[0]: {"listen": None}}), keys, read_listen)
            if address and not address.is_loopback:
                addresses = "a loopback address (127.0.0.1, [::1] or localhost)"
                yield keys, f"must be {addresses} with auth.mode none, unless auth.allow_insecure is true"
    for index, rule in enumerate(list_at(raw, *_RULES)):
        for key, thing in (("require_scopes", "scopes"), ("claims", "claims")):
            if list_at(rule, key) or mapping_at(rule, key):
                where = (*_RULES, index, key)
                yield where, f"must be empty with auth.mode none, where callers have no {thing}"


def _with_authentication(raw: object) -> Iterator[Conflict]:
    if not count_identity_sources(raw):
        yield _ISSUERS, "must name at least one issuer with auth.mode required, unless auth.api_keys has a key"
    if mapping_at(raw, "auth").get("allow_insecure") is True:
        yield ("auth", "allow_insecure"), "can be true only with auth.mode none"
    address = value_at((raw, {"server": {"listen": None}}), ("server", "listen"), read_listen)
    has_public_url = mapping_at(raw, "server").get("public_url") is not None
    if address and address.is_wildcard and not has_public_url and mapping_at(raw, *_ISSUERS):
        why = "with auth.mode required where server.listen is every address: tokens are made for one"
        yield ("server", "public_url"), f"must be given {why}"


def _key_source_conflicts(issuer: Mapping[str, object], where: tuple[str, ...]) -> Iterator[Conflict]:
    given = [key for key in ("jwks_uri", "jwks_file") if issuer.get(key) is not None]
    if len(given) > 1:
        yield (*where, "jwks_file"), f"must not be given beside {dotted((*where, 'jwks_uri'))}"
    if not given and issuer.get("discovery") is False:
        yield (*where, "discovery"), "must be true, or else jwks_uri or jwks_file must be given"
    if issuer.get("ca_file") is not None and issuer.get("jwks_file") is not None:
        yield (*where, "ca_file"), f"must be null beside {dotted((*where, 'jwks_file'))}, which needs no TLS"
    if mapping_at(issuer, "claims").get("audience") is not None and not list_at(issuer, "audience"):
        yield (*where, "audience"), "must name the accepted values of claims.audience, which is no address"


def _repeated(raw: object, section: tuple[str, ...], key: str) -> Iterator[Conflict]:
    """Find entries of a section that have the same value of a key as an earlier one."""
    owners: dict[str, str] = {}
    for name in mapping_at(raw, *section):
        value = mapping_at(raw, *section, name).get(key)
        if isinstance(value, str) and owners.setdefault(value, name) != name:
            yield (*section, name, key), f"must not be the {key} of {dotted((*section, owners[value]))}"
