"""What the keys of who may do what say together."""

from collections.abc import Callable

import pytest

from requirements import covers
from taskgate.config import GatewayConfig
from taskgate.config.model import DEFAULTS, conflicts

Loads = Callable[..., GatewayConfig]
Tells = Callable[..., list[str]]

LOOPBACK = (
    "must be a loopback address (127.0.0.1, [::1] or localhost) with auth.mode none, unless auth.allow_insecure is true"
)
MINIMAL_UPSTREAM = "upstreams: {a: {path: /a, url: 'http://a'}}\n"
OPEN_ADDRESSES = ["0.0.0.0:1", "'[::]:1'", "192.168.1.1:1", "example.com:1", "localhost.example.com:1", "'[::2]:0'"]


def _issuers(*issuers: str) -> str:
    lines = [f"    {name}: {{{keys}}}\n" for name, keys in zip("abc", issuers, strict=False)]
    return f"version: 1\n{MINIMAL_UPSTREAM}auth:\n  mode: required\n  issuers:\n{''.join(lines)}"


def _rules(mode: str, rule: str) -> str:
    auth = "{mode: none}" if mode == "none" else "{mode: required, issuers: {a: {issuer: 'https://a'}}}"
    return f"version: 1\n{MINIMAL_UPSTREAM}auth: {auth}\nauthorization:\n  rules:\n    - {{}}\n    - {rule}\n"


@covers("H-HTTP-2", "T55")
@pytest.mark.parametrize("section", ["server", "admin"])
@pytest.mark.parametrize("address", OPEN_ADDRESSES)
@pytest.mark.parametrize("mode", ["mode: none", "mode: none, allow_insecure: false"])
def test_without_authentication_only_this_machine_reaches_the_listeners(
    tells: Tells, minimal: str, section: str, address: str, mode: str
) -> None:
    text = minimal.replace("mode: none", mode) + f"{section}:\n  listen: {address}\n"
    assert tells(text) == [f"f:6: {section}.listen: {LOOPBACK}"]


def test_both_listeners_are_told(tells: Tells, minimal: str) -> None:
    text = minimal + "admin: {listen: '0.0.0.0:1'}\nserver: {listen: '0.0.0.0:2'}\n"
    assert tells(text) == [f"f:5: admin.listen: {LOOPBACK}", f"f:6: server.listen: {LOOPBACK}"]


@pytest.mark.parametrize("mode", ["mode: None", "mode: null", ""])
def test_where_the_mode_is_not_known_nothing_is_told_that_depends_on_it(tells: Tells, minimal: str, mode: str) -> None:
    more = "server: {listen: '0.0.0.0:1'}\ntasks: {ttl: {max: 2h, default: 90m}}\nauthorization: {rules: [{}]}\n"
    [told] = tells(minimal.replace("mode: none", mode) + more)
    assert told.startswith("f:2: auth.mode: ")


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "'[::]:8080'", "0.0.0.0:0"])
@pytest.mark.parametrize("more", ["", ", public_url: null"])
def test_tokens_need_an_address_to_be_made_for(tells: Tells, with_tokens: str, listen: str, more: str) -> None:
    line = with_tokens.count("\n") + 1
    why = "must be given with auth.mode required where server.listen is every address: tokens are made for one"
    assert tells(f"{with_tokens}server: {{listen: {listen}{more}}}\n") == [f"f:{line}: server.public_url: {why}"]


@pytest.mark.parametrize("server", ["listen: '0.0.0.0:1', public_url: 'https://a.example'", "listen: '10.0.0.1:1'"])
def test_tokens_can_be_made_for_a_named_address(loads: Loads, with_tokens: str, server: str) -> None:
    assert loads(f"{with_tokens}server: {{{server}}}\n").auth.mode == "required"


def test_without_authentication_issuers_would_do_nothing(tells: Tells, with_tokens: str) -> None:
    told = "f:2: auth.issuers: must be empty with auth.mode none, which uses no tokens"
    assert tells(with_tokens.replace("mode: required", "mode: none")) == [told]


@pytest.mark.parametrize(
    ("rule", "key", "thing"),
    [
        ("{require_scopes: [a]}", "require_scopes", "scopes"),
        ("{require_scopes: [a], shadow: true}", "require_scopes", "scopes"),
        ("{claims: {a: [b]}}", "claims", "claims"),
        ("{claims: {a: [b]}, effect: deny}", "claims", "claims"),
    ],
)
def test_without_authentication_a_rule_asks_for_nothing(tells: Tells, rule: str, key: str, thing: str) -> None:
    told = f"f:7: authorization.rules[1].{key}: must be empty with auth.mode none, where callers have no {thing}"
    assert tells(_rules("none", rule)) == [told]


@pytest.mark.parametrize("rule", ["{effect: deny, tool: 'delete_*'}", "{require_scopes: [], claims: {}}"])
def test_without_authentication_a_rule_may_still_refuse(loads: Loads, rule: str) -> None:
    assert len(loads(_rules("none", rule)).authorization.rules) == 2


def test_a_rule_that_refuses_whatever_the_scopes_names_none(tells: Tells) -> None:
    told = "must be empty with effect deny, which refuses whatever the scopes"
    rule = "{effect: deny, require_scopes: [a]}"
    assert tells(_rules("required", rule)) == [f"f:7: authorization.rules[1].require_scopes: {told}"]


@pytest.mark.parametrize("issuers", ["", ", issuers: {}"])
def test_tokens_need_an_issuer(tells: Tells, minimal: str, issuers: str) -> None:
    text = minimal.replace("mode: none", f"mode: required{issuers}")
    assert tells(text) == ["f:2: auth.issuers: must name at least one issuer with auth.mode required"]


def test_what_is_allowed_without_authentication_is_not_allowed_with_it(tells: Tells, with_tokens: str) -> None:
    text = with_tokens.replace("mode: required", "mode: required, allow_insecure: true")
    assert tells(text) == ["f:2: auth.allow_insecure: can be true only with auth.mode none"]


@pytest.mark.parametrize("more", ["", ", discovery: true", ", discovery: false"])
def test_the_keys_are_not_in_two_places(tells: Tells, more: str) -> None:
    text = _issuers("issuer: 'https://a'", f"issuer: 'https://b', jwks_uri: 'https://b/keys', jwks_file: f{more}")
    told = "must not be given beside auth.issuers.b.jwks_uri"
    assert tells(text) == [f"f:7: auth.issuers.b.jwks_file: {told}"]


@pytest.mark.parametrize("more", ["", ", jwks_uri: null, jwks_file: null"])
def test_the_keys_are_somewhere(tells: Tells, more: str) -> None:
    text = _issuers("issuer: 'https://a'", f"issuer: 'https://b', discovery: false{more}")
    told = "must be true, or else jwks_uri or jwks_file must be given"
    assert tells(text) == [f"f:7: auth.issuers.b.discovery: {told}"]


@pytest.mark.parametrize("source", ["jwks_uri: 'https://b/keys'", "jwks_file: keys.json"])
@pytest.mark.parametrize("discovery", ["", ", discovery: true", ", discovery: false"])
def test_a_place_that_is_given_goes_before_discovery(loads: Loads, source: str, discovery: str) -> None:
    assert "a" in loads(_issuers(f"issuer: 'https://b', {source}{discovery}")).auth.issuers


def test_two_issuers_are_not_the_same(tells: Tells) -> None:
    text = _issuers("issuer: 'https://a/'", "issuer: 'https://a'", "issuer: 'https://a/'")
    assert tells(text) == ["f:8: auth.issuers.c.issuer: must not be the issuer of auth.issuers.a"]


def test_issuers_are_told_apart_letter_by_letter(loads: Loads) -> None:
    text = _issuers("issuer: 'https://a/'", "issuer: 'https://a'", "issuer: 'https://A'")
    assert len(loads(text).auth.issuers) == 3


TTL = [
    ("none", "keep: 61m", ["keep: must be at most 1h with auth.mode none"]),
    ("none", "default: 7d", ["default: must be at most 1h with auth.mode none"]),
    ("none", "min: 2h", ["min: must be at most 1h with auth.mode none"]),
    ("none", "{min: 2h, max: 30m}", ["min: must be at most 1h with auth.mode none"]),
    ("none", "min: 59m\n    default: 58m", ["min: must be at most tasks.ttl.default"]),
    ("none", "default: 8d", ["default: must be at most 7d"]),
    ("required", "default: 25h", ["default: must be at most tasks.ttl.max, which is 1d unless given"]),
    ("required", "default: 25h\n    max: null", ["default: must be at most tasks.ttl.max"]),
    ("required", "max: 8d", ["max: must be at most 7d"]),
    ("required", "max: 6d\n    default: 7d", ["default: must be at most tasks.ttl.max"]),
    ("required", "max: 59m", ["max: must be at least tasks.ttl.default, which is 1h unless given"]),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "ttl", "told"), TTL)
def test_how_long_tasks_are_kept_depends_on_whether_callers_are_known(
    tells: Tells, minimal: str, with_tokens: str, mode: str, ttl: str, told: list[str]
) -> None:
    text = (minimal if mode == "none" else with_tokens) + (
        f"tasks:\n  ttl: {ttl}\n" if ttl.startswith("{") else f"tasks:\n  ttl:\n    {ttl}\n"
    )
    hint = ", which is 1d unless given" if "null" in ttl else ""
    assert [each.partition("tasks.ttl.")[2] for each in tells(text)] == [f"{each}{hint}" for each in told]


@pytest.mark.parametrize(
    "written",
    [
        {"auth": None},
        {"auth": {"mode": ["none"]}, "tasks": {"ttl": {"default": "2h"}}},
        {"auth": {"mode": "none", "issuers": []}, "authorization": {"rules": {}}},
        {"auth": {"mode": "none", "allow_insecure": 1}, "server": {"listen": 1}, "authorization": {"rules": [1, None]}},
        {"auth": {"mode": "none"}, "tasks": {"ttl": {"max": "soon", "min": None}}},
        {"auth": {"issuers": {"a": None, "b": {"issuer": 1}, "c": {"issuer": 1, "discovery": "no"}}}},
        {"authorization": {"rules": [{"effect": "deny", "require_scopes": "a"}]}},
        {"authorization": None},
    ],
    ids=str,
)
def test_malformed_parts_contradict_nothing(written: object) -> None:
    assert conflicts(written, defaults=DEFAULTS) == []


def test_what_is_wrong_with_an_issuer_and_what_it_contradicts_are_told_together(tells: Tells) -> None:
    text = _issuers(
        "issuer: 'http://a', algorithms: [HS256]",
        "issuer: 'https://b', jwks_uri: 'https://b', jwks_file: ''",
        "issuer: 'https://b', discovery: false, dpop: x",
    )
    assert [told.partition(": ")[0] + told.partition(": ")[2][:40] for told in tells(text)] == [
        "f:6auth.issuers.a.algorithms[0]: must not b",
        "f:6auth.issuers.a.issuer: must be https, or",
        "f:7auth.issuers.b.jwks_file: must be the pa",
        "f:8auth.issuers.c.discovery: must be true, ",
        "f:8auth.issuers.c.dpop: unknown key",
        "f:8auth.issuers.c.issuer: must not be the i",
    ]
