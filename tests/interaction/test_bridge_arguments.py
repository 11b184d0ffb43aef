"""Arguments that hosts of the modern era repeat in headers, where only the server could know of any use for them."""

from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import encoded
from helpers.server import ScriptedServer, stream
from interaction.bridges import bridge, modern
from requirements import covers

__all__ = ["bridge", "modern"]

UNKNOWN = {"Mcp-Param-Unknown": "y", "MCP-PARAM-OTHER-2": encoded("Köln"), "Mcp-Param-Empty": ""}
HOSTS: dict[str, dict[str, Any]] = {
    "waits": {"tasks": False},
    "can be asked": {"tasks": False, "capabilities": {"elicitation": {}}},
    "knows tasks": {},
}


def params_of(server: ScriptedServer) -> dict[str, str]:
    """What the headers of the last request said of arguments."""
    return {name: value for name, value in server.requests[-1].headers.items() if name.startswith("mcp-param-")}


@covers("H-MOD-6")
@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
async def test_what_nobody_knows_goes_to_the_server_however_its_call_is_carried(
    modern: ScriptedServer, bridge: Gateway, host: dict[str, Any]
) -> None:
    assert (await bridge.modern(**host).call("echo", {"a": "x"}, headers=UNKNOWN)).result
    assert params_of(modern) == {name.lower(): value for name, value in UNKNOWN.items()}
    await bridge.modern(**host).call("echo", {"a": "x"})
    assert params_of(modern) == {}


@covers("H-MOD-6")
@pytest.mark.parametrize(
    ("method", "params"), [("prompts/get", {"name": "p"}), ("prompts/list", {}), ("tools/list", {})]
)
async def test_whatever_else_is_asked_for_goes_with_what_its_headers_say(
    modern: ScriptedServer, bridge: Gateway, method: str, params: dict[str, Any]
) -> None:
    modern.capabilities |= {"prompts": {}}
    modern.methods |= {"prompts/get": stream({"messages": []}), "prompts/list": stream({"prompts": []})}
    assert (await bridge.modern().ask(method, params, headers=UNKNOWN)).result
    assert params_of(modern) == {name.lower(): value for name, value in UNKNOWN.items()}


@covers("H-MOD-6", "H-MOD-5")
async def test_what_the_tool_wants_is_written_anew_beside_what_nobody_knows(
    modern: ScriptedServer, bridge: Gateway
) -> None:
    wanted = {"a": {"type": "integer", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "B"}}
    modern.tools = [{"name": "echo", "inputSchema": {"type": "object", "properties": wanted}}]
    said = {"mcp-param-a": "42.0", "MCP-PARAM-B": encoded("Köln"), "Mcp-Param-C": "=?base64?"}
    await bridge.modern().call("echo", {"a": 42, "b": "Köln"}, headers=said)
    assert params_of(modern) == {"mcp-param-a": "42", "mcp-param-b": encoded("Köln"), "mcp-param-c": "=?base64?"}


@covers("H-MOD-6", "H-MOD-3")
async def test_nothing_but_arguments_crosses_and_no_value_that_no_header_can_have(
    modern: ScriptedServer, bridge: Gateway
) -> None:
    await bridge.modern().call("echo", headers={"Mcp-Param-A": "y"})
    usual = set(modern.requests[-1].headers) - {"mcp-param-a"}
    others = {"Mcp-Params": "x", "X-Mcp-Param-A": "x", "Mcp-Session-Id": "x", "Cookie": "x", "Traceparent": "x"}
    assert (await bridge.modern().call("echo", headers={"Mcp-Param-A": "Köln", **others})).result
    assert set(modern.requests[-1].headers) == usual


@covers("H-MOD-6")
async def test_no_server_of_the_legacy_era_is_told_arguments_in_headers(
    server: ScriptedServer, gateway: Gateway
) -> None:
    for host in HOSTS.values():
        assert (await gateway.modern(**host).call("echo", {"a": "x"}, headers=UNKNOWN)).result
    assert len(server.heard("tools/call")) == len(HOSTS)
    assert not any(name.startswith("mcp-param-") for request in server.requests for name in request.headers)
