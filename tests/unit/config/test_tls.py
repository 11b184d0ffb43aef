"""The keys of TLS: what they take, and what they say together."""

from collections.abc import Callable
from pathlib import Path

import pytest

from taskgate.config import GatewayConfig, effective
from taskgate.config.model import DEFAULTS
from taskgate.config.sections.server import server_conflicts

Loads = Callable[..., GatewayConfig]
Tells = Callable[..., list[str]]

FILES = "cert_file: /a/tls.crt, key_file: /a/tls.key"


def test_without_files_the_listener_speaks_plain_http(loads: Loads, minimal: str) -> None:
    assert loads(minimal + "server: {tls: {}}\n").server.tls == loads(minimal).server.tls
    assert loads(minimal).server.tls.cert_file is None


def test_every_key_means_what_it_says(loads: Loads, minimal: str) -> None:
    more = "min_version: '1.3', client_auth: require, client_ca_file: /ca.pem"
    config = loads(f"{minimal}server: {{tls: {{{FILES}, {more}}}}}\n")
    tls = config.server.tls
    assert (tls.cert_file, tls.key_file) == (Path("/a/tls.crt"), Path("/a/tls.key"))
    assert (tls.min_version, tls.client_auth, tls.client_ca_file) == ("1.3", "require", Path("/ca.pem"))
    assert loads(effective(config)) == config


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("min_version", "1.2", "must be '1.2' or '1.3'"),
        ("min_version", "'1.1'", "must be '1.2' or '1.3'"),
        ("min_version", "null", "must be '1.2' or '1.3'"),
        ("client_auth", "required", "must be 'none', 'optional' or 'require'"),
        ("client_auth", "true", "must be 'none', 'optional' or 'require'"),
        *((key, value, "must be the path of a file") for key in ("cert_file", "key_file") for value in ("''", "1")),
        ("client_ca_file", "[]", "must be the path of a file"),
        ("certfile", "/a", "unknown key (did you mean cert_file?)"),
    ],
)
def test_a_bad_value_is_told_and_nothing_else_is(tells: Tells, minimal: str, key: str, value: str, words: str) -> None:
    assert tells(f"{minimal}server:\n  tls:\n    {key}: {value}\n") == [f"f:7: server.tls.{key}: {words}"]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("cert_file: /a", "cert_file: must not be given without server.tls.key_file"),
        ("key_file: /a", "key_file: must not be given without server.tls.cert_file"),
        ("cert_file: /a, key_file: null", "cert_file: must not be given without server.tls.key_file"),
        (
            f"{FILES}, client_auth: optional",
            "client_auth: must not be given without server.tls.client_ca_file, unless it is none",
        ),
        (
            f"{FILES}, client_auth: require",
            "client_auth: must not be given without server.tls.client_ca_file, unless it is none",
        ),
        (
            "client_auth: require, client_ca_file: /a",
            "client_auth: must not be given without server.tls.cert_file, unless it is none",
        ),
        (
            f"{FILES}, client_ca_file: /a",
            "client_ca_file: must not be given with server.tls.client_auth none, which asks for no certificate",
        ),
    ],
)
def test_keys_that_need_each_other_are_given_together(tells: Tells, minimal: str, written: str, told: str) -> None:
    assert tells(f"{minimal}server:\n  tls: {{{written}}}\n") == [f"f:6: server.tls.{told}"]


@pytest.mark.parametrize(
    "written",
    [
        None,
        {"server": []},
        {"server": {"tls": None}},
        {"server": {"tls": "on"}},
        {"server": {"tls": {"client_auth": 1}}},
    ],
    ids=str,
)
def test_malformed_parts_contradict_nothing(written: object) -> None:
    assert list(server_conflicts(written, DEFAULTS)) == []
