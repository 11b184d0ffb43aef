"""Requests come from the networks that the operator allows; all others get 403 before anything else."""

import json
from ipaddress import ip_network
from typing import Any

import pytest

from helpers.host.raw import get, post, request_head
from unit.listener.gate import opened

HERE, PROXY = ip_network("127.0.0.0/8"), ip_network("127.0.0.1/32")
INNER = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
ORIGIN = "https://app.example"
PRM = "/.well-known/oauth-protected-resource"


async def test_a_host_of_an_allowed_network_is_served() -> None:
    async with opened(allowed_clients=(*INNER, HERE)) as gate, gate.host() as host:
        assert [(await host.ask(post())).status for _ in range(3)] == [200, 200, 200]


@pytest.mark.parametrize(
    "head",
    [
        post(),
        post(host="evil.example"),
        post(path="/nowhere"),
        post(Origin="https://evil.example"),
        post(Content_Type="text/plain"),
        post(Authorization="Bearer x"),
        get(),
        request_head("PUT", "/mcp", Host="gate.example"),
        request_head("GET", PRM, Host="gate.example"),
        request_head(
            "OPTIONS", "/mcp", Host="gate.example", Origin="https://app.example", Access_Control_Request_Method="POST"
        ),
    ],
)
async def test_any_request_of_another_address_gets_403_and_is_counted(head: bytes) -> None:
    origins: Any = frozenset({ORIGIN})
    more: dict[str, Any] = {"cors_origins": origins, "documents": {PRM: b"{}"}}
    async with opened(allowed_clients=INNER, **more) as gate, gate.host() as host:
        answer = await host.ask(head)
        assert answer.status == 403
        # A POST gets its reason as JSON-RPC, all else as a line of text.
        text = json.loads(answer.body)["error"]["message"] if head.startswith(b"POST") else answer.body.decode().strip()
        assert text == "Address not allowed: see server.allowed_clients"
    assert gate.emitted.refused() == ["bad_client"]
    assert gate.engine.seen == []


@pytest.mark.parametrize(
    ("forwarded", "status"),
    [
        ("10.1.2.3", 200),
        ("10.1.2.3:4711", 200),
        ("[fd00::7]:1", 200),
        ("::ffff:10.1.2.3", 200),
        ("203.0.113.9", 403),
        ("10.1.2.3, 203.0.113.9", 403),
        ("203.0.113.9, 10.1.2.3", 200),
        ("unknown", 403),
        ("", 403),
    ],
)
async def test_behind_a_trusted_proxy_the_address_that_it_names_is_judged(forwarded: str, status: int) -> None:
    async with opened(allowed_clients=INNER, trusted_proxies=(PROXY,)) as gate, gate.host() as host:
        assert (await host.ask(post(X_Forwarded_For=forwarded))).status == status


async def test_a_peer_that_is_no_trusted_proxy_names_nobody() -> None:
    async with opened(allowed_clients=INNER) as gate, gate.host() as host:
        assert (await host.ask(post(X_Forwarded_For="10.1.2.3"))).status == 403


async def test_hosts_on_one_connection_of_a_proxy_are_judged_apart() -> None:
    async with opened(allowed_clients=INNER, trusted_proxies=(PROXY,)) as gate, gate.host() as host:
        for _ in range(3):
            assert (await host.ask(post(X_Forwarded_For="10.1.2.3"))).status == 200
            assert (await host.ask(post(X_Forwarded_For="203.0.113.9"))).status == 403
    assert len(gate.engine.seen) == 3


async def test_doubtful_framing_of_another_address_ends_the_connection() -> None:
    head = b"POST /mcp HTTP/1.0\r\nHost: gate.example\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with opened(allowed_clients=INNER) as gate, gate.host() as host:
        answer = await host.ask(head)
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert await host.at_end()
