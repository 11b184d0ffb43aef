"""The keys of who may do what, with values that they refuse: the place and the words, exactly."""

from collections.abc import Callable

import pytest

Tells = Callable[..., list[str]]
Mistold = Callable[[list[tuple[str, str, str, str]]], list[tuple[str, list[str]]]]
WithKey = Callable[[str, str], str]

_ISSUER = "auth.issuers.corp"
_METADATA = "auth.protected_resource_metadata"
_FLAGS = ("auth.allow_insecure", f"{_ISSUER}.discovery", f"{_METADATA}.enabled")
_FETCHED = (f"{_ISSUER}.issuer", f"{_ISSUER}.jwks_uri")
_PLACES = (*_FETCHED, f"{_METADATA}.documentation")
_FILES = (f"{_ISSUER}.jwks_file", "auth.context.key_file")
_OPEN = (
    f"{_ISSUER}.max_token_age",
    f"{_ISSUER}.jwks.refresh",
    f"{_ISSUER}.jwks.cooldown",
    f"{_ISSUER}.jwks.stale_max",
    "auth.lookup_failures.window",
    "auth.lookup_failures.penalty",
)
_BOUNDED = (f"{_ISSUER}.leeway", f"{_ISSUER}.jwks.timeout", "auth.token_cache.max_ttl")
_COUNTS = ("auth.token_cache.size", "auth.lookup_failures.threshold")
_TEXTS = (f"{_ISSUER}.audience", f"{_ISSUER}.required_claims", f"{_ISSUER}.claims.client_id", f"{_ISSUER}.claims.scope")
_LISTS = (
    *_TEXTS,
    f"{_ISSUER}.algorithms",
    f"{_METADATA}.scopes_supported",
    "auth.context.bind",
    "authorization.rules",
    "authorization.scope_implies.a",
)
_SCOPES = (f"{_METADATA}.scopes_supported", "authorization.scope_implies.a")
_SECTIONS = (
    "auth",
    "auth.issuers",
    _ISSUER,
    f"{_ISSUER}.claims",
    f"{_ISSUER}.jwks",
    "auth.token_cache",
    _METADATA,
    f"{_METADATA}.extra",
    "auth.context",
    "auth.lookup_failures",
    "authorization",
    "authorization.scope_implies",
)

DURATION = "must be a duration such as 250ms, 30s, 5m, 2h or 7d"
TEXT = "must be text, in quotes where it looks like a number, true or null"
ALGORITHMS = (
    "must be 'ES256', 'ES384', 'ES512', 'EdDSA', 'PS256', 'PS384', 'PS512', 'RS256', 'RS384' or 'RS512'"  # as pydantic
)
SCOPE = 'must be one scope of 1 to 256 characters: visible ASCII without " and \\'
JSON = "must be what JSON can say: finite numbers and Unicode text"

# What is said, of which keys, about which values.
SCALARS: list[tuple[str, tuple[str, ...], list[str]]] = [
    ("must be 'required' or 'none'", ("auth.mode",), ["null", "Required", "None", "false", "no", "[]", "jwt"]),
    ("must be true or false", _FLAGS, ["null", "1", "'true'", "yes", "[]"]),
    (DURATION, (*_OPEN, *_BOUNDED), ["1.5s", "-1s", "yes"]),
    (f"needs a unit: {DURATION}", (*_OPEN, *_BOUNDED), ["30"]),
    ("must be at least 1ms", (*_OPEN, f"{_ISSUER}.jwks.timeout"), ["0s"]),
    ("must be at most 365d", _OPEN, ["366d"]),
    ("must be at most 5m", (f"{_ISSUER}.leeway",), ["301s"]),
    ("must be at most 1m", (f"{_ISSUER}.jwks.timeout",), ["61s"]),
    ("must be at most 1h", ("auth.token_cache.max_ttl",), ["61m"]),
    ("must be between 1KiB and 16MiB", (f"{_ISSUER}.jwks.max_size",), ["1023B", "17MiB"]),
    ("must be a whole number", _COUNTS, ["1.0", "true", "'10'", "null"]),
    ("must be at least 1", _COUNTS, ["0", "-1"]),
    ("must be 'generic' or 'rfc9068'", (f"{_ISSUER}.profile",), ["RFC9068", "null", "oidc"]),
    ("must be 'allow' or 'deny'", ("authorization.default",), ["Allow", "null", "true"]),
    ("must be a mapping of keys to values", _SECTIONS, ["null", "[]", "text", "1"]),
    ("must be a list", _LISTS, ["text", "{}", "null"]),
    ("must be an absolute http or https URL, in ASCII and without spaces", _PLACES, ["idp", "ftp://a", "''", "//a"]),
    (TEXT, _PLACES, ["1", "true", "[]"]),
    (TEXT, (f"{_ISSUER}.issuer",), ["null"]),
    ("must not have a fragment", _PLACES, ["https://a/#b"]),
    ("must not hold a user name or password", _PLACES, ["https://a@b", "https://@b", "https://a:b@c"]),
    ("must name a host, and a port from 1 to 65535 if any", _PLACES, ["https://:80", "https://a:0", "http://127.1"]),
    (
        "must be https, or plain http on a loopback host (127.0.0.1, [::1] or localhost)",
        _FETCHED,
        ["http://idp.example.com", "http://10.0.0.1", "HTTP://a", "http://localhost.example.com", "'http://[::2]'"],
    ),
    (
        "must be at most 2048 characters, without a backslash",
        _FETCHED,
        [r"https://a/b\c", "https://a/" + 2039 * "b"],
    ),
    ("must not have a query", (f"{_ISSUER}.issuer",), ["https://a/?b", "https://a?"]),
    ("must be the path of a file", _FILES, ["''", "1", r'"a\0b"', "[]"]),
    ("must not be empty", (f"{_ISSUER}.algorithms",), ["[]"]),
    ("must not be empty", (f"{_ISSUER}.claims.tenant",), ["''"]),
    (TEXT, (f"{_ISSUER}.claims.tenant",), ["1", "[]"]),
    (
        "must not hold the same twice",
        (f"{_ISSUER}.algorithms",),
        ["[RS256, RS256]", "[ES256, EdDSA, ES256]"],
    ),
    ("must not hold the same twice", (f"{_ISSUER}.required_claims", f"{_METADATA}.scopes_supported"), ["[a, b, a]"]),
    ("must not hold the same twice", ("auth.context.bind",), ["[iss, sub, iss]"]),
    (
        "must hold iss and sub: without both of them, strangers would share their tasks",
        ("auth.context.bind",),
        ["[]", "[iss]", "[sub]", "[iss, tenant, client_id]", "[sub, tenant, client_id]", "[tenant]"],
    ),
]

# What is said, where under the key, about which values.
INNER: list[tuple[str, str, str, list[str]]] = [
    *((TEXT, key, "[0]", ["[1]", "[null]", "[[a]]"]) for key in _TEXTS),
    *(("must not be empty", key, "[0]", ["['']"]) for key in _TEXTS),
    *(("must not hold control characters or line ends", key, "[1]", [r'[a, "a\tb"]']) for key in _TEXTS),
    (ALGORITHMS, f"{_ISSUER}.algorithms", "[0]", ["[rs256]", "[RS1]", "[null]", "[ES256K]", "[1]"]),
    (
        "must not be one of a shared secret: all who can check such a token can make one",
        f"{_ISSUER}.algorithms",
        "[1]",
        ["[RS256, HS256]", "[RS256, HS512]", "[RS256, hs384]"],
    ),
    (
        "must not be none: anyone can make an unsigned token",
        f"{_ISSUER}.algorithms",
        "[0]",
        ["[none]", "[None]", "['NONE', RS256]"],
    ),
    ("must be 'iss', 'tenant', 'sub' or 'client_id'", "auth.context.bind", "[2]", ["[iss, sub, jti]"]),
    *((SCOPE, key, "[0]", ["['']", "['a b']", "['a\"']", r"['a\b']", "[ä]", f"[{257 * 'a'}]"]) for key in _SCOPES),
    (SCOPE, "authorization.scope_implies", '."a b"', ["{'a b': [c]}"]),
    ("unknown key", "auth", ".dpop", ["{mode: required, issuers: {a: {issuer: 'https://a'}}, dpop: {}}"]),
    ("unknown key", _ISSUER, ".introspection", ["{issuer: 'https://a', introspection: null}"]),
    ("unknown key", _ISSUER, ".revocation_check", ["{issuer: 'https://a', revocation_check: none}"]),
    ("is required", _ISSUER, ".issuer", ["{}"]),
    (
        "must be a name of a-z, 0-9, _ and -, at most 64 long, with a letter or digit first",
        "auth",
        ".issuers.Corp",
        ["{mode: required, issuers: {Corp: {issuer: 'https://a'}}}"],
    ),
    *(
        ("must not be given: the gateway says this itself", f"{_METADATA}.extra", f".{key}", [f"{{{key}: null}}"])
        for key in (
            "resource",
            "authorization_servers",
            "bearer_methods_supported",
            "scopes_supported",
            "resource_documentation",
        )
    ),
    (JSON, f"{_METADATA}.extra", ".a", ["{a: .inf}", "{a: [{b: .nan}]}", r'{a: "\ud800"}', r'{a: {"\ud800": 1}}']),
    (
        "must not hold control characters or line ends",
        f"{_METADATA}.extra",
        ".a",
        [r'{a: "\n"}', r'{a: [1, {b: "x\x85"}]}', r'{a: {"\0": 1}}', r'{a: {b: {"\L": 1}}}'],
    ),
    ("must not be empty", f"{_METADATA}.extra", '.""', ["{'': 1}"]),
    ("must be a mapping of keys to values", "authorization.rules", "[0]", ["[a]", "[null]"]),
    ("must not be empty", "authorization.rules", "[0].methods", ["[{methods: []}]"]),
    ("must not be empty", "authorization.rules", "[0].methods[1]", ["[{methods: [ping, '']}]"]),
    ("must be a list", "authorization.rules", "[0].methods", ["[{methods: a}]"]),
    (
        "must match a request that hosts can send, such as tools/call, tasks/* or resources/read",
        "authorization.rules",
        "[0].methods[0]",
        [
            "[{methods: [tools/cal]}]",
            "[{methods: ['Tools/*']}]",
            "[{methods: ['notifications/*']}]",
            "[{methods: [GET]}]",
        ],
    ),
    (
        "must have a ] for every [ (the character [ itself is written [[])",
        "authorization.rules",
        "[0].methods[0]",
        ["[{methods: ['a[']}]"],
    ),
    (
        "must have a ] for every [ (the character [ itself is written [[])",
        "authorization.rules",
        "[0].tool",
        ["[{tool: 'a['}]"],
    ),
    (TEXT, "authorization.rules", "[0].name", ["[{name: 1}]"]),
    ("must be a mapping of keys to values", "authorization.rules", "[0].claims", ["[{claims: [a]}]"]),
    ("must not be empty", "authorization.rules", "[0].claims.a", ["[{claims: {a: []}}]"]),
    ("must be a list", "authorization.rules", "[0].claims.a", ["[{claims: {a: b}}]"]),
    (TEXT, "authorization.rules", "[0].claims.a[0]", ["[{claims: {a: [1]}}]"]),
    (SCOPE, "authorization.rules", "[0].require_scopes[0]", ["[{require_scopes: ['a b']}]"]),
    ("must not hold the same twice", "authorization.rules", "[0].require_scopes", ["[{require_scopes: [a, a]}]"]),
    ("must be 'allow' or 'deny'", "authorization.rules", "[0].effect", ["[{effect: refuse}]"]),
    ("must be true or false", "authorization.rules", "[0].shadow", ["[{shadow: 1}]"]),
    ("unknown key", "authorization.rules", "[0].mode", ["[{mode: auto}]"]),
    (
        "must be the name of an upstream of this file",
        "authorization.rules",
        "[1].upstream",
        ["[{upstream: reports}, {upstream: report}]"],
    ),
]


def _rows() -> list[tuple[str, str, str, str]]:
    scalars = [(key, value, key, words) for words, keys, values in SCALARS for key in keys for value in values]
    return scalars + [(key, value, f"{key}{inner}", words) for words, key, inner, values in INNER for value in values]


ROWS = _rows()


@pytest.mark.parametrize("key", dict.fromkeys(key for key, *_ in ROWS))
def test_each_bad_value_of_a_key_is_told_on_its_line_and_nothing_else_is(mistold: Mistold, key: str) -> None:
    assert mistold([row for row in ROWS if row[0] == key]) == []


def test_a_key_that_the_section_of_an_issuer_nearly_has_is_guessed(tells: Tells, with_key: WithKey) -> None:
    told = tells(with_key("auth.issuers.corp.jwks_url", "https://a"))
    assert told == ["f:7: auth.issuers.corp.jwks_url: unknown key (did you mean jwks_uri?)"]


def test_a_file_that_says_nothing_of_who_may_use_the_gateway_is_told_what_to_write(tells: Tells, minimal: str) -> None:
    told = tells(minimal.replace("auth: {mode: none}\n", ""))
    assert told == ["f:1: auth: is required; write auth: with mode: required and issuers, or auth: {mode: none}"]
    told = tells(minimal.replace("mode: none", ""))
    assert told == ["f:2: auth.mode: is required; write mode: required, or mode: none"]
