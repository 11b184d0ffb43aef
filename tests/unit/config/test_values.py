"""Every key with values that it takes, and what they become."""

from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest

from taskgate.config import BindAddress, GatewayConfig, effective
from taskgate.config.addresses import read_network
from taskgate.config.sections.server import AdminSection
from taskgate.config.sections.store import SqliteSection
from taskgate.domain.versions import Client

# --- all keys ---------------------------------------------------------------------------------------------------------

Loads = Callable[..., GatewayConfig]


@pytest.mark.parametrize(
    ("written", "is_loopback"),
    [
        (BindAddress(host="127.0.0.1", port=1), True),
        (BindAddress(host="128.0.0.1", port=1), False),
        (BindAddress(host="::1", port=1), True),
        (BindAddress(host="::", port=1), False),
        (BindAddress(host="localhost", port=1), True),
        (BindAddress(host="localhost.example.com", port=1), False),
    ],
    ids=str,
)
def test_only_addresses_of_this_machine_are_loopback(written: BindAddress, is_loopback: bool) -> None:
    assert written.is_loopback is is_loopback


def test_values_that_code_makes_pass_as_they_are() -> None:
    listen, path, timeout = BindAddress(host="::1", port=0), Path("a.db"), timedelta(seconds=7)
    assert AdminSection(listen=listen).listen is listen
    section = SqliteSection(path=path, busy_timeout=timeout)
    assert (section.path, section.busy_timeout) == (path, timeout)


# --- networks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("192.0.2.7", "192.0.2.7/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("FD00:0::/8", "fd00::/8"),
        ("::1", "::1/128"),
        ("::/0", "::/0"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:192.0.2.7", "192.0.2.7/32"),
    ],
)
def test_a_network_is_read_and_told_in_one_form(loads: Loads, minimal: str, written: str, canonical: str) -> None:
    config = loads(f"{minimal}server: {{trusted_proxies: ['{written}', 172.16.0.0/12]}}\n")
    assert config.server.trusted_proxies == (ip_network(canonical), ip_network("172.16.0.0/12"))
    assert config.model_dump(mode="json")["server"]["trusted_proxies"] == [canonical, "172.16.0.0/12"]
    assert loads(effective(config)) == config


def test_what_was_read_already_is_taken_as_it_is() -> None:
    assert read_network(ip_network("10.0.0.0/8")) == ip_network("10.0.0.0/8")


def test_own_limits_of_events_come_before_the_built_in_ones(loads: Loads, minimal: str) -> None:
    table = "{python-httpx2/*: 4MiB, acme/*: 2MiB}"
    limits = loads(f"{minimal}server: {{event_limits: {table}}}\n").server.to_event_limits()
    assert limits.most(Client("acme", "1"), None) == 2**21
    assert limits.most(Client("mcp", "0.1.0"), "python-httpx2/2.16.2") == 2**22
    assert [limits.most(Client("fastmcp", version), None) for version in ("4.2.3", "3.4")] == [2**20, None]
