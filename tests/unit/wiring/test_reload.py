"""What of another configuration waits for a restart, and when two configurations are the same."""

from collections.abc import Callable

import pytest

from taskgate.config import ConfigurationError, GatewayConfig, effective
from taskgate.wiring.reload import MAX_NAMED, Changes, changed_keys, fingerprint, restart_needed, without_restart

Loads = Callable[..., GatewayConfig]

OTHER = """\
server: {max_body: 1MiB, max_streams_per_context: 3, drain: {delay: 1s}, tls: {min_version: "1.3"}}
admin: {listen: 127.0.0.1:1}
store: {backend: memory, sqlite: {busy_timeout: 1s}}
tasks: {inline_grace: 1s}
limits: {reject_as: http}
logging: {level: debug}
"""


def test_the_keys_that_wait_for_a_restart_are_named_in_the_order_of_the_file(loads: Loads, minimal: str) -> None:
    assert restart_needed(loads(minimal), loads(minimal + OTHER)) == (
        "server.tls.min_version",
        "server.max_body",
        "server.drain.delay",
        "admin.listen",
        "store.backend",
        "store.sqlite.busy_timeout",
    )


@pytest.mark.parametrize(
    ("key", "section"),
    [
        ("egress.proxy", "egress: {proxy: 'http://user:%s@proxy:3128'}"),
        ("store.redis.password", "store: {backend: memory, redis: {password: %s}}"),
    ],
)
def test_another_secret_waits_as_other_keys_of_its_section(loads: Loads, minimal: str, key: str, section: str) -> None:
    old, new = (loads(f"{minimal}{section % secret}\n") for secret in ("one", "two"))
    assert restart_needed(old, new) == (key,)
    assert without_restart(old, new) == old


def test_nothing_waits_where_nothing_changed_or_all_takes_effect(loads: Loads, minimal: str) -> None:
    old = loads(minimal)
    assert restart_needed(old, loads(minimal)) == ()
    assert restart_needed(old, loads(minimal + "server: {max_streams_per_context: 3}\nlimits: {rate: []}\n")) == ()


def test_tokens_of_operators_do_not_wait_where_other_keys_of_their_section_do(loads: Loads, minimal: str) -> None:
    old = loads(minimal + "admin: {tokens: [{file: /a, role: operator, name: a}]}\n")
    new = loads(minimal + "admin: {listen: 127.0.0.1:1, token_file: /b}\n")
    assert restart_needed(old, new) == ("admin.listen",)
    assert without_restart(old, new).admin == new.admin.model_copy(update={"listen": old.admin.listen})


def test_what_waits_stays_as_it_was_and_the_rest_is_new(loads: Loads, minimal: str) -> None:
    old, new = loads(minimal), loads(minimal + OTHER)
    mixed = without_restart(old, new)
    assert (mixed.admin, mixed.store) == (old.admin, old.store)
    assert mixed.server == old.server.model_copy(update={"max_streams_per_context": 3})
    assert (mixed.tasks, mixed.limits, mixed.logging) == (new.tasks, new.limits, new.logging)


def test_what_waits_is_shown_as_the_file_before_had_it(loads: Loads, minimal: str) -> None:
    before = "store: {sqlite: {path: '${PLACE}'}}\nadmin: {token_file: /a}\nlogging: {level: '${LEVEL}'}\n"
    after = "store: {sqlite: {path: /other}}\nadmin: {token_file: '${TOKEN}'}\nlogging: {level: info}\n"
    values = {"PLACE": "/s3cret-place", "LEVEL": "error", "TOKEN": "/s3cret-token"}
    shown = effective(without_restart(loads(minimal + before, values), loads(minimal + after, values)))
    assert "s3cret" not in shown
    assert "    path: '********'\n" in shown
    assert "  token_file: '********'\n" in shown
    assert "  level: info\n" in shown


def test_another_mode_waits_with_all_that_depends_on_it(loads: Loads, minimal: str, with_tokens: str) -> None:
    old, new = loads(minimal), loads(with_tokens + "tasks: {inline_grace: 1s, ttl: {max: 2d}}\n")
    assert restart_needed(old, new) == ("auth.mode", "tasks.ttl.max")
    mixed = without_restart(old, new)
    assert (mixed.auth, mixed.tasks.ttl) == (old.auth, old.tasks.ttl)
    assert mixed.tasks.inline_grace == new.tasks.inline_grace


@pytest.mark.parametrize("egress", ["none", "http://other:2"])
def test_the_proxies_of_the_environment_stay_while_another_choice_waits(
    loads: Loads, minimal: str, egress: str
) -> None:
    environ = {"HTTP_PROXY": "http://proxy:1"}
    old, new = loads(minimal, environ), loads(minimal + f"egress: {{proxy: '{egress}'}}\n", environ)
    assert restart_needed(old, new) == ("egress.proxy",)
    assert without_restart(old, new).to_egress() == old.to_egress()
    assert without_restart(new, old).to_egress() == new.to_egress()
    assert (without_restart(old, new), without_restart(new, old)) == (old, new)


def test_issuers_do_not_wait(loads: Loads, with_tokens: str) -> None:
    old, new = loads(with_tokens), loads(with_tokens.replace("idp.", "id."))
    assert restart_needed(old, new) == ()
    assert without_restart(old, new) == new


def test_names_that_come_and_go_do_not_wait(loads: Loads, with_tokens: str) -> None:
    issuers = with_tokens.replace("{corp:", "{other: {issuer: 'https://other.example.com'}, corp:")
    extra = with_tokens.replace("{mode:", "{protected_resource_metadata: {extra: {x: 1}}, mode:")
    assert len(loads(issuers).auth.issuers) == 2
    assert loads(extra).auth.protected_resource_metadata.extra
    for more in (issuers, extra):
        old, new = loads(more), loads(with_tokens)
        assert restart_needed(old, new) == restart_needed(new, old) == ()
        assert without_restart(old, new) == new


def test_what_is_kept_and_what_is_new_may_not_contradict_each_other(
    loads: Loads, minimal: str, with_tokens: str
) -> None:
    new = loads(with_tokens + "authorization:\n  rules: [{require_scopes: [a]}]\n")
    with pytest.raises(ConfigurationError) as refused:
        without_restart(loads(minimal), new)
    assert str(refused.value) == (
        "authorization.rules[0].require_scopes: must be empty with auth.mode none, where callers have no scopes "
        "(without a restart)"
    )


def test_the_same_configuration_has_the_same_fingerprint_however_it_is_written(loads: Loads, minimal: str) -> None:
    one = loads(minimal + "tasks: {inline_grace: 60s}\nlogging: {level: info}\n")
    other = loads("logging: {}\ntasks: {inline_grace: 1m, max_result: 16MiB}\n" + minimal)
    assert fingerprint(one) == fingerprint(other)
    assert 0 <= fingerprint(one) < 2**48


@pytest.mark.parametrize(
    "change",
    [
        "tasks: {inline_grace: 1m}\n",
        "limits: {rate: []}\n",
        "admin: {token_file: /run/token}\n",
        "  b: {path: /b, url: 'http://b'}\n",
    ],
)
def test_another_configuration_has_another_fingerprint(loads: Loads, minimal: str, change: str) -> None:
    assert fingerprint(loads(minimal)) != fingerprint(loads(minimal + change))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("admin: {listen: 127.0.0.1:1}\n", ""),
        ("server: {listen: 127.0.0.1:1}\n", "server: {listen: 127.0.0.1:2}\n"),
        ("store: {sqlite: {path: /a/tasks.db}}\n", "store: {sqlite: {path: /b/tasks.db}}\n"),
        ("audit: {hmac_key_file: /a/key}\n", "audit: {hmac_key_file: /b/key}\n"),
    ],
)
def test_replicas_that_differ_in_addresses_and_paths_have_the_same_fingerprint(
    loads: Loads, minimal: str, one: str, other: str
) -> None:
    assert fingerprint(loads(one + minimal)) == fingerprint(loads(other + minimal))


def test_who_tries_out_secrets_has_to_work_for_each(usual_effort: int) -> None:
    assert usual_effort >= 2**14


def test_another_secret_makes_another_fingerprint(loads: Loads, minimal: str) -> None:
    text = minimal.replace("mcp'}", "mcp', credentials: {mode: header, header: X-Key, value: '${S}'}}")
    assert fingerprint(loads(text, {"S": "one"})) != fingerprint(loads(text, {"S": "two"}))


def test_the_keys_that_changed_are_named_in_the_order_of_the_file(loads: Loads, minimal: str) -> None:
    old, new = loads(minimal), loads(minimal + "  b: {path: /b, url: 'http://b'}\n" + OTHER)
    found = changed_keys(old, new)
    assert found[:2] == ("server.tls.min_version", "server.max_body")
    assert "admin.listen" in found
    assert {"upstreams.b", "tasks.inline_grace", "limits.reject_as", "logging.level"} <= set(found)
    assert changed_keys(old, loads(minimal)) == ()


def test_another_secret_is_named_by_its_key_alone(loads: Loads) -> None:
    header = "version: 1\nauth: {mode: none}\nupstreams:\n  a: {path: /a, url: 'http://a', credentials: "
    old, new = (loads(header + f"{{mode: header, header: X-Key, value: {value}}}}}\n") for value in ("one", "two"))
    assert changed_keys(old, new) == ("upstreams.a.credentials.value",)


def test_a_log_line_names_some_of_many_keys_and_counts_the_rest() -> None:
    keys = tuple(f"upstreams.u{number}" for number in range(MAX_NAMED + 3))
    assert Changes(keys, ("auth keys",)).fields() == {
        "changed": list(keys[:MAX_NAMED]),
        "left_out": 3,
        "files": ["auth keys"],
    }
    assert Changes((), ("admin tokens",)).fields() == {"files": ["admin tokens"]}
