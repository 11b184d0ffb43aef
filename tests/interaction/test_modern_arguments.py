"""Arguments of tools that headers repeat: what has to be there, what it has to say, and what is nobody's business."""

import json
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import encoded
from helpers.server import ScriptedServer
from interaction.refusals import refused
from requirements import covers

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "where": {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}},
    },
}
ARGUMENTS: dict[str, Any] = {"region": "Köln", "count": 42, "dry": True, "where": {"zone": "a b"}, "free": "x"}
HEADERS = {
    "Mcp-Param-Region": encoded("Köln"),
    "Mcp-Param-Count": "42",
    "Mcp-Param-Dry-Run": "true",
    "Mcp-Param-Zone": "a b",
}
WRONG: dict[str, tuple[str, Any]] = {
    "no text": ("Region", []),
    "another text": ("Region", "Bonn"),
    "another text in Base64": ("Region", encoded("köln")),
    "a text beyond ASCII": ("Region", "Köln"),
    "no Base64": ("Region", "=?base64?S8O2bG4?="),
    "the text twice": ("Region", [encoded("Köln"), encoded("Köln")]),
    "no number": ("Count", []),
    "another number": ("Count", "43"),
    "a number with a rest": ("Count", "42.5"),
    "a number as a text": ("Count", '"42"'),
    "a number in another notation": ("Count", "4.2e1"),
    "the number twice": ("Count", ["42", "42"]),
    "a flag in capitals": ("Dry-Run", "True"),
    "a flag that is a number": ("Dry-Run", "1"),
    "the other flag": ("Dry-Run", "false"),
    "no inner text": ("Zone", []),
    "another inner text": ("Zone", "A B"),
    "an empty inner text": ("Zone", ""),
}


@pytest.fixture(autouse=True)
def tool(server: ScriptedServer) -> None:
    """The tool `echo`, which wants four of its arguments repeated."""
    server.tools = [{"name": "echo", "inputSchema": SCHEMA}]


@covers("H-MOD-6", "H-MOD-3", "H-MOD-4")
@pytest.mark.parametrize(("name", "value"), WRONG.values(), ids=WRONG)
async def test_a_call_whose_headers_say_other_arguments_is_refused(
    gateway: Gateway, server: ScriptedServer, name: str, value: Any
) -> None:
    headers = HEADERS | {f"Mcp-Param-{name}": value}
    answer = await gateway.modern().call("echo", ARGUMENTS, headers=headers)
    refused(answer, 400, -32020)
    assert server.heard("tools/call") == []
    assert await gateway.count("taskgate_tasks_started_total") == 0
    # What was sent twice is refused before anybody looks at what it says.
    rejected = 0 if isinstance(value, list) and len(value) > 1 else 1
    assert await gateway.count("taskgate_tool_calls_total", tool="echo", disposition="rejected") == rejected


@covers("H-MOD-6")
@pytest.mark.parametrize("argument", ["region", "count", "dry"])
async def test_a_header_without_its_argument_is_refused(
    gateway: Gateway, server: ScriptedServer, argument: str
) -> None:
    host = gateway.modern()
    for without in (
        {**ARGUMENTS, argument: None},
        {name: each for name, each in ARGUMENTS.items() if name != argument},
    ):
        refused(await host.call("echo", without, headers=HEADERS), 400, -32020)
    assert server.heard("tools/call") == []


@covers("H-MOD-6", "H-MOD-4")
@pytest.mark.parametrize(
    "headers",
    [
        HEADERS,
        HEADERS | {"Mcp-Param-Count": "42.0"},
        HEADERS | {"Mcp-Param-Zone": encoded("a b")},
        HEADERS | {"Mcp-Param-Free": "something else", "Mcp-Param-Count-2": "1"},
        {name.upper(): value for name, value in HEADERS.items()},
    ],
    ids=["as they are", "a number in another spelling", "a text in Base64", "unknown ones", "in capitals"],
)
async def test_a_call_whose_headers_say_the_same_is_carried(gateway: Gateway, headers: dict[str, Any]) -> None:
    answer = await gateway.modern().call("echo", ARGUMENTS, headers=headers)
    assert answer.result["structuredContent"] == ARGUMENTS


@covers("H-MOD-6")
async def test_what_is_not_in_the_body_needs_no_header(gateway: Gateway) -> None:
    answer = await gateway.modern().call("echo", {"region": None, "free": 1})
    assert answer.result["structuredContent"] == {"region": None, "free": 1}


@covers("H-MOD-14", "S-SEC-7")
async def test_no_header_stands_for_an_argument_of_the_legacy_era(gateway: Gateway) -> None:
    host = await gateway.greeted()
    answer = await host.ask("tools/call", {"name": "echo", "arguments": ARGUMENTS}, headers={"Mcp-Param-Count": "7"})
    assert answer.result["structuredContent"] == ARGUMENTS


@covers("H-MOD-6", "S-SEC-7")
@pytest.mark.parametrize("second", ["region", "r\\u0065gion", "Region"])
async def test_an_argument_that_stands_twice_and_in_a_header_is_refused(
    gateway: Gateway, server: ScriptedServer, second: str
) -> None:
    host = gateway.modern()
    usual = host.written("tools/call", {"name": "echo", "arguments": {"region": "eu"}}, id=7)
    body = json.dumps(usual).replace('"region": "eu"', f'"region": "eu", "{second}": "us"')
    answer = await host.post(body.encode(), host.routing(usual) | {"Mcp-Param-Region": "eu"})
    refused(answer, 400, -32600)
    assert server.heard("tools/call") == []
