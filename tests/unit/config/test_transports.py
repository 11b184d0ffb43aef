"""Transports of a server: keys that belong to them, revisions, and what a program is run with."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from requirements import covers
from taskgate.config import GatewayConfig, effective
from taskgate.config.fields import MASK
from taskgate.config.model import DEFAULTS, conflicts, upstream_settings
from taskgate.config.sections.upstreams import PROGRAM_DEFAULTS, UpstreamSection
from taskgate.domain.versions import Revision
from taskgate.upstream.settings import Breaker, Retries, StdioSettings, TransportKind

# --- transports -------------------------------------------------------------------------------------------------------

ProgressPeek = Callable[..., list[str]]
Loads = Callable[..., GatewayConfig]

SECOND = timedelta(seconds=1)
PROGRAM = "path: /a, transport: stdio, command: [python3, -m, some_server]"
URL = "path: /a, url: 'http://127.0.0.1:1/mcp'"


def written(*servers: str) -> str:
    """A file whose servers, a, b and so on, have those keys, each on a line of its own from the fourth on."""
    lines = [f"  {name}: {{{keys}}}\n" for name, keys in zip("ab", servers, strict=False)]
    return "version: 1\nauth: {mode: none}\nupstreams:\n" + "".join(lines)


def stdio(config: GatewayConfig) -> StdioSettings:
    """What the program `a` is run with."""
    settings = upstream_settings(config, "a").stdio
    assert settings is not None
    return settings


# --- what they become ----------------------------------------------------------------------------------------------


def test_a_program_needs_a_path_and_a_command_and_no_more(loads: Loads) -> None:
    settings = upstream_settings(loads(written(PROGRAM)), "a")
    assert (settings.transport, settings.url) == (TransportKind.STDIO, None)
    assert settings.stdio == StdioSettings(
        command=("python3", "-m", "some_server"),
        env={},
        cwd=None,
        processes=8,
        idle=60 * SECOND,
        backoff=SECOND,
        max_backoff=60 * SECOND,
        shared=False,
    )


def test_a_program_is_run_with_what_is_written(loads: Loads) -> None:
    keys = (
        "env: {TOKEN: '${T}', EMPTY: '', 'npm_//x/:_a': 'ä b'}, cwd: /srv, processes: 3, sessions: shared, "
        "restart: {backoff: 2s, max_backoff: 3s}, pool: {idle_timeout: 4s}"
    )
    found = stdio(loads(written(f"{PROGRAM}, {keys}"), {"T": "s3cret"}))
    assert found == StdioSettings(
        command=("python3", "-m", "some_server"),
        env={"TOKEN": "s3cret", "EMPTY": "", "npm_//x/:_a": "ä b"},
        cwd=Path("/srv"),
        processes=3,
        idle=4 * SECOND,
        backoff=2 * SECOND,
        max_backoff=3 * SECOND,
        shared=True,
    )


def test_a_program_is_neither_asked_how_it_is_nor_left_alone_nor_tried_twice(loads: Loads) -> None:
    settings = upstream_settings(loads(written(PROGRAM)), "a")
    assert (settings.health, settings.breaker, settings.retries) == (None, None, None)


def test_a_program_that_fails_is_left_alone_where_that_is_wanted(loads: Loads) -> None:
    assert upstream_settings(loads(written(f"{PROGRAM}, circuit_breaker: {{}}")), "a").breaker == Breaker()


def test_a_server_over_sse_has_all_that_one_over_http_has(loads: Loads) -> None:
    settings = upstream_settings(loads(written(f"{URL}, transport: sse")), "a")
    assert (settings.transport, settings.url, settings.stdio) == (TransportKind.SSE, "http://127.0.0.1:1/mcp", None)
    assert settings.retries == Retries()
    assert settings.health is not None


def test_a_server_is_spoken_to_over_http_unless_it_is_said_how(loads: Loads) -> None:
    settings = upstream_settings(loads(written(URL)), "a")
    assert (settings.transport, settings.stdio) == (TransportKind.HTTP, None)


# --- what is no secret, and what is --------------------------------------------------------------------------------


@covers("A-AUTH-15")
def test_what_is_in_an_environment_is_not_shown(loads: Loads) -> None:
    config = loads(written(f"{PROGRAM}, env: {{NAME: s3cret, OTHER: '${{S}}'}}"), {"S": "s3cret"})
    shown = effective(config)
    assert f"      NAME: '{MASK}'\n      OTHER: '{MASK}'\n" in shown
    settings = upstream_settings(config, "a")
    for text in (shown, config.model_dump_json(), repr(config), str(config), repr(settings)):
        assert "s3cret" not in text


def test_what_stands_for_a_value_that_is_not_shown_is_not_taken_for_one(tells: ProgressPeek) -> None:
    assert tells(written(f"{PROGRAM}, env: {{A: '{MASK}'}}")) == [
        f"f:4: upstreams.a.env.A: must not have {MASK}, which stands for what is not shown"
    ]


@pytest.mark.parametrize("server", [PROGRAM, f"{URL}, transport: sse", URL], ids=["stdio", "sse", "http"])
def test_what_check_prints_means_the_same(loads: Loads, server: str) -> None:
    config = loads(written(server))
    assert loads(effective(config)) == config


# --- what does not go together -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("url: 'http://a'", "url: must not be set with transport stdio, which has a command"),
        (
            "credentials: {mode: header, header: X-Key, value: v}",
            "credentials.mode: must not be set with transport stdio, where credentials go into env",
        ),
        (
            "identity_headers: {context: X-Who}",
            "identity_headers.context: must not be set with transport stdio, which has no headers",
        ),
        ("tls: {ca_file: /a}", "tls.ca_file: must not be set with transport stdio, which has no connection"),
        (
            "tls: {insecure_skip_verify: true}",
            "tls.insecure_skip_verify: must not be set with transport stdio, which has no connection",
        ),
        (
            "retries: {attempts: 3}",
            "retries.attempts: must not be set with transport stdio, where nothing is tried again",
        ),
        ("retries: {when: []}", "retries.when: must not be set with transport stdio, where nothing is tried again"),
        ("health: {}", "health: must not be set with transport stdio, where it would take a process for that alone"),
    ],
)
def test_a_program_has_no_keys_of_connections(tells: ProgressPeek, keys: str, told: str) -> None:
    assert tells(written(f"{PROGRAM}, {keys}")) == [f"f:4: upstreams.a.{told}"]


@pytest.mark.parametrize("kind", ["http", "sse"])
@pytest.mark.parametrize(
    "keys",
    [
        "env: {A: b}",
        "cwd: /srv",
        "processes: 2",
        "restart: {backoff: 2s}",
        "restart: {max_backoff: 2s}",
        "pool: {idle_timeout: 1s}",
        "sessions: shared",
    ],
)
def test_a_server_with_a_url_has_no_keys_of_programs(tells: ProgressPeek, kind: str, keys: str) -> None:
    key = keys.replace(": {", ".", 1).partition(":")[0] if keys[:3] != "env" else "env"
    words = f"must not be set with transport {kind}, which starts no program"
    assert tells(written(f"{URL}, transport: {kind}, {keys}")) == [f"f:4: upstreams.a.{key}: {words}"]


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ("path: /a", "url: is required with transport http"),
        ("path: /a, transport: sse", "url: is required with transport sse"),
        ("path: /a, transport: stdio", "command: is required with transport stdio"),
        (
            "path: /a, command: [a], env: {A: b}, processes: 2",
            "command: must be null with transport http: write transport: stdio for a program",
        ),
        (
            f"{URL}, transport: sse, protocol_version: 2026-07-28",
            "protocol_version: must not be 2026-07-28 with transport sse, which that revision does not have",
        ),
    ],
)
def test_each_transport_has_what_it_needs(tells: ProgressPeek, server: str, told: str) -> None:
    assert tells(written(server)) == [f"f:4: upstreams.a.{told}"]


@pytest.mark.parametrize(
    ("restart", "told"),
    [
        ("backoff: 61s", "backoff: must be at most upstreams.a.restart.max_backoff, which is 1m unless given"),
        ("max_backoff: 1ms", "max_backoff: must be at least upstreams.a.restart.backoff, which is 1s unless given"),
        ("backoff: 2s, max_backoff: 1s", "backoff: must be at most upstreams.a.restart.max_backoff"),
    ],
)
def test_a_start_is_held_back_no_longer_than_the_longest(tells: ProgressPeek, restart: str, told: str) -> None:
    assert tells(written(f"{PROGRAM}, restart: {{{restart}}}")) == [f"f:4: upstreams.a.restart.{told}"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("[a, 1]", "[1]: must be text, in quotes where it looks like a number, true or null"),
        ("[a, null]", "[1]: must be text, in quotes where it looks like a number, true or null"),
        ("[a, [b]]", "[1]: must be text, in quotes where it looks like a number, true or null"),
        (r'[a, "b\0"]', "[1]: must not hold the character U+0000"),
        (f"[{'a' * 65537}]", "[0]: must be at most 65536 characters"),
        ("a b", ": must be a list of the program and its arguments, such as [python3, -m, some_server]"),
        ("[]", ": must begin with the name of a program"),
    ],
)
def test_a_command_is_a_list_of_texts(tells: ProgressPeek, command: str, told: str) -> None:
    assert tells(written(f"path: /a, transport: stdio, command: {command}")) == [f"f:4: upstreams.a.command{told}"]


@pytest.mark.parametrize("name", ["''", "'A B'", "A=B", "'ä'"])
def test_a_variable_has_a_name_that_systems_take(tells: ProgressPeek, name: str) -> None:
    (line,) = tells(written(f"{PROGRAM}, env: {{{name}: b}}"))
    assert line.startswith("f:4: upstreams.a.env")
    assert line.endswith("must be named by 1 to 256 characters of ASCII without spaces and =")


@pytest.mark.parametrize(("value", "words"), [("1", "text"), ("true", "text"), (r'"a\0"', "U+0000"), ("null", "text")])
def test_a_variable_is_text(tells: ProgressPeek, value: str, words: str) -> None:
    (line,) = tells(written(f"{PROGRAM}, env: {{A: {value}}}"))
    assert line.startswith("f:4: upstreams.a.env.A: must")
    assert words in line


def test_everything_that_is_wrong_with_servers_is_told_at_once(tells: ProgressPeek) -> None:
    told = tells(written(f"{PROGRAM}, url: 'http://a', health: {{}}", "path: /b, transport: sse, processes: 2"))
    assert [line.split(": ")[:2] for line in told] == [
        ["f:4", "upstreams.a.health"],
        ["f:4", "upstreams.a.url"],
        ["f:5", "upstreams.b.processes"],
        ["f:5", "upstreams.b.url"],
    ]


@pytest.mark.parametrize(
    "upstream",
    [
        None,
        {"transport": "pigeon"},
        {"transport": ["stdio"]},
        {"transport": "stdio", "command": "a", "tls": 1, "retries": [], "restart": "soon"},
    ],
    ids=str,
)
def test_malformed_parts_contradict_nothing(upstream: object) -> None:
    assert conflicts({"upstreams": {"a": upstream}}, defaults=DEFAULTS) == []


def test_what_is_not_set_is_as_in_the_models() -> None:
    section: Mapping[str, object] = UpstreamSection(path="/a").model_dump(mode="json")
    for (key, *below), usual in PROGRAM_DEFAULTS.items():
        found = section[key]
        assert (found[below[0]] if below and isinstance(found, Mapping) else found) == usual


# --- revisions --------------------------------------------------------------------------------------------------------

WithKey = Callable[[str, str], str]
REVISION = "upstreams.reports.protocol_version"


def test_what_a_server_speaks_is_found_out_unless_it_is_given(loads: Callable[[str], GatewayConfig], minimal) -> None:
    assert upstream_settings(loads(minimal), "reports").revision is None


@pytest.mark.parametrize("revision", list(Revision))
def test_any_published_revision_can_be_given(
    loads: Callable[[str], GatewayConfig], with_key: WithKey, revision: Revision
) -> None:
    assert upstream_settings(loads(with_key(REVISION, revision.value)), "reports").revision is revision


@pytest.mark.parametrize("value", ["2025-12-01", "newest", "'2025'", "null", "20251125", "[auto]"])
def test_nothing_else_can_be_given(tells: Callable[[str], list[str]], with_key: WithKey, value: str) -> None:
    (line,) = tells(with_key(REVISION, value))
    assert "upstreams.reports.protocol_version: must be" in line
