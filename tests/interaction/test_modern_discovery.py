"""What hosts of the modern era find out about a server, and the plain requests that they make of it."""

from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.modern_schema import TASKS
from helpers.server import ScriptedServer, Turn, error, event, note, open_stream, raw, result
from helpers.waiting import bounded
from interaction.refusals import TASK, refused
from requirements import covers

EVERYTHING = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
}
NEVER = {"upgrade": [{"tool": "*", "mode": "sync"}]}


# --- server/discover -----------------------------------------------------------------------------------------------


@covers("V-DISC-1", "V-DISC-5", "V-META-3", "V-META-6", "V-CACHE-1", "V-CACHE-2")
async def test_discovery_tells_what_the_server_can_and_what_the_gateway_adds(
    server: ScriptedServer, gateway: Gateway
) -> None:
    server.capabilities = EVERYTHING
    found = await gateway.modern().discover()
    assert found["supportedVersions"][0] == "2026-07-28"
    assert set(found["supportedVersions"]) > {"2024-11-05", "2025-11-25"}
    assert {name: found["capabilities"].get(name) for name in ("tools", "prompts", "resources", "completions")} == {
        name: EVERYTHING[name] for name in ("tools", "prompts", "resources", "completions")
    }
    assert found["capabilities"]["extensions"] == {TASKS: {}}
    assert "tasks" not in found["capabilities"]
    assert found["instructions"] == "Do as the script says."
    assert found["resultType"] == "complete"
    assert isinstance(found["ttlMs"], int)
    assert found["cacheScope"] == "private"


@covers("V-DISC-1", "V-DISC-4")
async def test_where_no_call_becomes_a_task_no_extension_is_told_and_none_is_there(server: ScriptedServer) -> None:
    async with serve(configuration({"reports": server.url}, tasks=NEVER)) as gateway:
        host = gateway.modern()
        assert TASKS not in (await host.discover())["capabilities"].get("extensions", {})
        refused(await host.ask("tasks/get", {"taskId": TASK}), 404, -32601)


@covers("V-DISC-1")
async def test_a_server_that_cannot_be_reached_is_an_error_and_the_next_request_tries_again(
    server: ScriptedServer, gateway: Gateway
) -> None:
    host = gateway.modern()
    server.methods["initialize"] = error(-32000, "not now")
    failed = refused(await host.ask("server/discover"), 200, -32603)
    assert failed["data"] == {"origin": "upstream", "reason": "refused", "dispatched": False}
    del server.methods["initialize"]
    assert (await host.discover())["resultType"] == "complete"


# --- lists ---------------------------------------------------------------------------------------------------------


@covers("V-CACHE-1", "V-META-3", "V-META-6", "B-CONV-2", "V-LIST-1")
async def test_tools_are_listed_page_by_page_in_the_order_of_the_server(
    server: ScriptedServer, gateway: Gateway
) -> None:
    server.page_size = 2
    server.tools[0]["execution"] = {"taskSupport": "required"}
    host = gateway.modern()
    first = (await host.ask("tools/list")).result
    second = (await host.ask("tools/list", {"cursor": first["nextCursor"]})).result
    assert [tool["name"] for tool in (*first["tools"], *second["tools"])] == ["echo", "report", "broken"]
    assert "nextCursor" not in second
    for page in (first, second):
        assert page["resultType"] == "complete"
        assert {"ttlMs", "cacheScope"} <= page.keys()
        assert all("execution" not in tool for tool in page["tools"])


@covers("V-CACHE-1", "B-CONV-1")
@pytest.mark.parametrize(
    ("method", "params", "found"),
    [
        ("prompts/list", {}, {"prompts": [{"name": "p"}]}),
        ("resources/list", {}, {"resources": [{"name": "r", "uri": "file:///r"}]}),
        ("resources/templates/list", {}, {"resourceTemplates": [{"name": "t", "uriTemplate": "file:///{t}"}]}),
        ("resources/read", {"uri": "file:///r"}, {"contents": [{"uri": "file:///r", "text": "so"}]}),
        ("prompts/get", {"name": "p"}, {"messages": []}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}},
            {"completion": {"values": ["vw"]}},
        ),
    ],
)
async def test_what_else_there_is_comes_from_the_server(
    server: ScriptedServer, gateway: Gateway, method: str, params: dict[str, Any], found: dict[str, Any]
) -> None:
    server.methods[method] = result(found)
    answer = (await gateway.modern().ask(method, params)).result
    assert {name: answer[name] for name in found} == found
    assert answer["resultType"] == "complete"
    [heard] = server.heard(method)
    assert {name: heard["params"][name] for name in params} == params
    assert not [key for key in heard["params"].get("_meta", {}) if key.startswith("io.modelcontextprotocol/")]


# --- plain calls, and how they end ---------------------------------------------------------------------------------


@covers("H-MOD-13", "B-CONV-1")
async def test_a_quick_call_is_one_document_with_its_result(server: ScriptedServer, gateway: Gateway) -> None:
    answer = await gateway.modern().call("echo", {"a": 1})
    assert (answer.status, answer.streamed, answer.result["structuredContent"]) == (200, False, {"a": 1})
    assert "Mcp-Session-Id" not in answer.headers
    [call] = server.heard("tools/call")
    assert (call["params"]["name"], call["params"]["arguments"]) == ("echo", {"a": 1})


@covers("V-DISC-3", "B-CONV-8", "V-ERA-9")
@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        pytest.param(-32601, 404, -32601, id="no such method"),
        pytest.param(-32602, 200, -32602, id="parameters"),
        pytest.param(-32603, 200, -32603, id="internal"),
        pytest.param(-32002, 200, -32602, id="no such resource"),
        pytest.param(-32001, 200, -32001, id="its own"),
        pytest.param(7, 200, 7, id="anything"),
    ],
)
async def test_an_error_of_a_server_has_the_status_that_the_era_gives_it(
    server: ScriptedServer, gateway: Gateway, code: int, status: int, told: int
) -> None:
    server.methods["resources/read"] = error(code, "no")
    refused(await gateway.modern().ask("resources/read", {"uri": "file:///r"}), status, told)
    assert await gateway.count("taskgate_http_rejections_total") == 0


@covers("H-MOD-13")
async def test_an_error_on_a_stream_comes_too_late_for_a_status(server: ScriptedServer, gateway: Gateway) -> None:
    async def late(turn: Turn) -> Any:
        token = turn.message["params"]["_meta"]["progressToken"]
        response = await open_stream(turn.request)
        await response.write(event(note("notifications/progress", progressToken=token, progress=1)))
        await response.write(
            event({"jsonrpc": "2.0", "id": turn.message["id"], "error": {"code": -32601, "message": "no"}})
        )
        await response.write_eof()
        return response

    server.script["report"] = late
    async with bounded():
        answer = await gateway.modern().call("report", meta={"progressToken": "mine"})
    assert answer.streamed
    refused(answer, 200, -32601)
    assert [each["params"]["progress"] for each in answer.notices] == [1]


async def test_a_server_that_answers_rubbish_is_a_failure_of_ours(server: ScriptedServer, gateway: Gateway) -> None:
    server.script["broken"] = raw(b"[]")
    failed = refused(await gateway.modern().call("broken"), 200, -32603)
    assert failed["data"] == {"origin": "upstream", "reason": "malformed", "dispatched": True}


# --- what operators see --------------------------------------------------------------------------------------------


async def test_requests_are_counted_by_their_revision_and_method(gateway: Gateway) -> None:
    host = gateway.modern()
    await host.discover()
    await host.call("echo")
    assert await gateway.count("taskgate_requests_by_protocol_total", mcp_protocol_version="2026-07-28") == 2
    for method in ("server/discover", "tools/call"):
        counted = await gateway.count("mcp_server_operation_duration_seconds_count", mcp_method_name=method)
        assert counted == 1


@pytest.mark.parametrize(
    ("method", "more", "reason", "code"),
    [
        ("tools/list", {"headers": {"Mcp-Method": "x"}}, "header_mismatch", "-32020"),
        ("tools/list", {"meta": {"io.modelcontextprotocol/clientCapabilities": 1}}, "bad_meta", "-32602"),
        ("ping", {}, "unknown_method", "-32601"),
        ("tasks/get", {"params": {"taskId": TASK}, "capabilities": {}}, "missing_capability", "-32021"),
        (
            "tools/list",
            {
                "meta": {"io.modelcontextprotocol/protocolVersion": "2031-01-01"},
                "headers": {"MCP-Protocol-Version": "2031-01-01"},
            },
            "bad_version",
            "-32022",
        ),
    ],
)
async def test_refusals_are_counted_by_their_reason_and_code(
    gateway: Gateway, method: str, more: dict[str, Any], reason: str, code: str
) -> None:
    assert (await gateway.modern().ask(method, **more)).status >= 400
    assert await gateway.count("taskgate_http_rejections_total", reason=reason) == 1
    assert await gateway.count("mcp_server_operation_duration_seconds_count", error_type=code) == 1
    for label in ("reason", "error_type"):
        assert await gateway.count("taskgate_metrics_label_overflows_total", label=label) == 0


async def test_a_stream_that_is_asked_for_with_get_is_counted_as_refused(gateway: Gateway) -> None:
    head = {"MCP-Protocol-Version": "2026-07-28", "Accept": "text/event-stream"}
    async with gateway.http.get(gateway.url(), headers=head) as response:
        assert response.status == 405
    assert await gateway.count("taskgate_http_rejections_total", reason="bad_verb") == 1
