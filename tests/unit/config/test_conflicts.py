"""What keys say together, and that everything wrong is told at once."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from taskgate.config.model import DEFAULTS, GatewayConfig, conflicts

Tells = Callable[..., list[str]]

SAME_LISTENER = [
    ("admin:\n  listen: 127.0.0.1:8080\n",
     "6: admin.listen: must not be server.listen, which is 127.0.0.1:8080 unless given"),
    ("server:\n  listen: 127.0.0.1:9464\n",
     "6: server.listen: must not be admin.listen, which is 127.0.0.1:9464 unless given"),
    ("admin:\n  listen: '[::1]:1'\nserver:\n  listen: '[0::1]:1'\n", "8: server.listen: must not be admin.listen"),
    ("admin:\n  listen: localhost:8080\n",
     "6: admin.listen: must not take the address and port of server.listen, which is 127.0.0.1:8080 unless given"),
    ("server:\n  listen: localhost:9464\n",
     "6: server.listen: must not take the address and port of admin.listen, which is 127.0.0.1:9464 unless given"),
    ("server:\n  listen: '[::1]:1'\nadmin:\n  listen: LOCALHOST:1\n",
     "6: server.listen: must not take the address and port of admin.listen"),
]  # fmt: skip
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
TOKENS = [
    ("[{file: /a, role: viewer, name: token_file}]",
     "admin.tokens[0].name: must not be token_file, which is that of admin.token_file"),
    ("[{file: /a, role: viewer, name: x}, {file: /b, role: operator, name: x}]",
     "admin.tokens[1].name: must not be that of admin.tokens[0]"),
]  # fmt: skip
TTL = [
    ("min: 50m\n    max: 40m\n    default: 45m", "7: tasks.ttl.min: must be at most tasks.ttl.max"),
    ("min: 50m\n    default: 40m", "7: tasks.ttl.min: must be at most tasks.ttl.default"),
    ("max: 40m\n    default: 50m", "8: tasks.ttl.default: must be at most tasks.ttl.max"),
    ("max: 40m", "7: tasks.ttl.max: must be at least tasks.ttl.default, which is 1h unless given"),
]


@pytest.mark.parametrize(("more", "told"), SAME_LISTENER)
def test_the_listeners_may_not_share_an_address(tells: Tells, minimal: str, more: str, told: str) -> None:
    assert tells(minimal + more) == [f"f:{told}"]


@pytest.mark.parametrize(("one", "other"), [*OVERLAPPING, *((two, one) for one, two in OVERLAPPING)])
def test_listeners_overlap_however_their_address_is_spelt(one: str, other: str) -> None:
    told = "must not take the address and port of admin.listen"
    written = {"server": {"listen": one}, "admin": {"listen": other}}
    assert conflicts(written, defaults=DEFAULTS) == [(("server", "listen"), told)]


@pytest.mark.parametrize(("one", "other"), [*APART, *((two, one) for one, two in APART)])
def test_listeners_on_other_addresses_or_ports_do_not_overlap(one: str, other: str) -> None:
    assert conflicts({"server": {"listen": one}, "admin": {"listen": other}}, defaults=DEFAULTS) == []


def test_both_listeners_may_take_a_free_port(loads: Callable[..., GatewayConfig], minimal: str) -> None:
    config = loads(minimal + "server: {listen: '127.0.0.1:0'}\nadmin: {listen: '127.0.0.1:0'}\n")
    assert config.server.listen == config.admin.listen


@pytest.mark.parametrize(("ttl", "told"), TTL)
def test_the_times_to_live_are_in_order(tells: Tells, minimal: str, ttl: str, told: str) -> None:
    assert tells(f"{minimal}tasks:\n  ttl:\n    {ttl}\n") == [f"f:{told}"]


def test_two_upstreams_may_not_share_a_path(tells: Tells, minimal: str) -> None:
    more = "  other:\n    url: http://127.0.0.1:3001/mcp\n    path: /reports/mcp\n"
    assert tells(minimal + more) == ["f:7: upstreams.other.path: must not be the path of upstreams.reports"]


def test_everything_wrong_is_told_at_once_in_the_order_of_the_file(tells: Tells) -> None:
    text = """\
version: 2
server:
  listen: 0.0.0.0:8080
  listen: 127.0.0.1:8080
  max_body: 4MB
upstreams:
  a: {path: /a, url: http://a}
  b: {path: /a, url: "${NOWHERE}"}
  C: {path: /c, url: http://c}
tasks:
  upgrade:
    - {upstream: z, tool: "*", mode: auto}
  ttl:
    min: 30m
    max: 20m
    default: 25m
admin: *server
cache: {}
stor: {}
"""
    names = "a-z, 0-9, _ and -, at most 64 long, with a letter or digit first"
    assert tells(text) == [
        "f:1: auth: is required; write auth: with mode: required and issuers, or auth: {mode: none}",
        "f:1: version: must be 1",
        "f:4: server.listen: is already given on line 3",
        "f:5: server.max_body: must be a size such as 512B, 64KiB, 4MiB or 4GiB",
        "f:8: upstreams.b.path: must not be the path of upstreams.a",
        "f:8: upstreams.b.url: the environment variable NOWHERE is not set",
        f"f:9: upstreams.C: must be a name of {names}",
        "f:12: tasks.upgrade[0].upstream: must be the name of an upstream of this file",
        "f:14: tasks.ttl.min: must be at most tasks.ttl.max",
        "f:17: admin: must not be an alias: write the value out",
        "f:18: cache: unknown key",
        "f:19: stor: unknown key (did you mean store?)",
    ]


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


@pytest.mark.parametrize(("tokens", "told"), TOKENS)
def test_each_token_of_operators_has_a_name_of_its_own(tells: Tells, minimal: str, tokens: str, told: str) -> None:
    assert tells(f"{minimal}admin:\n  tokens: {tokens}\n") == [f"f:6: {told}"]
