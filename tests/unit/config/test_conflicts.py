"""What keys say together, and that everything wrong is told at once."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from taskgate.config.model import DEFAULTS, GatewayConfig, conflicts

OVERLAPPING = [
    ("0.0.0.0:1", "127.0.0.1:1"),
    ("0.0.0.0:1", "localhost:1"),
    ("0.0.0.0:1", "[::1]:1"),
    ("0.0.0.0:1", "[::]:1"),
    ("[::]:1", "10.0.0.1:1"),
    ("[0::0]:1", "mcp.example.com:1"),
    ("localhost:1", "127.0.0.1:1"),
    ("localhost:1", "[::1]:1"),
]
APART = [
    ("localhost:0", "127.0.0.1:0"),
    ("0.0.0.0:0", "0.0.0.0:0"),
    ("0.0.0.0:1", "0.0.0.0:2"),
    ("localhost:1", "127.0.0.1:2"),
    ("127.0.0.1:1", "[::1]:1"),
    ("127.0.0.1:1", "127.0.0.2:1"),
    ("localhost:1", "127.0.0.2:1"),
    ("localhost:1", "mcp.example.com:1"),
]


@pytest.mark.parametrize(("one", "other"), [*OVERLAPPING, *((two, one) for one, two in OVERLAPPING)])
def test_listeners_overlap_however_their_address_is_spelt(one: str, other: str) -> None:
    told = "must not take the address and port of admin.listen"
    written = {"server": {"listen": one}, "admin": {"listen": other}}
    assert conflicts(written, defaults=DEFAULTS) == [(("server", "listen"), told)]


@pytest.mark.parametrize(("one", "other"), [*APART, *((two, one) for one, two in APART)])
def test_listeners_on_other_addresses_or_ports_do_not_overlap(one: str, other: str) -> None:
    assert conflicts({"server": {"listen": one}, "admin": {"listen": other}}, defaults=DEFAULTS) == []


@pytest.mark.parametrize(
    "written",
    [
        None,
        [],
        {"upstreams": None},
        {"upstreams": [1]},
        {"upstreams": {"a": None, "b": {"path": 1, "url": 2}}},
        {"server": {"listen": 1}},
        {"admin": {"listen": "here"}},
        {"tasks": {"upgrade": "all", "ttl": []}},
        {
            "upstreams": {"a": {"url": "b"}},
            "tasks": {"upgrade": [None, {"upstream": 1}], "ttl": {"min": "soon", "max": None}},
        },
    ],
    ids=str,
)
def test_malformed_parts_contradict_nothing(written: object) -> None:
    assert conflicts(written, defaults=DEFAULTS) == []


def test_a_model_that_contradicts_itself_cannot_be_made() -> None:
    upstream: Mapping[str, Any] = {"path": "/a", "url": "http://a"}
    with pytest.raises(ValidationError, match=r"must not be the path of upstreams\.a"):
        GatewayConfig.model_validate(
            {"version": 1, "auth": {"mode": "none"}, "upstreams": {"a": upstream, "b": upstream}}
        )
