"""The keys of what the gateway shows to servers: what they take, what they refuse, what they say together."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskgate.config import GatewayConfig, effective
from taskgate.config.fields import MASK
from taskgate.config.model import DEFAULTS, conflicts, upstream_settings
from taskgate.upstream.settings import (
    AssertionKey,
    ClientAuth,
    ExchangeProfile,
    FixedHeader,
    GrantKind,
    GrantSettings,
    IdentityHeaders,
    UpstreamTls,
)

Loads = Callable[..., GatewayConfig]

CLIENT = "token_url: 'https://idp.example.com/token', client_id: gw, client_secret: s3cret"


def upstream(keys: str, *, url: str = "https://reports.internal/mcp", auth: str = "required") -> str:
    who = "{mode: none}" if auth == "none" else "{mode: required, issuers: {corp: {issuer: 'https://idp.example.com'}}}"
    return f"version: 1\nauth: {who}\nupstreams:\n  reports:\n    path: /a\n    url: {url}\n{keys}"


def credentials(keys: str, **where: str) -> str:
    return upstream(f"    credentials: {{{keys}}}\n", **where)


def settings_of(config: GatewayConfig) -> Any:
    return upstream_settings(config, "reports")


def test_a_fixed_header_is_shown(loads: Loads) -> None:
    text = credentials("mode: header, header: X-Api-Key, value: '${KEY}'")
    assert settings_of(loads(text, {"KEY": "a b~!"})).credentials == FixedHeader(name="X-Api-Key", value="a b~!")


@pytest.mark.parametrize(
    "keys",
    [
        "mode: none",
        "mode: header, header: Authorization, value: a",
        f"mode: client_credentials, {CLIENT}",
        f"mode: token_exchange, {CLIENT}, audience: a",
    ],
)
def test_fixed_headers_stand_beside_every_mode_and_are_never_shown(loads: Loads, keys: str) -> None:
    text = credentials(keys) + "    headers: {X-Api-Key: '${KEY}', X-Org: plain-0rg}\n"
    config = loads(text, {"KEY": "the-k3y"})
    assert settings_of(config).headers == {"X-Api-Key": "the-k3y", "X-Org": "plain-0rg"}
    for written in (repr(config), repr(settings_of(config)), effective(config), str(config.model_dump(mode="json"))):
        assert "the-k3y" not in written
        assert "plain-0rg" not in written


@pytest.mark.parametrize("mode", GrantKind)
def test_a_token_is_asked_for_as_configured(loads: Loads, mode: str) -> None:
    more = "ca_file: /ca.pem, resource: 'https://a/b', audience: c, scopes: [d, e], cache: false"
    asked = settings_of(loads(credentials(f"mode: {mode}, {CLIENT}, {more}"))).credentials
    assert asked == GrantSettings(
        kind=GrantKind(mode),
        token_url="https://idp.example.com/token",
        ca_file=Path("/ca.pem"),
        client_id="gw",
        client_secret="s3cret",
        resource="https://a/b",
        audience="c",
        scopes=("d", "e"),
        keeps=False,
    )


def test_the_ways_of_a_client_are_settings(loads: Loads) -> None:
    client = "token_url: 'https://idp.example.com/token', client_id: gw, mode: client_credentials"

    def asked(keys: str) -> GrantSettings:
        found = settings_of(loads(credentials(f"{client}, {keys}"))).credentials
        assert isinstance(found, GrantSettings)
        return found

    posted = asked("client_auth: post, client_secret: s3cret, max_token: 1KiB")
    assert (posted.client_auth, posted.client_secret, posted.max_token) == (ClientAuth.POST, "s3cret", 1024)
    keys = "key_file: /k, key_id: one, algorithm: PS256, assertion_audience: 'https://i/'"
    signed = asked(f"client_auth: private_key_jwt, {keys}")
    key = AssertionKey(file=Path("/k"), id="one", algorithm="PS256", audience="https://i/")
    assert (signed.client_auth, signed.client_secret, signed.assertion_key) == (ClientAuth.PRIVATE_KEY_JWT, None, key)
    federated = asked("client_auth: federated, assertion_file: /t")
    assert (federated.client_auth, federated.assertion_file) == (ClientAuth.FEDERATED, Path("/t"))


@pytest.mark.parametrize("target", ["audience: 'api://a'", "scopes: ['api://a/.default', User.Read]"])
def test_an_exchange_at_entra_needs_an_audience_or_scopes(loads: Loads, target: str) -> None:
    asked = settings_of(loads(credentials(f"mode: token_exchange, profile: entra, {CLIENT}, {target}"))).credentials
    assert asked.profile is ExchangeProfile.ENTRA


@pytest.mark.parametrize("target", ["audience: a", "resource: 'https://a'"])
def test_either_name_of_the_target_is_enough_for_an_exchange(loads: Loads, target: str) -> None:
    assert settings_of(loads(credentials(f"mode: token_exchange, {CLIENT}, {target}"))).credentials.keeps is True


def test_the_certificate_alone_is_shown_with_mode_mtls(loads: Loads) -> None:
    keys = "{ca_file: /ca, cert_file: /cert, key_file: /key, server_name: A.example, insecure_skip_verify: true}"
    settings = settings_of(loads(upstream(f"    credentials: {{mode: mtls}}\n    tls: {keys}\n")))
    assert settings.credentials is None
    assert settings.tls == UpstreamTls(
        ca_file=Path("/ca"),
        cert_file=Path("/cert"),
        key_file=Path("/key"),
        server_name="a.example",
        insecure_skip_verify=True,
    )


def test_a_server_is_told_of_callers_by_the_named_headers(loads: Loads) -> None:
    settings = settings_of(loads(upstream("    identity_headers: {context: X-C, subject: X-S, issuer: X-I}\n")))
    assert settings.identity == IdentityHeaders(context="X-C", subject="X-S", issuer="X-I")


def test_nothing_is_shown_unless_it_is_asked_for(loads: Loads, minimal: str) -> None:
    settings = settings_of(loads(minimal))
    assert (settings.credentials, settings.identity, settings.tls) == (None, IdentityHeaders(), UpstreamTls())


def test_no_repr_has_a_secret(loads: Loads) -> None:
    for text in (
        credentials("mode: header, header: X-Api-Key, value: s3cret"),
        credentials(f"mode: client_credentials, {CLIENT}"),
    ):
        config = loads(text)
        assert "s3cret" not in f"{config!r} {config!s} {settings_of(config)!r}"


@pytest.mark.parametrize(
    "keys",
    [
        "mode: header, header: Authorization, value: 'Bearer $$a'",
        f"mode: token_exchange, {CLIENT}, audience: '~', scopes: ['null'], cache: false",
    ],
)
def test_the_effective_configuration_loads_to_the_same_once_its_secret_is_put_back(loads: Loads, keys: str) -> None:
    config = loads(credentials(keys) + "    identity_headers: {context: '~'}\n    tls: {server_name: '1a'}\n")
    secret = "Bearer $$a" if "Bearer" in keys else "s3cret"
    assert loads(effective(config).replace(MASK, secret)) == config


def test_without_authentication_the_one_context_may_be_told(loads: Loads) -> None:
    text = upstream("    identity_headers: {context: X-Context}\n", auth="none")
    assert settings_of(loads(text)).identity.context == "X-Context"


def test_whatever_the_tree_is_made_of_nothing_raises() -> None:
    for odd in (None, 1, "a", [], {"mode": []}, {"mode": 1}, {"header": 1, "scopes": "a", "cache": 0}):
        tree = {"upstreams": {"a": {"url": odd, "credentials": odd, "identity_headers": odd, "tls": odd}}}
        assert isinstance(conflicts(tree, defaults=DEFAULTS), list)
