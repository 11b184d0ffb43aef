"""Which names a listener answers to, and which pages may call it, by what the operator wrote."""

import pytest

from taskgate.listener.door import allowed_hosts, allowed_origins

LOOPBACK = {"localhost:8080", "127.0.0.1:8080", "[::1]:8080"}

HOSTS: dict[str, tuple[str | None, str, int, list[str], set[str]]] = {
    "loopback": (None, "127.0.0.1", 8080, [], LOOPBACK),
    "another address of the loopback": (None, "127.0.0.2", 8080, [], LOOPBACK | {"127.0.0.2:8080"}),
    "loopback of IPv6": (None, "::1", 8080, [], LOOPBACK),
    "loopback by name": (None, "LocalHost", 8080, [], LOOPBACK),
    "an address": (None, "192.0.2.1", 8080, [], {"192.0.2.1:8080"}),
    "an address of IPv6": (None, "2001:DB8::1", 8080, [], {"[2001:db8::1]:8080"}),
    "a name that is not the loopback's": (None, "gate.example", 8080, [], {"gate.example:8080"}),
    "the usual port": (None, "192.0.2.1", 80, [], {"192.0.2.1:80", "192.0.2.1"}),
    "the usual port on loopback": (
        None,
        "127.0.0.1",
        80,
        [],
        {"localhost:80", "127.0.0.1:80", "[::1]:80", "localhost", "127.0.0.1", "[::1]"},
    ),
    "a public URL": (
        "https://Gate.example",
        "192.0.2.1",
        8080,
        [],
        {"gate.example", "gate.example:8080", "gate.example:80", "gate.example:443"},
    ),
    "a public URL with a port": ("https://gate.example:8443/x", "192.0.2.1", 8080, [], {"gate.example:8443"}),
    "a public URL with the usual port": (
        "https://gate.example:443",
        "192.0.2.1",
        8080,
        [],
        {"gate.example:443", "gate.example"},
    ),
    "a public URL on loopback": ("https://gate.example:1", "127.0.0.1", 8080, [], LOOPBACK | {"gate.example:1"}),
    "a list is all there is": ("https://gate.example", "127.0.0.1", 8080, ["Other.example:99"], {"other.example:99"}),
    "a list without ports": (
        None,
        "127.0.0.1",
        8080,
        ["other.example"],
        {"other.example", "other.example:8080", "other.example:80", "other.example:443"},
    ),
    "a list with IPv6": (None, "127.0.0.1", 1, ["[::1]"], {"[::1]", "[::1]:1", "[::1]:80", "[::1]:443"}),
    "a list with IPv6 and a port": (None, "127.0.0.1", 1, ["[::1]:443"], {"[::1]", "[::1]:443"}),
}


@pytest.mark.parametrize(("url", "listen", "port", "configured", "expected"), HOSTS.values(), ids=HOSTS)
def test_a_listener_answers_to_these_names(
    url: str | None, listen: str, port: int, configured: list[str], expected: set[str]
) -> None:
    assert allowed_hosts(url, listen, port, configured) == expected


ORIGINS: dict[str, tuple[set[str], list[str], set[str]]] = {
    "pages of the listener itself": (
        {"localhost:1", "gate.example"},
        [],
        {"http://localhost:1", "https://localhost:1", "http://gate.example", "https://gate.example"},
    ),
    "a list is all there is": ({"localhost:1"}, ["https://APP.example"], {"https://app.example"}),
    "pages without an origin never": ({"localhost:1"}, ["null", "https://app.example"], {"https://app.example"}),
    "nor in capitals": ({"localhost:1"}, ["NULL"], set()),
    "nobody": (set(), [], set()),
}


@pytest.mark.parametrize(("hosts", "configured", "expected"), ORIGINS.values(), ids=ORIGINS)
def test_these_pages_may_call(hosts: set[str], configured: list[str], expected: set[str]) -> None:
    assert allowed_origins(hosts, configured) == expected
