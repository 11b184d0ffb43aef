"""The keys of TLS: what they take, and what they say together."""

from collections.abc import Callable
from pathlib import Path

import pytest

from taskgate.config import GatewayConfig, effective
from taskgate.config.model import DEFAULTS
from taskgate.config.sections.server import TlsSection, server_conflicts

Loads = Callable[..., GatewayConfig]

FILES = "cert_file: /a/tls.crt, key_file: /a/tls.key"


@pytest.mark.parametrize("listener", ["server", "admin"])
def test_every_key_means_what_it_says(loads: Loads, minimal: str, listener: str) -> None:
    more = "min_version: '1.3', client_auth: require, client_ca_file: /ca.pem"
    config = loads(f"{minimal}{listener}: {{tls: {{{FILES}, {more}}}}}\n")
    tls: TlsSection = getattr(config, listener).tls
    assert (tls.cert_file, tls.key_file) == (Path("/a/tls.crt"), Path("/a/tls.key"))
    assert (tls.min_version, tls.client_auth, tls.client_ca_file) == ("1.3", "require", Path("/ca.pem"))
    assert loads(effective(config)) == config


@pytest.mark.parametrize(
    "written",
    [
        None,
        {"server": []},
        {"server": {"tls": None}},
        {"server": {"tls": "on"}},
        {"server": {"tls": {"client_auth": 1}}},
        {"admin": {"tls": "on"}},
    ],
    ids=str,
)
def test_malformed_parts_contradict_nothing(written: object) -> None:
    assert list(server_conflicts(written, DEFAULTS)) == []
