"""What a peer says of others changes no request, whoever it is; a trusted one says where requests come from."""

from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import pytest

from helpers.host.raw import get, post
from taskgate.streams.exchange import Exchange, HttpReply
from unit.listener.gate import Gate, opened

OTHERS = {
    "Forwarded": "for=10.0.0.9;host=gate.example;proto=https",
    "X_Forwarded_For": "10.0.0.9, 127.0.0.1",
    "X_Forwarded_Host": "gate.example",
    "X_Forwarded_Proto": "https",
    "X_Forwarded_Port": "443",
    "X_Forwarded_Server": "gate.example",
    "X_Forwarded_Prefix": "/other",
    "X_Original_URL": "/other/mcp",
    "X_Rewrite_URL": "/other/mcp",
    "X_Original_Host": "gate.example",
    "X_Real_IP": "10.0.0.9",
    "True_Client_IP": "10.0.0.9",
    "X_HTTP_Method_Override": "DELETE",
}
FOREIGN = {each: value.replace("gate.example", "elsewhere.example") for each, value in OTHERS.items()}


@pytest.fixture(params=[(), (ip_network("127.0.0.0/8"),)], ids=["not trusted", "trusted"])
async def gate(request: pytest.FixtureRequest) -> AsyncIterator[Gate]:
    """A listener whose hosts are, or are not, proxies that it trusts."""
    async with opened(trusted_proxies=request.param) as gate:
        yield gate


@pytest.mark.parametrize("header", OTHERS)
async def test_a_host_that_is_not_ours_is_refused_whatever_else_is_said_of_it(gate: Gate, header: str) -> None:
    async with gate.host() as host:
        assert (await host.ask(post(host="elsewhere.example", **{header: OTHERS[header]}))).status == 421
    assert gate.engine.seen == []


@pytest.mark.parametrize("header", FOREIGN)
async def test_a_request_is_the_same_with_what_is_said_of_others(gate: Gate, header: str) -> None:
    async with gate.host() as host:
        plain = await host.ask(post())
        told = await host.ask(post(**{header: FOREIGN[header]}))
        first, second = gate.engine.seen
        assert first == second
        assert (plain.status, set(plain.headers)) == (told.status, set(told.headers))
    assert gate.emitted.answered() == [("mcp", "POST", 200)] * 2


@pytest.mark.parametrize("header", OTHERS)
async def test_an_origin_that_is_not_ours_stays_one(gate: Gate, header: str) -> None:
    async with gate.host() as host:
        assert (await host.ask(post(Origin="https://gate.elsewhere", **{header: OTHERS[header]}))).status == 403
    assert gate.engine.seen == []


@pytest.mark.parametrize("header", ["X_Original_URL", "X_Rewrite_URL", "X_Forwarded_Prefix", "X_Forwarded_Path"])
async def test_no_other_path_is_taken(gate: Gate, header: str) -> None:
    async with gate.host() as host:
        answer = await host.ask(get("/nowhere", **{header: "/mcp"}))
        assert (answer.status, "location" in answer.headers) == (404, False)
    assert gate.engine.seen == []


@pytest.mark.parametrize(
    ("trusted", "headers", "address"),
    [
        ((), {"Forwarded": "for=192.0.2.1"}, "127.0.0.1"),
        ((), {"X_Forwarded_For": "192.0.2.1"}, "127.0.0.1"),
        (("127.0.0.0/8",), {}, "127.0.0.1"),
        (("127.0.0.0/8",), {"Forwarded": "for=192.0.2.1"}, "127.0.0.1"),
        (("127.0.0.0/8",), {"X_Forwarded_For": "192.0.2.1"}, "192.0.2.1"),
        (("127.0.0.0/8",), {"X_Forwarded_For": "192.0.2.2, 127.0.0.2\r\nX-Forwarded-For: 127.0.0.3"}, "192.0.2.2"),
        (("127.0.0.0/8",), {"Forwarded": "for=192.0.2.1", "X_Forwarded_For": "192.0.2.2"}, "192.0.2.2"),
        (("127.0.0.0/8",), {"X_Real_IP": "192.0.2.1"}, "127.0.0.1"),
        (("10.0.0.0/8",), {"Forwarded": "for=192.0.2.1"}, "127.0.0.1"),
    ],
)
async def test_only_trusted_peers_say_where_a_request_comes_from(
    trusted: tuple[str, ...], headers: dict[str, Any], address: str
) -> None:
    told: list[str] = []

    async def listening(exchange: Exchange) -> HttpReply:
        told.append(exchange.address)
        return HttpReply(body="{}")

    async with opened(listening, trusted_proxies=tuple(map(ip_network, trusted))) as gate, gate.host() as host:
        await host.ask(post(**headers))
    assert told == [address]


@pytest.mark.parametrize(
    ("changes", "headers", "advice"),
    [
        ({}, {"X_Forwarded_For": "192.0.2.1"}, "server.trusted_proxies"),
        ({}, {"Forwarded": "for=192.0.2.1"}, "server.trusted_proxies"),
        ({"trusted_proxies": (ip_network("10.0.0.0/8"),)}, {"X_Forwarded_For": "192.0.2.1"}, "server.trusted_proxies"),
        ({"trusted_proxies": (ip_network("127.0.0.1"),)}, {"Forwarded": "for=192.0.2.1"}, "server.forwarded_header"),
        ({"trusted_proxies": (ip_network("127.0.0.1"),)}, {"X_Forwarded_For": "192.0.2.1"}, None),
        ({}, {}, None),
    ],
)
async def test_the_operator_is_told_once_where_a_proxy_seems_to_be_in_front_that_is_not_believed(
    caplog: pytest.LogCaptureFixture, changes: dict[str, Any], headers: dict[str, Any], advice: str | None
) -> None:
    async with opened(**changes) as gate, gate.host() as host:
        for _ in range(3):
            assert (await host.ask(post(**headers))).status == 200
    told = [record for record in caplog.records if "share one address" in record.getMessage()]
    assert [advice in record.getMessage() for record in told] == ([] if advice is None else [True])
    assert {record.__dict__["peer"] for record in told} <= {"127.0.0.1"}
