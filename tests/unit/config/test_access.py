"""Who may do what, as the floors below are told of it."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from taskgate.auth.authorization import AccessPolicy, AccessRule, Effect
from taskgate.auth.settings import IssuerSettings, KeySettings, Profile
from taskgate.config import GatewayConfig
from taskgate.config.settings import admission_rules

Loads = Callable[..., GatewayConfig]

ISSUERS = """\
version: 1
upstreams: {reports: {path: /a, url: "http://a"}}
auth:
  mode: required
  issuers:
    b: {issuer: "https://b", jwks_uri: "https://b/keys", discovery: true}
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
    assert b == IssuerSettings(name="b", issuer="https://b", keys=KeySettings(uri="https://b/keys"))
    assert corp == IssuerSettings(
        name="corp",
        issuer="https://idp.example.com/",
        audience=("https://a", "b"),
        profile=Profile.RFC9068,
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
        default=Effect.DENY,
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
            AccessRule(name="rules[2]", effect=Effect.DENY),
        ),
    )
