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


@pytest.mark.parametrize("server", [PROGRAM, f"{URL}, transport: sse", URL], ids=["stdio", "sse", "http"])
def test_what_check_prints_means_the_same(loads: Loads, server: str) -> None:
    config = loads(written(server))
    assert loads(effective(config)) == config


# --- what does not go together -------------------------------------------------------------------------------------


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
