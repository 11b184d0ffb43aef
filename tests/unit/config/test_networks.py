"""Networks: what a file may write, what it becomes, and what is said of anything else."""

from collections.abc import Callable
from ipaddress import ip_network

import pytest

from taskgate.config import GatewayConfig, effective
from taskgate.config.addresses import read_network

Loads = Callable[..., GatewayConfig]
Tells = Callable[..., list[str]]

NETWORK = "must be a network such as 10.0.0.0/8 or fd00::/8, or one address"
BITS = "must not have bits set behind its prefix: 10.0.0.0/8 is a network, 10.0.0.1 one address"


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


@pytest.mark.parametrize(
    ("written", "words"),
    [
        *(
            (each, NETWORK)
            for each in (
                "10.0.0.0/33",
                "10.0.0.0/",
                "10.0.0.0/-1",
                "10.0.0.0/255.0.0.0",
                "10.0.0.0/8/8",
                "10.0.0",
                "10.0.0.256",
                "010.0.0.1",
                "'fe80::/10%eth0'",
                "'[::1]'",
                "'::/129'",
                "10.0.0.0/8:80",
                "localhost",
                "''",
                "'*'",
                "10",
                "1.5",
                "true",
                "null",
                "[]",
            )
        ),
        *((each, BITS) for each in ("10.0.0.1/8", "0.0.0.1/0", "'fd00::1/8'", "'::ffff:10.0.0.1/104'")),
    ],
)
def test_anything_else_is_refused_where_it_stands(tells: Tells, minimal: str, written: str, words: str) -> None:
    lines = tells(f"{minimal}server:\n  trusted_proxies:\n    - 10.0.0.0/8\n    - {written}\n")
    assert lines == [f"f:8: server.trusted_proxies[1]: {words}"]


def test_what_was_read_already_is_taken_as_it_is() -> None:
    assert read_network(ip_network("10.0.0.0/8")) == ip_network("10.0.0.0/8")
