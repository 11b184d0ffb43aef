"""What a request of the modern era has to say about itself, and in which versions it may."""

import json
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import GONE, called
from helpers.modern_schema import CAPABILITIES, CLIENT, LEVEL, VERSION
from helpers.server import ScriptedServer
from interaction.refusals import expect_nothing_done, refused
from requirements import covers

SERVED = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
INCOMPLETE: dict[str, dict[str, Any]] = {
    "no version": {VERSION: GONE},
    "a version that is null": {VERSION: None},
    "a version that is a number": {VERSION: 20260728},
    "a version in a list": {VERSION: ["2026-07-28"]},
    "no capabilities": {CAPABILITIES: GONE},
    "capabilities that are null": {CAPABILITIES: None},
    "capabilities that are a list": {CAPABILITIES: []},
    "capabilities that are true": {CAPABILITIES: True},
    "nothing of this era": {VERSION: GONE, CAPABILITIES: GONE, CLIENT: GONE},
    "the names without their prefix": {
        VERSION: GONE,
        CAPABILITIES: GONE,
        "protocolVersion": "2026-07-28",
        "clientCapabilities": {},
    },
}
ILL_TYPED: dict[str, dict[str, Any]] = {
    "a host that is a string": {CLIENT: "me"},
    "a level that does not exist": {LEVEL: "loud"},
    "a level in capitals": {LEVEL: "INFO"},
    "a level that is a number": {LEVEL: 3},
    "a token that is a fraction": {"progressToken": 1.5},
    "a token that is an object": {"progressToken": {}},
}


@covers("V-META-1", "V-META-4")
@pytest.mark.parametrize("meta", INCOMPLETE.values(), ids=INCOMPLETE)
async def test_a_request_that_does_not_say_all_about_itself_is_refused(
    gateway: Gateway, server: ScriptedServer, meta: dict[str, Any]
) -> None:
    host = gateway.modern()
    refused(await host.call("echo", meta=meta), 400, -32602)
    refused(await host.ask("server/discover", meta=meta), 400, -32602)
    await expect_nothing_done(gateway, server)


@covers("V-META-1", "T-9")
@pytest.mark.parametrize("params", [None, [], "x", {"_meta": None}, {"_meta": []}, {"name": "echo"}])
async def test_a_body_of_the_other_era_under_headers_of_this_one_is_refused(
    gateway: Gateway, server: ScriptedServer, params: Any
) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"} | ({} if params is None else {"params": params})
    host = gateway.modern()
    headers = {**host.routing(message), "Mcp-Name": "echo"}
    refused(await host.post(json.dumps(message).encode(), headers), 400, -32602)
    await expect_nothing_done(gateway, server)


@covers("V-ERA-1", "V-ERA-3")
async def test_a_body_of_the_other_era_without_a_version_is_of_that_era(
    gateway: Gateway, server: ScriptedServer
) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called("echo")}
    host = gateway.modern()
    answer = await host.post(json.dumps(message).encode(), {"Mcp-Method": "tools/call", "Mcp-Name": "echo"})
    refused(answer, 400, -32600)
    await expect_nothing_done(gateway, server)


@covers("V-META-2")
async def test_a_host_need_not_say_who_it_is(gateway: Gateway) -> None:
    answer = await gateway.modern().call("echo", {"a": 1}, meta={CLIENT: GONE})
    assert answer.result["structuredContent"] == {"a": 1}


@covers("M-LOG-1", "V-META-2")
@pytest.mark.parametrize("meta", ILL_TYPED.values(), ids=ILL_TYPED)
async def test_what_a_request_says_beyond_that_has_to_be_of_its_type(
    gateway: Gateway, server: ScriptedServer, meta: dict[str, Any]
) -> None:
    refused(await gateway.modern().call("echo", meta=meta), 200, -32602)
    await expect_nothing_done(gateway, server)


@covers("V-DISC-2", "T-26")
@pytest.mark.parametrize("version", ["2031-01-01", "2025-11-25", "2024-11-05", "2026-06-30", "draft", "x"])
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "no/such"])
async def test_a_version_that_is_not_served_without_a_handshake_is_refused_with_those_that_are_served(
    gateway: Gateway, server: ScriptedServer, version: str, method: str
) -> None:
    headers = {"MCP-Protocol-Version": version}
    answer = await gateway.modern().ask(method, meta={VERSION: version}, headers=headers)
    assert refused(answer, 400, -32022)["data"] == {"supported": SERVED, "requested": version}
    await expect_nothing_done(gateway, server)
