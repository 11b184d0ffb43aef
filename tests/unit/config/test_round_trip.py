"""The configuration as text again, and the JSON Schema."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from helpers.examples import examples
from taskgate.config import ConfigurationError, GatewayConfig, effective, json_schema, load
from taskgate.config.fields import read_duration, read_rate, read_size, write_duration, write_size

Loads = Callable[..., GatewayConfig]

OTHER = """\
version: 1
auth: {mode: none}
server:
  listen: "[::1]:0"
  public_url: https://mcp.example.com
  allowed_hosts: [a, "b:1"]
  allowed_origins: ["https://a"]
  drain: {delay: 0s, running_tasks: fail}
admin: {listen: "localhost:1"}
upstreams:
  "null": {path: /a, url: "http://a/$$x", timeouts: {idle: 1500ms}}
  "1": {path: /b, url: "http://b"}
tasks:
  upgrade: [{tool: "$$[0o7]: # ä", mode: required, upstream: "1"}, {tool: "~", mode: sync}]
  ttl: {min: 1500ms, default: 90s, max: 61s60000ms}
store: {backend: memory, sqlite: {path: "a b $$.db", max_size: 1536KiB}}
logging: {level: error, format: console}
""".replace("61s60000ms", "3600s")
TOKENS = """\
version: 1
server: {listen: "0.0.0.0:80", public_url: https://mcp.example.com}
admin: {listen: "[::]:81"}
upstreams: {a: {path: /a, url: "http://a"}}
tasks: {ttl: {max: 7d, default: 2d}}
auth:
  mode: required
  issuers:
    "null":
      issuer: https://IdP.example.com:443/a$$b/
      audience: ["https://a", "~", "null", "1"]
      jwks_file: "a b $$.json"
      profile: rfc9068
      algorithms: [RS512, EdDSA]
      leeway: 0s
      max_token_age: 1500ms
      required_claims: []
      claims: {client_id: [], scope: ["1"], tenant: "https://a/tenant id"}
      jwks: {refresh: 1ms, cooldown: 1d, stale_max: 365d, timeout: 1m, max_size: 1KiB}
    b: {issuer: "http://[::1]:8080", jwks_uri: "https://idp.example.com/keys/$$a=b"}
    c: {issuer: "http://localhost"}
  token_cache: {size: 1, max_ttl: 0s}
  protected_resource_metadata:
    enabled: false
    scopes_supported: ["a:b", "null"]
    documentation: https://a/b/c
    extra: {"~": null, "1": [1, 1.5, 1e30, -0.0, true, "true", "$$", {a: {}, "": []}], $b: "\\U0001F600 \\u200D"}
  context: {bind: [sub, iss], key_file: /etc/key}
  lookup_failures: {threshold: 1, window: 1s, penalty: 365d}
authorization:
  default: deny
  rules:
    - {}
    - {name: "null", methods: ["tasks/*", "?ing"], upstream: a, tool: "[[]$$*", claims: {"a b": ["1"], "~": [x]}}
    - {require_scopes: ["$$", "!"], shadow: true}
    - {effect: deny}
  scope_implies: {"$a": ["$$b", "true"], "null": []}
"""
LIMITS = """\
version: 1
auth: {mode: required, issuers: {a: {issuer: "https://a", claims: {tenant: org}}}}
upstreams:
  a:
    path: /a
    url: http://a
    retries: {attempts: 10, when: [], backoff: 1ms, max_backoff: 1ms}
    health: null
    circuit_breaker: null
    concurrency: 1
    queue: {size: 0, max_wait: 1ms}
  b: {path: /b, url: "http://b", health: {method: ping, unhealthy_after: 9}, circuit_breaker: {half_open: 2}}
tasks:
  upgrade:
    - {upstream: a, tool: x, mode: auto, inline_grace: 0s, hints: {readOnlyHint: true, destructiveHint: false}}
    - {tool: y, mode: always, ttl: 2h, ttl_min: 1h, ttl_max: 7d, deadline: 1ms, cap: 1, on_lost: rerun}
    - {tool: "*", mode: sync, join_retries: 90s, shadow: true}
  poll_interval: {base: 1s, min: 1s, max: 1s, adaptive: false, jitter: 0, target_utilization: 1}
  early_poll: {tolerance: 0.25, reject_above: 1}
limits:
  reject_as: http
  expose_quota: true
  rate:
    - {name: "null", scope: tenant, rate: 90/m, methods: ["tasks/*", "?ools/call"], tool: "[[]$$*", upstream: a}
    - {name: "1", scope: ip, rate: 999999999/h, burst: 1, event: auth_failure, mode: shadow}
  concurrency: {tasks_per_tenant: null, tasks_global: null, kept_per_context: 1536KiB, kept_global: null}
  overrides:
    - match: {tenant: "null", claims: {"a b": ["1", "~"]}}
      rate: {"null": 1/s}
      concurrency: {kept_global: 1TiB}
      ttl_max: 7d
    - match: {}
"""
TEXTS = {"minimal": None, "other": OTHER, "tokens": TOKENS, "limits": LIMITS}


@pytest.mark.parametrize("text", TEXTS)
def test_the_effective_configuration_loads_to_the_same(loads: Loads, minimal: str, text: str) -> None:
    config = loads(TEXTS[text] or minimal)
    shown = effective(config)
    assert loads(shown) == config
    assert effective(loads(shown)) == shown


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(120))
@given(tool=st.text(min_size=1, max_size=20).filter(str.isprintable))
def test_any_text_survives_the_round_trip(file: Path, tool: str) -> None:
    config = GatewayConfig.model_validate(
        {
            "version": 1,
            "auth": {"mode": "none"},
            "upstreams": {"a": {"path": "/a", "url": "http://a"}},
            "tasks": {"upgrade": [{"tool": tool.replace("[", "[[]"), "mode": "auto"}]},
        }
    )
    file.write_text(effective(config), encoding="utf-8")
    assert load(file, {}) == config


_TEXT = st.text(min_size=1, max_size=20).filter(str.isprintable)
_SCOPES = st.lists(st.text("!#$[]~az09:", min_size=1, max_size=9), unique=True, max_size=3)
_WORDS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=9)
_ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200), deadline=None)
@example(audience=["?://"], claims={}, scopes=[], implies={}, extra={})
@given(
    audience=st.lists(_TEXT, max_size=3),
    claims=st.dictionaries(_TEXT, st.lists(_TEXT, min_size=1, max_size=3), max_size=3),
    scopes=_SCOPES,
    implies=st.dictionaries(_SCOPES.filter(bool).map(lambda each: each[0]), _SCOPES, max_size=3),
    extra=st.dictionaries(_TEXT, _ANYTHING, max_size=3),
)
def test_whatever_tokens_may_hold_survives_the_round_trip(
    file: Path,
    audience: list[str],
    claims: dict[str, list[str]],
    scopes: list[str],
    implies: dict[str, list[str]],
    extra: dict[str, object],
) -> None:
    config = GatewayConfig.model_validate(
        {
            "version": 1,
            "upstreams": {"a": {"path": "/a", "url": "http://a"}},
            "auth": {
                "mode": "required",
                "issuers": {"a": {"issuer": "https://a", "audience": audience}},
                "protected_resource_metadata": {"extra": extra, "scopes_supported": scopes},
            },
            "authorization": {
                "rules": [{"claims": claims, "require_scopes": scopes}],
                "scope_implies": implies,
            },
        }
    )
    file.write_text(effective(config), encoding="utf-8")
    assert load(file, {}) == config


def test_the_effective_configuration_is_in_the_words_of_the_file(loads: Loads, minimal: str) -> None:
    shown = effective(loads(minimal))
    for line in (
        "  listen: 127.0.0.1:8080",
        "  max_body: 4MiB",
        "  idle_timeout: 75s",
        "      call: 1h",
        "  mode: none",
    ):
        assert line in shown.splitlines()


@given(st.integers(0, 365 * 86_400_000))
def test_a_duration_is_written_as_it_is_read(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert read_duration(write_duration(duration)) == duration


def test_a_duration_is_whole_milliseconds() -> None:
    with pytest.raises(ValueError, match="must be whole milliseconds"):
        read_duration(timedelta(microseconds=1))


@given(st.integers(0, 2**40))
def test_a_size_is_written_as_it_is_read(size: int) -> None:
    assert read_size(write_size(size)) == size


@given(count=st.integers(1, 999_999_999), unit=st.sampled_from("smh"))
def test_a_rate_is_written_as_it_is_read(count: int, unit: str) -> None:
    rate = read_rate(f"{count}/{unit}")
    assert (str(rate), read_rate(rate)) == (f"{count}/{unit}", rate)
    assert rate.every * count == pytest.approx({"s": 1, "m": 60, "h": 3600}[unit])


WRONG = [
    "version: 2\nauth: {mode: none}\nupstreams: {a: {path: /a, url: 'http://a'}}",
    "version: 1\nauth: {mode: none}\nupstreams: {}",
    "version: 1\nupstreams: {a: {path: /a, url: 'http://a'}}",
    "version: 1\nauth: {mode: optional}\nupstreams: {a: {path: /a, url: 'http://a'}}",
    "version: 1\nauth: {mode: none}\nupstreams: {A: {path: /a, url: 'http://a'}}",
    "version: 1\nauth: {mode: none}\nupstreams: {a: {path: a, url: 'http://a'}}",
    "version: 1\nauth: {mode: none}\nupstreams: {a: {path: /a, url: 'ftp://a'}}",
    "version: 1\nauth: {mode: none}\nupstreams: {a: {path: /a, url: 'http://a'}}\nserver: {max_body: 4}",
    "version: 1\nauth: {mode: none}\nupstreams: {a: {path: /a, url: 'http://a', health: {interval: 1}}}",
    "version: 1\nauth: {mode: none}\nupstreams: {a: {path: /a, url: 'http://a'}}\nlimits: {rate: [{name: a}]}",
    "version: 1\nauth: {mode: none}\nupstreams: {a: {path: /a, url: 'http://a'}}\ncache: {}",
]


def test_the_schema_is_one_and_takes_what_loads(loads: Loads, minimal: str) -> None:
    Draft202012Validator.check_schema(json_schema())
    judge = Draft202012Validator(json_schema())
    for text in (
        minimal,
        OTHER,
        TOKENS,
        LIMITS,
        effective(loads(OTHER)),
        effective(loads(TOKENS)),
        effective(loads(LIMITS)),
        minimal.replace("http://127.0.0.1:3000/mcp", "${URL}"),
    ):
        assert [error.message for error in judge.iter_errors(YAML(typ="safe").load(text))] == []


@pytest.mark.parametrize("text", WRONG)
def test_the_schema_refuses_what_does_not_load(loads: Loads, text: str) -> None:
    assert list(Draft202012Validator(json_schema()).iter_errors(YAML(typ="safe").load(text)))
    with pytest.raises(ConfigurationError):
        loads(text)
