"""Keys of `auth` and `authorization`: the values that they take, and the settings that they become."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

from taskgate.auth.authorization import AccessEffect, AccessPolicy, AccessRule
from taskgate.auth.claims import IssuerSettings, KeySettings, TokenProfile
from taskgate.auth.keyset import ALGORITHMS
from taskgate.config import GatewayConfig
from taskgate.config.model import admission_rules
from taskgate.config.sections.auth import Algorithm

# --- values -----------------------------------------------------------------------------------------------------------

Loads = Callable[..., GatewayConfig]
ValueAt = Callable[[GatewayConfig, str], Any]

_ISSUER = "auth.issuers.corp"
_KEY = "auth.api_keys.ci"
_METADATA = "auth.protected_resource_metadata"
ALL = ["ES256", "ES384", "ES512", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"]

DEFAULTS: dict[str, Any] = {
    "auth.mode": "required",
    "auth.allow_insecure": False,
    f"{_ISSUER}.issuer": "https://idp.example.com/",
    f"{_ISSUER}.audience": (),
    f"{_ISSUER}.discovery": True,
    f"{_ISSUER}.jwks_uri": None,
    f"{_ISSUER}.jwks_file": None,
    f"{_ISSUER}.ca_file": None,
    f"{_ISSUER}.profile": "generic",
    f"{_ISSUER}.algorithms": ("ES256", "EdDSA", "PS256", "RS256"),
    f"{_ISSUER}.leeway": timedelta(seconds=30),
    f"{_ISSUER}.max_token_age": None,
    f"{_ISSUER}.required_claims": ("iss", "sub", "aud", "exp", "iat"),
    f"{_ISSUER}.claims.audience": None,
    f"{_ISSUER}.claims.client_id": ("client_id", "azp", "appid", "cid"),
    f"{_ISSUER}.claims.scope": ("scope", "scp"),
    f"{_ISSUER}.claims.tenant": None,
    f"{_ISSUER}.jwks.refresh": timedelta(minutes=5),
    f"{_ISSUER}.jwks.cooldown": timedelta(seconds=30),
    f"{_ISSUER}.jwks.stale_max": timedelta(hours=24),
    f"{_ISSUER}.jwks.timeout": timedelta(seconds=5),
    f"{_ISSUER}.jwks.max_size": 256 * 2**10,
    f"{_KEY}.hash": f"sha256:{64 * '0'}",
    f"{_KEY}.subject": "ci",
    f"{_KEY}.tenant": None,
    f"{_KEY}.scopes": (),
    f"{_KEY}.expires": None,
    "auth.token_cache.size": 10_000,
    "auth.token_cache.max_ttl": timedelta(seconds=60),
    f"{_METADATA}.enabled": True,
    f"{_METADATA}.scopes_supported": (),
    f"{_METADATA}.documentation": None,
    f"{_METADATA}.extra": {},
    "auth.context.bind": ("iss", "tenant", "sub", "client_id"),
    "auth.context.key_file": None,
    "auth.lookup_failures.threshold": 20,
    "auth.lookup_failures.window": timedelta(minutes=1),
    "auth.lookup_failures.penalty": timedelta(minutes=5),
    "authorization.default": "allow",
    "authorization.only_listed_tools": "auto",
    "authorization.rules": (),
    "authorization.scope_implies": {},
}

_KEPT_AS_WRITTEN = [
    "https://idp.example.com",
    "https://idp.example.com/",
    "HTTPS://IdP.Example.com:443//a/../b/",
    "http://127.0.0.1:8080/realm",
    "http://127.9.9.9",
    "http://localhost:1",
]
_POSITIVE = [
    (f"{_ISSUER}.max_token_age", "365d", timedelta(days=365)),
    (f"{_ISSUER}.jwks.refresh", "1ms", timedelta(milliseconds=1)),
    (f"{_ISSUER}.jwks.cooldown", "1d", timedelta(days=1)),
    (f"{_ISSUER}.jwks.stale_max", "365d", timedelta(days=365)),
    (f"{_ISSUER}.jwks.timeout", "1m", timedelta(minutes=1)),
    ("auth.lookup_failures.window", "1ms", timedelta(milliseconds=1)),
    ("auth.lookup_failures.penalty", "365d", timedelta(days=365)),
]
GOOD: list[tuple[str, str, Any]] = [
    *_POSITIVE,
    *((f"{_ISSUER}.issuer", text, text) for text in _KEPT_AS_WRITTEN),
    (f"{_ISSUER}.issuer", "'http://[::1]:8080'", "http://[::1]:8080"),
    (f"{_ISSUER}.audience", "['https://a', \"null\"]", ("https://a", "null")),
    (f"{_ISSUER}.jwks_uri", "https://idp.example.com/keys?a=b", "https://idp.example.com/keys?a=b"),
    (f"{_ISSUER}.jwks_uri", "http://localhost:1/keys", "http://localhost:1/keys"),
    (f"{_ISSUER}.jwks_uri", "https://a/" + 2038 * "b", "https://a/" + 2038 * "b"),
    (f"{_ISSUER}.jwks_file", "/keys.json", Path("/keys.json")),
    (f"{_ISSUER}.ca_file", "/ca.pem", Path("/ca.pem")),
    (f"{_ISSUER}.profile", "rfc9068", "rfc9068"),
    (f"{_ISSUER}.algorithms", f"[{', '.join(ALL)}]", tuple(ALL)),
    (f"{_ISSUER}.algorithms", "[RS512]", ("RS512",)),
    (f"{_ISSUER}.leeway", "0s", timedelta()),
    (f"{_ISSUER}.leeway", "5m", timedelta(minutes=5)),
    (f"{_ISSUER}.required_claims", "[]", ()),
    (f"{_ISSUER}.required_claims", "[jti, 'https://a/b c']", ("jti", "https://a/b c")),
    (f"{_ISSUER}.claims.client_id", "[]", ()),
    (f"{_ISSUER}.claims.client_id", "null", None),
    (f"{_ISSUER}.claims.scope", "[permissions]", ("permissions",)),
    (f"{_ISSUER}.claims.tenant", "org_id", "org_id"),
    (f"{_ISSUER}.jwks.max_size", "1KiB", 2**10),
    (f"{_ISSUER}.jwks.max_size", "16MiB", 2**24),
    (f"{_KEY}.hash", f"sha256:{64 * 'a'}", f"sha256:{64 * 'a'}"),
    (f"{_KEY}.subject", "'CI of ü'", "CI of ü"),
    (f"{_KEY}.tenant", "acme", "acme"),
    (f"{_KEY}.scopes", "[a, b]", ("a", "b")),
    (f"{_KEY}.expires", "2027-01-31T12:00:00Z", datetime(2027, 1, 31, 12, tzinfo=UTC)),
    (f"{_KEY}.expires", "2027-01-31T12:00:00+02:00", datetime(2027, 1, 31, 10, tzinfo=UTC)),
    ("auth.token_cache.size", "1", 1),
    ("auth.token_cache.max_ttl", "0s", timedelta()),
    ("auth.token_cache.max_ttl", "1h", timedelta(hours=1)),
    (f"{_METADATA}.enabled", "false", False),
    (f"{_METADATA}.scopes_supported", "['a:b', '!', '[]']", ("a:b", "!", "[]")),
    (f"{_METADATA}.documentation", "http://docs.example.com/?a", "http://docs.example.com/?a"),
    (
        f"{_METADATA}.extra",
        "{resource_name: Reports, n: [1, 1.5, null, {a: {}}]}",
        {"resource_name": "Reports", "n": [1, 1.5, None, {"a": {}}]},
    ),
    ("auth.context.bind", "[sub, iss]", ("sub", "iss")),
    ("auth.context.bind", "[iss, sub, tenant]", ("iss", "sub", "tenant")),
    ("auth.lookup_failures.threshold", "1", 1),
    ("authorization.default", "deny", "deny"),
    ("authorization.scope_implies", "{admin: [read, run], run: []}", {"admin": ("read", "run"), "run": ()}),
]


def test_the_table_of_defaults_has_every_key_of_who_may_do_what(schema_keys: set[str]) -> None:
    assert set(DEFAULTS) == {key for key in schema_keys if key.startswith("auth")}


@pytest.mark.parametrize(("key", "value", "meant"), GOOD, ids=lambda each: str(each)[:40])
def test_a_good_value_means_what_it_says(
    loads: Loads, with_key: Callable[[str, str], str], value_at: ValueAt, key: str, value: str, meant: Any
) -> None:
    assert value_at(loads(with_key(key, value)), key) == meant


def test_the_algorithms_are_those_that_tokens_are_verified_with() -> None:
    assert set(get_args(Algorithm)) == set(ALL) == {name for names in ALGORITHMS.values() for name in names}


def test_what_is_usual_for_an_issuer_is_the_same_here_and_there(loads: Loads, with_tokens: str) -> None:
    usual = IssuerSettings(name="corp", issuer="https://idp.example.com/")
    assert loads(with_tokens).auth.to_issuer_settings() == (usual,)


@pytest.mark.parametrize(("mode", "granted"), [("none", timedelta(hours=1)), ("required", timedelta(hours=24))])
@pytest.mark.parametrize("more", ["", "tasks: {}\n", "tasks: {ttl: {}}\n", "tasks: {ttl: {max: null}}\n"])
def test_the_longest_time_to_live_that_is_granted_is_shorter_without_authentication(
    loads: Loads, minimal: str, with_tokens: str, mode: str, granted: timedelta, more: str
) -> None:
    """A call may take as long in either mode."""
    config = loads((minimal if mode == "none" else with_tokens) + more)
    terms = config.tasks.to_policy(config.auth.mode).decide("reports", "tool")
    assert config.tasks.ttl.max == terms.ttl_max == timedelta(hours=24)
    assert terms.clamp_ttl(timedelta(days=9)) == granted
    assert terms.clamp_ttl(timedelta(minutes=1)) == terms.ttl_min == terms.ttl_default == timedelta(hours=1)


# --- settings of issuers and rules ------------------------------------------------------------------------------------

ISSUERS = """\
version: 1
upstreams: {reports: {path: /a, url: "http://a"}}
auth:
  mode: required
  issuers:
    b: {issuer: "https://b", jwks_uri: "https://b/keys", ca_file: /ca.pem, discovery: true}
    corp:
      issuer: https://idp.example.com/
      audience: [https://a, b]
      jwks_file: /etc/keys.json
      profile: rfc9068
      algorithms: [EdDSA]
      leeway: 1s
      max_token_age: 2h
      required_claims: [jti]
      claims: {client_id: [c], scope: [s], tenant: t}
      jwks: {refresh: 1s, cooldown: 2s, stale_max: 3s, timeout: 4s, max_size: 5KiB}
"""


def test_an_issuer_is_what_the_file_says_in_the_order_of_the_file(loads: Loads) -> None:
    b, corp = loads(ISSUERS).auth.to_issuer_settings()
    assert b == IssuerSettings(
        name="b", issuer="https://b", keys=KeySettings(uri="https://b/keys", ca_file=Path("/ca.pem"))
    )
    assert corp == IssuerSettings(
        name="corp",
        issuer="https://idp.example.com/",
        audience=("https://a", "b"),
        profile=TokenProfile.RFC9068,
        algorithms=("EdDSA",),
        leeway=timedelta(seconds=1),
        max_token_age=timedelta(hours=2),
        required_claims=("jti",),
        client_id_claims=("c",),
        scope_claims=("s",),
        tenant_claim="t",
        keys=KeySettings(
            file=Path("/etc/keys.json"),
            refresh=timedelta(seconds=1),
            cooldown=timedelta(seconds=2),
            stale_max=timedelta(seconds=3),
            timeout=timedelta(seconds=4),
            max_size=5 * 1024,
        ),
    )


def test_without_authentication_there_are_no_issuers(loads: Loads, minimal: str) -> None:
    assert loads(minimal).auth.to_issuer_settings() == ()


def test_without_rules_everything_is_allowed(loads: Loads, minimal: str) -> None:
    assert admission_rules(loads(minimal)).access == AccessPolicy()


def test_the_rules_are_what_the_file_says_in_the_order_of_the_file(loads: Loads, with_tokens: str) -> None:
    config = loads(
        with_tokens
        + """\
authorization:
  default: deny
  rules:
    - {}
    - name: deleting
      methods: [tools/call, "tasks/*"]
      upstream: reports
      tool: delete_*
      claims: {department: [finance, audit]}
      require_scopes: [a, b]
      shadow: true
    - {effect: deny}
  scope_implies: {admin: [a, b], a: []}
"""
    )
    assert admission_rules(config).access == AccessPolicy(
        default=AccessEffect.DENY,
        implied={"admin": frozenset({"a", "b"}), "a": frozenset()},
        rules=(
            AccessRule(name="rules[0]"),
            AccessRule(
                name="deleting",
                methods=("tools/call", "tasks/*"),
                upstream="reports",
                tool="delete_*",
                claims={"department": frozenset({"finance", "audit"})},
                require_scopes=frozenset({"a", "b"}),
                shadow=True,
            ),
            AccessRule(name="rules[2]", effect=AccessEffect.DENY),
        ),
    )
