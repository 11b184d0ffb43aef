"""What a peer says about others on their behalf changes nothing: there is no proxy that the listener believes."""

import pytest

from helpers.raw_http import get, post
from unit.downstream.gate import Gate, new_listener

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
    assert gate.facts.answered() == [("mcp", "POST", 200)] * 2


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


def test_no_address_of_a_peer_is_a_setting() -> None:
    with pytest.raises(TypeError, match="trusted_proxies"):
        new_listener(trusted_proxies=frozenset({"127.0.0.1"}))
