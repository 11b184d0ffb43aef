"""Messages that do not exist in the modern era, and those of either era in the clothes of the other."""

import json
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import called
from helpers.server import ScriptedServer
from interaction.refusals import TASK, expect_nothing_done, refused
from requirements import covers

REMOVED = (
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "tasks/result",
    "tasks/list",
    "tasks/delete",
    "tasks/input_response",
    "roots/list",
    "elicitation/create",
    "sampling/createMessage",
    "notifications/cancelled",
    "tools/call/",
    "Tools/Call",
)


@covers("V-DISC-3", "M-NEG-6", "T-6", "T-10", "T-26")
@pytest.mark.parametrize("declares", [True, False])
@pytest.mark.parametrize("method", REMOVED)
async def test_a_method_that_does_not_exist_gets_404_whatever_the_host_declares(
    gateway: Gateway, server: ScriptedServer, method: str, declares: bool
) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "taskId": TASK, "uri": "x", "level": "info"}
    answer = await gateway.modern(tasks=declares).ask(method, params, id="mine")
    refused(answer, 404, -32601)
    assert answer.message is not None
    assert answer.message["id"] == "mine"
    await expect_nothing_done(gateway, server)


@covers("H-MOD-8")
@pytest.mark.parametrize("said", [{"result": {}}, {"error": {"code": 1, "message": "x"}}], ids=["result", "error"])
async def test_a_posted_response_is_refused(gateway: Gateway, server: ScriptedServer, said: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, **said}).encode()
    refused(await gateway.modern().post(body, {"MCP-Protocol-Version": "2026-07-28"}), 400, -32600)
    await expect_nothing_done(gateway, server)


@covers("H-MOD-12", "M-CANCEL-3", "L-HOST-4")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("notifications/cancelled", {"requestId": 1}),
        ("notifications/initialized", {}),
        ("notifications/roots/list_changed", {}),
        ("notifications/tasks/status", {"taskId": TASK}),
        ("notifications/whatever", {}),
    ],
)
async def test_a_notification_is_taken_and_nothing_is_done(
    gateway: Gateway, server: ScriptedServer, method: str, params: dict[str, Any]
) -> None:
    body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()
    answer = await gateway.modern().post(body, {"MCP-Protocol-Version": "2026-07-28"})
    assert (answer.status, answer.message) == (202, None)
    await expect_nothing_done(gateway, server)


@covers("V-DISC-2", "H-MOD-12")
async def test_a_notification_of_an_unknown_version_is_refused(gateway: Gateway, server: ScriptedServer) -> None:
    body = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    refused(await gateway.modern().post(body, {"MCP-Protocol-Version": "2031-01-01"}), 400, -32022)
    await expect_nothing_done(gateway, server)


@covers("H-HTTP-3", "H-HTTP-7", "T-23")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":NaN}', -32700),
        (b"null", -32600),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"server/discover"}]', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"server/discover"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"server/discover"}', -32600),
    ],
)
async def test_what_is_no_message_is_refused_without_an_id(
    gateway: Gateway, server: ScriptedServer, body: bytes, code: int
) -> None:
    answer = await gateway.modern().post(body, {"MCP-Protocol-Version": "2026-07-28"})
    refused(answer, 400, code)
    assert answer.message is not None
    assert "id" not in answer.message
    await expect_nothing_done(gateway, server)


@covers("V-ERA-4", "H-MOD-11")
@pytest.mark.parametrize("verb", ["GET", "DELETE"])
async def test_this_era_has_one_verb(gateway: Gateway, server: ScriptedServer, verb: str) -> None:
    head = {
        "MCP-Protocol-Version": "2026-07-28",
        "Accept": "text/event-stream",
        "Mcp-Session-Id": "x",
        "Last-Event-ID": "x",
    }
    async with gateway.http.request(verb, gateway.url(), headers=head) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
    await expect_nothing_done(gateway, server)


@covers("V-ERA-4", "V-META-4", "H-MOD-11")
async def test_sessions_and_event_ids_are_nothing_to_a_request_of_this_era(
    gateway: Gateway, server: ScriptedServer
) -> None:
    legacy = await gateway.greeted()
    headers = {"Mcp-Session-Id": [legacy.session], "Last-Event-ID": "x-1"}
    for each in (headers, {"Mcp-Session-Id": "unknown"}):
        answer = await gateway.modern().call("echo", {"a": 1}, headers=each)
        assert answer.result["structuredContent"] == {"a": 1}
    assert (await legacy.ask("ping")).result == {}


@covers("V-ERA-1", "T-10")
async def test_a_handshake_is_of_the_legacy_era_whatever_its_headers_say(gateway: Gateway) -> None:
    host = gateway.host()
    asked = {"protocolVersion": "2026-07-28", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
    answer = await host.ask("initialize", asked, headers={"MCP-Protocol-Version": "2026-07-28"})
    assert answer.result["protocolVersion"] == "2025-11-25"


@covers("V-ERA-1", "S-SEC-7")
async def test_routing_headers_are_nothing_to_a_request_of_the_legacy_era(gateway: Gateway) -> None:
    host = await gateway.greeted()
    headers = {"Mcp-Method": "tasks/cancel", "Mcp-Name": "other", "Mcp-Param-X": "y"}
    answer = await host.ask("tools/call", called("echo", {"a": 1}), headers=headers)
    assert answer.result["structuredContent"] == {"a": 1}
