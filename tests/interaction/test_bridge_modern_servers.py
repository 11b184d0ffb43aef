"""Hosts of the modern era before a server of the same: what passes as it is, and what the gateway makes its own."""

from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import called
from helpers.modern_schema import CAPABILITIES, CLIENT, LEVEL, SERVER, TASKS, VERSION
from helpers.server import Hold, ScriptedServer, breaks_off, error, note, raw, resets, result, stream
from helpers.waiting import bounded
from interaction.bridges import DONE, FORM, bridge, modern
from interaction.refusals import refused
from requirements import covers

__all__ = ["bridge", "modern"]

ASKABLE = {"elicitation": {"form": {}}, "roots": {}}
BROKEN = {
    "breaks off": breaks_off(),
    "resets": resets(),
    "ends without an answer": stream(None),
    "ends with an event to go on from": stream(None, before=[b"id: 1\nretry: 1\ndata: \n\n"]),
    "answers another request": result(DONE, id=999),
    "answers with nothing": raw(b"", status=202, content_type=None),
    "answers with no message": raw(b"[]"),
    "asks a question": stream(DONE, before=[{"jsonrpc": "2.0", "id": 9, **FORM}]),
}


# --- discovery and lists ----------------------------------------------------------------------------------------------


@covers("V-DISC-1", "V-DISC-5", "V-META-3", "V-META-6")
async def test_discovery_merges_what_the_server_and_the_gateway_can_do(modern: ScriptedServer, bridge: Gateway) -> None:
    modern.capabilities = {"tools": {"listChanged": True}, "logging": {}, "tasks": {"list": {}}}
    modern.versions = ["2026-07-28", "2027-01-01"]
    found = await bridge.modern().discover()
    assert found["supportedVersions"] == ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
    assert found["capabilities"] == {"tools": {"listChanged": True}, "logging": {}, "extensions": {TASKS: {}}}
    assert found["instructions"] == "Do as the script says."
    assert found["_meta"][SERVER] == modern.info


@covers("V-CACHE-1", "V-META-6", "V-LIST-1")
async def test_a_list_keeps_what_its_server_says_of_it(modern: ScriptedServer, bridge: Gateway) -> None:
    listed = (await bridge.modern().ask("tools/list")).result
    again = (await bridge.modern(tasks=False).ask("tools/list")).result
    assert listed["tools"] == again["tools"] == modern.tools
    assert listed["ttlMs"] == 5000
    assert listed["cacheScope"] in ("public", "private")


# --- calls ------------------------------------------------------------------------------------------------------------


@covers("V-META-8", "B-CONV-5", "B-CONV-9", "V-META-9", "H-MOD-1")
async def test_a_server_is_told_what_this_request_declares_but_for_the_tasks(
    modern: ScriptedServer, bridge: Gateway
) -> None:
    host = bridge.modern(capabilities=ASKABLE)
    await host.call("echo", meta={"traceparent": "t", "org.example/x": [1], "progressToken": 7})
    await host.call("echo", capabilities={})
    first, second = (call["params"]["_meta"] for call in modern.heard("tools/call"))
    assert (first[VERSION], first["traceparent"], first["org.example/x"]) == ("2026-07-28", "t", [1])
    assert TASKS not in first[CAPABILITIES].get("extensions", {})
    assert {name: first[CAPABILITIES][name] for name in ASKABLE} == ASKABLE
    assert not set(ASKABLE) & set(second[CAPABILITIES])
    assert first[CLIENT]["name"]


@covers("V-META-7", "B-CONV-1", "V-META-6")
@pytest.mark.parametrize(
    "said",
    [
        {"content": [], "structuredContent": [1, {"a": None}]},
        {"content": [{"type": "text", "text": "é"}], "isError": True, "_meta": {"own": 1}},
        {"content": [], "structuredContent": 7, "unknown": {"b": 2}},
    ],
)
async def test_a_result_passes_as_it_is(modern: ScriptedServer, bridge: Gateway, said: dict[str, Any]) -> None:
    modern.script["echo"] = stream(said)
    result = (await bridge.modern().call("echo")).result
    assert result == {**said, "resultType": "complete"}


@covers("V-META-7", "M-CREATE-2")
@pytest.mark.parametrize("kind", ["task", "odd", 7, None])
async def test_a_result_of_a_type_that_does_not_exist_is_a_failure(
    modern: ScriptedServer, bridge: Gateway, kind: Any
) -> None:
    modern.script["echo"] = stream({"resultType": kind, "taskId": "x", "content": []})
    assert (await bridge.modern().call("echo")).code == -32603


@covers("V-META-7")
async def test_a_result_without_a_type_is_a_complete_one(modern: ScriptedServer, bridge: Gateway) -> None:
    async def untyped(turn: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": turn.id, "result": DONE}
        return await stream(None, before=[message])(turn)

    modern.script["echo"] = untyped
    assert (await bridge.modern().call("echo")).result["content"] == DONE["content"]


@covers("B-CONV-8", "V-ERA-9")
@pytest.mark.parametrize(
    ("code", "status", "told"), [(-32602, 200, 200), (-32601, 404, 404), (-32603, 200, 200), (-32000, 200, 200)]
)
async def test_an_error_passes_as_it_is(
    modern: ScriptedServer, bridge: Gateway, code: int, status: int, told: int
) -> None:
    modern.script["echo"] = error(code, "no", status=status)
    assert refused(await bridge.modern().call("echo"), told, code)["message"] == "no"


@covers("B-CONV-8", "T-24")
@pytest.mark.parametrize(
    ("code", "status", "told_status", "told"),
    [
        (-32002, 200, 200, -32602),
        (-32042, 200, 200, -32603),
        (-32077, 200, 200, -32603),
        (-32020, 400, 200, -32603),
        (-32021, 400, 400, -32021),
    ],
)
async def test_a_code_that_this_era_does_not_have_or_that_means_the_gateway_is_not_passed_on(
    modern: ScriptedServer, bridge: Gateway, code: int, status: int, told_status: int, told: int
) -> None:
    async def refuse(turn: Any) -> Any:
        return await error(code, "no", {"requiredCapabilities": {"sampling": {}}}, status=status)(turn)

    modern.script["echo"] = refuse
    seen = refused(await bridge.modern().call("echo"), told_status, told)
    if told == -32603:
        assert seen["data"]["upstreamCode"] == code


@covers("S-SEC-9", "H-MOD-11", "H-MOD-8")
@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
async def test_a_server_that_breaks_off_or_breaks_the_protocol_is_not_asked_again(
    modern: ScriptedServer, bridge: Gateway, reply: Any
) -> None:
    modern.script["echo"] = reply
    told = refused(await bridge.modern().call("echo"), 200, -32603)["data"]
    assert (told["origin"], told["dispatched"]) == ("upstream", True)
    assert len(modern.heard("tools/call")) == 1
    assert modern.verbs("GET") == []


@covers("M-PROG-1", "M-LOG-1", "H-MOD-13", "T-16")
async def test_progress_and_log_lines_come_on_the_stream_of_their_request(
    modern: ScriptedServer, bridge: Gateway
) -> None:
    modern.capabilities["logging"] = {}
    lines = [note("notifications/message", level=level, data=level) for level in ("debug", "info", "error")]
    modern.script["echo"] = stream(DONE, progress=2, before=lines)
    host = bridge.modern()
    answer = await host.call("echo", meta={"progressToken": 7, LEVEL: "info"})
    assert answer.streamed
    assert [each["params"].get("progress", each["params"].get("level")) for each in answer.notices] == [
        1,
        2,
        "info",
        "error",
    ]
    quiet = await host.call("echo")
    assert (quiet.notices, quiet.streamed) == ((), False)
    wanted, unwanted = (call["params"]["_meta"] for call in modern.heard("tools/call"))
    assert wanted[LEVEL] == "info"
    assert LEVEL not in unwanted


@covers("H-MOD-9", "H-MOD-10", "T-11")
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
async def test_a_host_that_closes_its_stream_cancels_its_request_at_the_server(
    modern: ScriptedServer, bridge: Gateway, method: str
) -> None:
    modern.capabilities |= {"prompts": {}, "resources": {}}
    modern.script["report"] = modern.methods["prompts/get"] = modern.methods["resources/read"] = hold = Hold()
    params = {"tools/call": called("report"), "prompts/get": {"name": "p"}, "resources/read": {"uri": "file:///a"}}
    async with bridge.modern(tasks=False).asking(method, params[method]) as asked:
        async with bounded():
            await hold.begun.wait()
        await asked.leave()
    await modern.leaving(method)
    assert modern.heard("notifications/cancelled") == []


@covers("H-MOD-5", "H-MOD-6")
async def test_a_repeated_argument_crosses_as_the_server_wants_it(modern: ScriptedServer, bridge: Gateway) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "x-mcp-header": "A"}}}
    modern.tools = [{"name": "echo", "inputSchema": schema}]
    answer = await bridge.modern().call("echo", {"a": 42}, headers={"mcp-param-a": "42.0"})
    assert answer.result["structuredContent"] == {"a": 42}
    assert modern.requests[-1].headers["mcp-param-a"] == "42"


@covers("H-MOD-6")
async def test_a_repeated_argument_that_nobody_knows_is_for_the_server(modern: ScriptedServer, bridge: Gateway) -> None:
    await bridge.modern().call("echo", {"a": "x"}, headers={"Mcp-Param-Unknown": "y"})
    assert modern.requests[-1].headers.get("mcp-param-unknown") == "y"
