"""Hosts see who the server is, whatever the eras; that a gateway stands in between they see beside that."""

from typing import Any

import pytest

from helpers.gateway.gateway import __version__, serve
from helpers.host.host import ERAS
from helpers.modern_schema import SERVER
from helpers.server import result
from interaction.programs import with_program
from interaction.server_identity import GATEWAY, INFO, before, info_of, server_of, welcome
from requirements import covers

OURS = {"name": "taskgate", "version": __version__}
ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}
both_hosts = pytest.mark.parametrize("host", ERAS)
both_servers = pytest.mark.parametrize("upstream", ERAS)


@both_hosts
@both_servers
async def test_a_host_sees_what_its_server_says_of_itself(host: str, upstream: str) -> None:
    async with server_of(upstream) as server, before(server) as gateway:
        server.also = {"instructions": "Ask nicely.", "x-region": {"name": "eu"}, "_meta": {"com.example/a": [1]}}
        told = await welcome(gateway, host)
    assert info_of(told, host) == INFO
    assert (told["instructions"], told["x-region"]) == ("Ask nicely.", {"name": "eu"})
    assert told["_meta"]["com.example/a"] == [1]
    assert told["_meta"][GATEWAY] == {"version": __version__}


@both_hosts
@both_servers
async def test_a_host_sees_the_gateway_where_the_operator_wants_that(host: str, upstream: str) -> None:
    async with server_of(upstream) as server, before(server, server_info="gateway") as gateway:
        told = await welcome(gateway, host)
        called = (await gateway.modern().call("echo")).result
    assert info_of(told, host) == OURS
    assert told["instructions"] == "Do as the script says."
    assert called["_meta"] == {SERVER: OURS}


@both_hosts
@both_servers
async def test_a_host_needs_no_server_that_says_who_it_is(host: str, upstream: str) -> None:
    async with server_of(upstream) as server, before(server) as gateway:
        server.info = None
        told = await welcome(gateway, host)
    assert info_of(told, host) == (OURS if host == "legacy" else None)


@both_servers
async def test_servers_see_the_gateway_as_before(upstream: str) -> None:
    async with server_of(upstream) as server, before(server) as gateway:
        await gateway.host().initialize(clientInfo={"name": "somebody", "version": "7"})
        await gateway.modern().call("echo")
        seen = [request.message["params"] for request in server.requests if "params" in (request.message or {})]
    key = "io.modelcontextprotocol/clientInfo"
    clients = [params.get("clientInfo") or params.get("_meta", {}).get(key) for params in seen]
    assert {client["name"] for client in clients if client} == {"taskgate"}


# --- on the results of the modern era


@covers("V-META-3")
async def test_a_result_of_a_session_tells_who_its_server_is() -> None:
    async with server_of("legacy") as server, before(server) as gateway:
        host = gateway.modern()
        results = [(await host.call("echo")).result, (await host.ask("tools/list")).result]
        server.forget_sessions()
        server.info = {"name": "another", "version": "3"}
        await host.call("echo")
        results.append((await host.call("echo")).result)
    assert [each["_meta"][SERVER] for each in results] == [INFO, INFO, {"name": "another", "version": "3"}]


@covers("V-META-3")
@pytest.mark.parametrize("meta", [{}, {"_meta": {SERVER: {"name": "r", "version": "9"}, "own": 1}}])
async def test_a_result_of_the_modern_era_says_what_its_server_said(meta: dict[str, Any]) -> None:
    said = {"content": [], **meta}
    async with server_of("modern") as server, before(server) as gateway:
        server.script["echo"] = result(said)
        called = (await gateway.modern(tasks=False).call("echo")).result
    assert called == {**said, "resultType": "complete"}


async def test_a_server_whose_info_is_long_is_named_in_the_welcome_alone() -> None:
    async with server_of("legacy") as server, before(server) as gateway:
        server.info = {**INFO, "icons": [{"src": f"data:image/png;base64,{'A' * 2048}"}]}
        host = gateway.modern()
        told, called = await host.discover(), (await host.call("echo")).result
    assert told["_meta"][SERVER] == server.info
    assert SERVER not in called.get("_meta", {})


@covers("V-META-3")
@pytest.mark.parametrize(("server_info", "named"), [("upstream", {SERVER: INFO}), ("gateway", {})])
async def test_what_the_gateway_makes_itself_is_its_own_and_the_outcome_is_the_servers(
    server_info: str, named: dict[str, Any]
) -> None:
    keys = {"server_info": server_info}
    async with server_of("modern") as server, before(server, sections={"tasks": ALWAYS}, **keys) as gateway:
        server.script["echo"] = result({"content": [], "_meta": {SERVER: INFO, "own": 1}})
        host = gateway.modern()
        made = await host.start("echo")
        done = await host.until(made["taskId"], "completed")
        cancelled = (await host.cancel(made["taskId"])).result
    assert made["_meta"][SERVER] == done["_meta"][SERVER] == cancelled["_meta"][SERVER] == OURS
    assert done["result"]["_meta"] == {**named, "own": 1}


@both_hosts
async def test_a_program_is_seen_as_it_says_that_it_is(host: str) -> None:
    async with serve(with_program(protocol_version="auto")) as gateway:
        told = await welcome(gateway, host)
    assert info_of(told, host) == {"name": "talking", "version": "1"}
    assert told["_meta"][GATEWAY] == {"version": __version__}
