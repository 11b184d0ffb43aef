"""The keys of what the gateway shows to servers: what they take, what they refuse, what they say together."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from requirements import covers
from taskgate.config import GatewayConfig, effective
from taskgate.config.fields import MASK
from taskgate.config.model import DEFAULTS, conflicts, upstream_settings
from taskgate.upstream.settings import FixedHeader, GrantKind, GrantSettings, IdentityHeaders, UpstreamTls

Loads = Callable[..., GatewayConfig]
Tells = Callable[..., list[str]]

HEADER = "must be the name of a header: 1 to 128 letters, digits and some signs, such as X-Api-Key"
NEEDED = "must not be a header that the gateway itself or HTTP needs"
SECRET = "must be 1 to 8192 characters of ASCII without control characters, or spaces at the ends"
HOST = "must be the name of a host, without a port"
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


@pytest.mark.parametrize("mode", GrantKind)
def test_a_token_is_asked_for_as_configured(loads: Loads, mode: str) -> None:
    more = "resource: 'https://a/b', audience: c, scopes: [d, e], cache: false"
    asked = settings_of(loads(credentials(f"mode: {mode}, {CLIENT}, {more}"))).credentials
    assert asked == GrantSettings(
        kind=GrantKind(mode),
        token_url="https://idp.example.com/token",
        client_id="gw",
        client_secret="s3cret",
        resource="https://a/b",
        audience="c",
        scopes=("d", "e"),
        keeps=False,
    )


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


# What is said, of which key under `credentials`, `identity_headers` or `tls`, about which values.
REFUSED: list[tuple[str, tuple[str, ...], list[str]]] = [
    (
        "must be 'none', 'header', 'client_credentials', 'token_exchange' or 'mtls'",
        ("credentials.mode",),
        ["passthrough", "pass_through", "forward", "null", "Header", "true"],
    ),
    (
        HEADER,
        ("credentials.header", "identity_headers.context", "identity_headers.subject", "identity_headers.issuer"),
        ["''", "a b", "'a:'", r'"a\r\nb"', "ä", "'a,b'"],
    ),
    (
        NEEDED,
        ("credentials.header", "identity_headers.context", "identity_headers.subject", "identity_headers.issuer"),
        ["Host", "content-length", "Transfer-Encoding", "Mcp-Session-Id", "MCP-anything", "Connection", "Accept"],
    ),
    (
        "must not be a header for credentials",
        ("identity_headers.context", "identity_headers.subject", "identity_headers.issuer"),
        ["Authorization", "cookie", "Proxy-Authorization"],
    ),
    (SECRET, ("credentials.value", "credentials.client_secret"), ["''", "' a'", "'a '", r'"a\nb"', r'"a\0"', "ä"]),
    (
        "must be https, or plain http on a loopback host (127.0.0.1, [::1] or localhost)",
        ("credentials.token_url",),
        ["http://idp.example.com/token"],
    ),
    ("must not hold a user name or password", ("credentials.token_url",), ["https://a:b@c"]),
    ("must be true or false", ("credentials.cache", "tls.insecure_skip_verify"), ["1", "null", "'true'"]),
    (
        "must be the path of a file",
        ("tls.ca_file", "tls.cert_file", "tls.key_file"),
        ["''", "1", r'"a\0b"'],
    ),
    (HOST, ("tls.server_name",), ["a:443", "''", "'*.example.com'", "a/b", "'127.1'", "-a"]),
    ("must be a list", ("credentials.scopes",), ["a", "null"]),
]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [(path, value, words) for words, paths, values in REFUSED for path in paths for value in values],
)
def test_a_bad_value_is_told(tells: Tells, path: str, value: str, words: str) -> None:
    section, key = path.split(".")
    told = tells(upstream(f"    {section}:\n      {key}: {value}\n"))
    assert f"f:8: upstreams.reports.{path}: {words}" in told


@pytest.mark.parametrize(
    ("section", "key"),
    [("credentials", "passthrough"), ("credentials", "dpop"), ("identity_headers", "token"), ("tls", "ciphers")],
)
def test_what_is_not_built_is_an_unknown_key(tells: Tells, section: str, key: str) -> None:
    assert tells(upstream(f"    {section}:\n      {key}: a\n")) == [
        f"f:8: upstreams.reports.{section}.{key}: unknown key"
    ]


_AT = "f:7: upstreams.reports."

TOGETHER: list[tuple[str, list[str]]] = [
    ("mode: header", ["header: is required with mode header", "value: is required with mode header"]),
    ("mode: header, header: A", ["value: is required with mode header"]),
    (
        "mode: client_credentials",
        [f"{key}: is required with mode client_credentials" for key in ("client_id", "client_secret", "token_url")],
    ),
    (
        f"mode: token_exchange, {CLIENT}",
        ["audience: is required with mode token_exchange, unless resource is given"],
    ),
    ("header: A", ["header: must be null with mode none"]),
    ("mode: none, value: a", ["value: must be null with mode none"]),
    (f"mode: client_credentials, {CLIENT}, header: A", ["header: must be null with mode client_credentials"]),
    ("mode: header, header: A, value: b, audience: c", ["audience: must be null with mode header"]),
    ("mode: none, client_secret: c", ["client_secret: must be null with mode none"]),
    ("mode: none, scopes: [c]", ["scopes: must be empty with mode none"]),
    ("mode: header, header: A, value: b, cache: false", ["cache: must be true with mode header"]),
]


@pytest.mark.parametrize(("keys", "words"), TOGETHER)
def test_what_a_mode_needs_is_given_and_nothing_else_is(tells: Tells, keys: str, words: list[str]) -> None:
    assert tells(credentials(keys)) == [f"{_AT}credentials.{each}" for each in words]


def test_without_authentication_nobody_has_a_token_or_a_subject(tells: Tells) -> None:
    assert tells(credentials(f"mode: token_exchange, {CLIENT}, audience: a", auth="none")) == [
        f"{_AT}credentials.mode: must not be token_exchange with auth.mode none, where callers have no token"
    ]
    assert tells(upstream("    identity_headers: {subject: X-S}\n", auth="none")) == [
        f"{_AT}identity_headers.subject: must be null with auth.mode none, where callers have no subject"
    ]
    assert tells(upstream("    identity_headers: {issuer: X-I}\n", auth="none")) == [
        f"{_AT}identity_headers.issuer: must be null with auth.mode none, where callers have no issuer"
    ]


def of_two_issuers(headers: str) -> str:
    """A server that gets these headers, for callers of two issuers."""
    other = "other: {issuer: 'https://other.example.com'}}}"
    return upstream(f"    identity_headers: {headers}\n").replace(
        "'https://idp.example.com'}}}", f"'https://idp.example.com'}}, {other}"
    )


@covers("T7")
def test_a_subject_of_two_issuers_is_named_with_its_issuer(tells: Tells, loads: Loads) -> None:
    assert tells(of_two_issuers("{subject: X-S}")) == [
        f"{_AT}identity_headers.issuer: is required with subject and more than one of auth.issuers: "
        "one sub at two issuers is two users, whom the server tells apart by this header"
    ]
    for headers in ("{subject: X-S, issuer: X-I}", "{issuer: X-I}", "{context: X-C}"):
        assert loads(of_two_issuers(headers))


def test_without_authentication_the_one_context_may_be_told(loads: Loads) -> None:
    text = upstream("    identity_headers: {context: X-Context}\n", auth="none")
    assert settings_of(loads(text)).identity.context == "X-Context"


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ("    identity_headers: {context: X-A, subject: x-a}\n", "identity_headers.subject"),
        ("    identity_headers: {context: X-A, issuer: x-a}\n", "identity_headers.issuer"),
        (
            "    credentials: {mode: header, header: X-A, value: a}\n    identity_headers: {context: x-A}\n",
            "identity_headers.context",
        ),
    ],
)
def test_no_two_headers_are_the_same(tells: Tells, keys: str, word: str) -> None:
    other = "credentials.header" if "context" in word else "identity_headers.context"
    [told] = tells(upstream(keys))
    assert told.endswith(f"upstreams.reports.{word}: must not be the header of upstreams.reports.{other}")


def test_a_certificate_needs_its_key_and_a_key_its_certificate(tells: Tells) -> None:
    assert tells(upstream("    tls: {cert_file: /a}\n")) == [f"{_AT}tls.key_file: is required with cert_file"]
    assert tells(upstream("    tls: {key_file: /a}\n")) == [f"{_AT}tls.cert_file: is required with key_file"]
    assert sorted(tells(credentials("mode: mtls"))) == [
        "f:4: upstreams.reports.tls.cert_file: is required with mode mtls",
        "f:4: upstreams.reports.tls.key_file: is required with mode mtls",
    ]


def test_tls_is_for_https(tells: Tells) -> None:
    keys = "{ca_file: /a, cert_file: /b, key_file: /c, server_name: d, insecure_skip_verify: true}"
    text = upstream(f"    tls: {keys}\n    credentials: {{mode: mtls}}\n", url="http://127.0.0.1/mcp")
    assert set(tells(text)) == {
        "f:6: upstreams.reports.url: must be https with mode mtls",
        *(f"{_AT}tls.{key}: must be null unless url is https" for key in ("ca_file", "cert_file", "key_file")),
        f"{_AT}tls.server_name: must be null unless url is https",
        f"{_AT}tls.insecure_skip_verify: must be false unless url is https",
    }


def test_whatever_the_tree_is_made_of_nothing_raises() -> None:
    for odd in (None, 1, "a", [], {"mode": []}, {"mode": 1}, {"header": 1, "scopes": "a", "cache": 0}):
        tree = {"upstreams": {"a": {"url": odd, "credentials": odd, "identity_headers": odd, "tls": odd}}}
        assert isinstance(conflicts(tree, defaults=DEFAULTS), list)
