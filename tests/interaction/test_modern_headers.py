"""Requests of the modern era whose headers do not say what their bodies say: refused, and nothing done for them."""

from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import GONE
from helpers.server import ScriptedServer
from interaction.refusals import NAMED, expect_nothing_done, refused
from requirements import covers

MISMATCHES: dict[str, dict[str, Any]] = {
    "no version": {"MCP-Protocol-Version": GONE},
    "a version of the other era": {"MCP-Protocol-Version": "2025-11-25"},
    "the oldest version": {"MCP-Protocol-Version": "2024-11-05"},
    "an unknown version": {"MCP-Protocol-Version": "2031-01-01"},
    "no version at all": {"MCP-Protocol-Version": "latest"},
    "an empty version": {"MCP-Protocol-Version": ""},
    "the version in Base64": {"MCP-Protocol-Version": "=?base64?MjAyNi0wNy0yOA==?="},
    "the version twice": {"MCP-Protocol-Version": ["2026-07-28", "2026-07-28"]},
    "two versions": {"MCP-Protocol-Version": ["2026-07-28", "2025-11-25"]},
    "two versions in one header": {"MCP-Protocol-Version": "2026-07-28, 2026-07-28"},
    "no method": {"Mcp-Method": GONE},
    "another method": {"Mcp-Method": "tools/list"},
    "the method in capitals": {"Mcp-Method": "TOOLS/CALL"},
    "an empty method": {"Mcp-Method": ""},
    "the method in Base64": {"Mcp-Method": "=?base64?dG9vbHMvY2FsbA==?="},
    "the method twice": {"Mcp-Method": ["tools/call", "tools/call"]},
    "two methods": {"Mcp-Method": ["tools/list", "tools/call"]},
    "no name": {"Mcp-Name": GONE},
    "another name": {"Mcp-Name": "report"},
    "the name in capitals": {"Mcp-Name": "ECHO"},
    "an empty name": {"Mcp-Name": ""},
    "the name twice": {"Mcp-Name": ["echo", "echo"]},
    "two names": {"Mcp-Name": ["report", "echo"]},
    "another name in Base64": {"Mcp-Name": "=?base64?cmVwb3J0?="},
    "a name that is no Base64": {"Mcp-Name": "=?base64?****?="},
    "a name without its padding": {"Mcp-Name": "=?base64?ZWNobw?="},
    "a name with something after its padding": {"Mcp-Name": "=?base64?ZWNobw==ZWNobw==?="},
    "a name whose last bits are not zero": {"Mcp-Name": "=?base64?ZWNobx==?="},
    "a name that is no UTF-8": {"Mcp-Name": "=?base64?/w==?="},
    "a name whose prefix is in capitals": {"Mcp-Name": "=?BASE64?ZWNobw==?="},
    "a name without the suffix": {"Mcp-Name": "=?base64?ZWNobw=="},
    "a name without the prefix": {"Mcp-Name": "ZWNobw==?="},
    "a name beyond ASCII": {"Mcp-Name": "écho"},
}


@covers("H-MOD-1", "H-MOD-3", "H-MOD-4", "V-ERA-2", "T-9", "T-27", "T28")
@pytest.mark.parametrize("headers", MISMATCHES.values(), ids=MISMATCHES)
async def test_a_call_whose_headers_do_not_say_what_its_body_says_is_refused(
    gateway: Gateway, server: ScriptedServer, headers: dict[str, Any]
) -> None:
    answer = await gateway.modern().call("echo", headers=headers, id="mine")
    assert "data" not in refused(answer, 400, -32020)
    assert answer.message is not None
    assert answer.message["id"] == "mine"
    await expect_nothing_done(gateway, server)


@covers("H-MOD-1", "H-MOD-2", "T-27")
@pytest.mark.parametrize("name", ["wrong", ["right", "right"], "=?base64?****?="], ids=["wrong", "doubled", "broken"])
@pytest.mark.parametrize("method", NAMED)
async def test_whatever_is_named_in_a_header_has_to_be_what_the_body_names(
    gateway: Gateway, server: ScriptedServer, method: str, name: Any
) -> None:
    refused(await gateway.modern().ask(method, NAMED[method], headers={"Mcp-Name": name}), 400, -32020)
    await expect_nothing_done(gateway, server)


@covers("H-MOD-1")
@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
async def test_a_prompt_and_a_resource_have_to_be_named_in_a_header(
    gateway: Gateway, server: ScriptedServer, method: str
) -> None:
    refused(await gateway.modern().ask(method, NAMED[method], headers={"Mcp-Name": GONE}), 400, -32020)
    await expect_nothing_done(gateway, server)


@covers("H-MOD-2")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/update"])
async def test_a_task_need_not_be_named_in_a_header(gateway: Gateway, method: str) -> None:
    answer = await gateway.modern().ask(method, NAMED[method], headers={"Mcp-Name": GONE})
    assert refused(answer, 200, -32602)["message"] == "Task not found"


@covers("H-MOD-3", "H-MOD-4")
@pytest.mark.parametrize(
    ("tool", "headers"),
    [
        ("echo", {"Mcp-Name": "=?base64?ZWNobw==?="}),
        ("echo", {"Mcp-Name": GONE, "mcp-name": "echo"}),
        ("echo", {"Mcp-Method": GONE, "MCP-METHOD": "tools/call"}),
        ("echo", {"MCP-Protocol-Version": GONE, "mcp-protocol-version": "2026-07-28"}),
        ("écho ", {}),
        ("a\nb", {}),
        ("=?base64?ZWNobw==?=", {}),
        ("=?base64?ZWNobw==", {"Mcp-Name": "=?base64?ZWNobw=="}),
        ("echo", {"Mcp-Param-Whatever": "x"}),
    ],
)
async def test_a_header_is_read_in_whatever_spelling_says_the_same(
    gateway: Gateway, server: ScriptedServer, tool: str, headers: dict[str, Any]
) -> None:
    server.tools.append({"name": tool, "inputSchema": {"type": "object"}})
    assert (await gateway.modern().call(tool, {"a": 1}, headers=headers)).result["structuredContent"] == {"a": 1}
