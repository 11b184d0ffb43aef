"""Hosts of the legacy era before a server of the modern one: what each is told of the other, in what words."""

from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.host import Host, both_eras
from helpers.modern_schema import CAPABILITIES, CLIENT, LEVEL, VERSION
from helpers.server import Hold, ScriptedServer, error, note, stream
from helpers.waiting import bounded, eventually
from interaction.bridges import DONE, bridge, modern
from requirements import covers

__all__ = ["bridge", "modern"]

MIRRORED = {"type": "object", "properties": {"where": {"type": "string", "x-mcp-header": "Where"}}}


@pytest.fixture
async def host(bridge: Gateway) -> Host:
    """A host of 2025-11-25 with an open session."""
    return await bridge.greeted()


@covers("V-INIT-1", "V-DISC-6", "B-CONV-1", "V-ERA-5", "T-17")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_host_is_welcomed_with_what_the_server_says_of_itself(
    modern: ScriptedServer, bridge: Gateway, revision: str
) -> None:
    modern.capabilities = {"tools": {"listChanged": True}, "logging": {}, "extensions": {"org.example/x": {}}}
    welcome = await bridge.host().initialize(revision)
    tasks = welcome["capabilities"].pop("tasks", None)
    assert (tasks is not None) == (revision == "2025-11-25")
    assert welcome["capabilities"] == {"tools": {"listChanged": True}, "logging": {}}
    assert (welcome["protocolVersion"], welcome["instructions"]) == (revision, "Do as the script says.")
    assert welcome["serverInfo"] == modern.info
    assert not {"ttlMs", "cacheScope", "resultType", "supportedVersions"} & set(welcome)


@covers("V-META-8", "B-CONV-5", "H-MOD-1")
@pytest.mark.parametrize(
    ("revision", "declared", "told"),
    [
        ("2025-11-25", {}, {}),
        ("2025-11-25", {"elicitation": {}}, {"elicitation": {"form": {}}}),
        ("2025-11-25", {"elicitation": {"form": {}, "url": {}}}, {"elicitation": {"form": {}, "url": {}}}),
        ("2025-06-18", {"elicitation": {}}, {"elicitation": {"form": {}}}),
        ("2025-11-25", {"roots": {"listChanged": True}, "sampling": {}}, {"roots": {}, "sampling": {}}),
        ("2025-11-25", {"tasks": {"list": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}, {}),
    ],
)
async def test_every_request_declares_what_the_host_of_the_session_can_do(
    modern: ScriptedServer, bridge: Gateway, revision: str, declared: dict[str, Any], told: dict[str, Any]
) -> None:
    host = bridge.host()
    await host.initialize(revision, capabilities=declared)
    await host.call("echo")
    await host.ask("tools/list")
    for method in ("tools/call", "tools/list"):
        meta = modern.heard(method)[-1]["params"]["_meta"]
        assert (meta[VERSION], meta[CAPABILITIES]) == ("2026-07-28", told)
        assert meta[CLIENT]["name"]
    heads = [request.headers for request in modern.requests]
    assert all("mcp-session-id" not in head for head in heads)


@covers("B-CONV-2", "T-29")
async def test_tools_are_listed_as_the_revision_of_the_host_has_them(modern: ScriptedServer, bridge: Gateway) -> None:
    plain = {"inputSchema": {"type": "object"}}
    modern.tools = [
        {"name": "object", **plain, "outputSchema": {"type": "object", "properties": {"a": True}}},
        {"name": "array", **plain, "outputSchema": {"type": "array", "items": {"type": "string"}}},
        {"name": "mirrored", "inputSchema": MIRRORED},
    ]
    listed = (await (await bridge.greeted()).ask("tools/list")).result
    assert not {"ttlMs", "cacheScope", "resultType"} & set(listed)
    tools = {tool["name"]: tool for tool in listed["tools"]}
    assert list(tools) == ["object", "array", "mirrored"]
    assert "outputSchema" not in tools["array"]
    assert tools["object"]["outputSchema"] == {"type": "object", "properties": {"a": {}}}
    assert all(tool["execution"] == {"taskSupport": "optional"} for tool in tools.values())
    older = (await (await bridge.greeted("2025-06-18")).ask("tools/list")).result["tools"]
    assert all("execution" not in tool for tool in older)


@covers("H-MOD-5")
@both_eras
async def test_a_tool_that_wants_its_arguments_repeated_wrongly_is_not_offered(
    modern: ScriptedServer, bridge: Gateway, era: str
) -> None:
    unsound = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "no good"}}}
    modern.tools = [{"name": "sound", "inputSchema": MIRRORED}, {"name": "unsound", "inputSchema": unsound}]
    host = await bridge.greeted(era=era)
    assert [tool["name"] for tool in (await host.ask("tools/list")).result["tools"]] == ["sound"]


@covers("H-MOD-5", "H-MOD-3", "B-CONV-1")
@pytest.mark.parametrize("where", ["here", "zu Köln", " edge ", "=?base64?eA==?=", None])
async def test_a_call_repeats_its_arguments_in_headers_where_the_tool_wants_them(
    modern: ScriptedServer, host: Host, where: str | None
) -> None:
    modern.tools = [{"name": "näme", "inputSchema": MIRRORED}]
    answer = await host.call("näme", {"where": where})
    assert answer.result == {"content": [], "structuredContent": {"where": where}}
    assert ("mcp-param-where" in modern.requests[-1].headers) == (where is not None)


@covers("H-MOD-7")
async def test_a_server_that_refuses_repeated_arguments_has_its_tools_read_anew(
    modern: ScriptedServer, host: Host
) -> None:
    assert (await host.call("echo", {"where": "here"})).result["structuredContent"] == {"where": "here"}
    modern.tools = [{"name": "echo", "inputSchema": MIRRORED}]
    assert (await host.call("echo", {"where": "there"})).result["structuredContent"] == {"where": "there"}
    modern.faults.clear()


@covers("B-CONV-1", "B-CONV-3", "B-CONV-9", "V-META-7")
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"content": []}, {"content": []}),
        (
            {"content": [], "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}, "own": 1}},
            {"content": [], "_meta": {"own": 1}},
        ),
        ({"content": [], "structuredContent": {"a": 1}}, {"content": [], "structuredContent": {"a": 1}}),
        ({"content": [], "structuredContent": [1]}, {"content": [{"type": "text", "text": "[1]"}]}),
    ],
)
async def test_a_result_is_what_a_host_of_2025_11_25_can_read(
    modern: ScriptedServer, host: Host, said: dict[str, Any], shown: dict[str, Any]
) -> None:
    modern.script["echo"] = stream(said)
    assert (await host.call("echo")).result == shown
    task = (await host.start("echo"))["taskId"]
    fetched = (await host.ask("tasks/result", {"taskId": task})).result
    meta = fetched.pop("_meta")
    meta.pop("io.modelcontextprotocol/related-task")
    assert fetched | ({"_meta": meta} if meta else {}) == shown


@covers("V-META-7")
@pytest.mark.parametrize("kind", ["task", "odd"])
async def test_a_result_of_a_type_that_does_not_exist_is_a_failure(
    modern: ScriptedServer, host: Host, kind: str
) -> None:
    modern.script["echo"] = stream({"resultType": kind, "taskId": "x", "content": []})
    assert (await host.call("echo")).code == -32603


@covers("B-CONV-8", "V-ERA-9")
@pytest.mark.parametrize(
    ("code", "status", "told"),
    [(-32602, 200, -32602), (-32602, 400, -32602), (-32000, 200, -32000), (7, 200, 7), (-32021, 400, -32603)],
)
async def test_an_error_of_the_server_means_the_same_to_a_host_of_the_other_era(
    modern: ScriptedServer, host: Host, code: int, status: int, told: int
) -> None:
    modern.script["echo"] = error(code, "no", status=status)
    answer = await host.call("echo")
    assert answer.code == told
    if told != code:
        assert answer.error["data"]["upstreamCode"] == code
    assert len(modern.heard("tools/call")) == 1


@covers("V-INIT-5", "H-MOD-10")
async def test_what_the_server_does_not_know_stays_with_the_gateway(modern: ScriptedServer, host: Host) -> None:
    assert (await host.ask("ping")).result == {}
    assert (await host.tell("notifications/roots/list_changed")).status == 202
    await host.call("echo")
    await host.leave()
    heard = {request.message["method"] for request in modern.requests}
    assert heard <= {"initialize", "server/discover", "tools/list", "tools/call", "subscriptions/listen"}
    assert {request.verb for request in modern.requests} == {"POST"}


@covers("L-PROG-2", "M-PROG-1", "B-CONV-9")
async def test_progress_crosses_under_the_hosts_own_token(modern: ScriptedServer, host: Host) -> None:
    modern.script["echo"] = stream(DONE, progress=3)
    answer = await host.call("echo", _meta={"progressToken": "mine", "traceparent": "t", "own": 1})
    assert [each["params"] for each in answer.notices] == [{"progressToken": "mine", "progress": n} for n in (1, 2, 3)]
    meta = modern.heard("tools/call")[0]["params"]["_meta"]
    assert (meta["traceparent"], meta["own"]) == ("t", 1)
    assert meta["progressToken"] != "mine"


@covers("M-LOG-1", "V-META-9")
async def test_the_level_of_a_session_goes_with_every_request_and_its_log_comes_back(
    modern: ScriptedServer, bridge: Gateway
) -> None:
    modern.capabilities["logging"] = {}
    host = await bridge.greeted()
    line = note("notifications/message", level="warning", data="careful")
    await host.call("echo")
    assert LEVEL not in modern.heard("tools/call")[-1]["params"]["_meta"]
    assert (await host.ask("logging/setLevel", {"level": "notice"})).result == {}
    modern.script["echo"] = stream(DONE, before=[line])
    answer = await host.call("echo")
    assert modern.heard("tools/call")[-1]["params"]["_meta"][LEVEL] == "notice"
    assert answer.notices == (line,)
    assert modern.heard("logging/setLevel") == []


@covers("M-SUB-2", "M-NOTIF-3", "V-META-9")
async def test_news_of_the_server_reach_the_stream_of_a_session(modern: ScriptedServer, host: Host) -> None:
    async with host.listen() as heard:
        await modern.listens.opened()
        await modern.push(note("notifications/tools/list_changed"))
        told = await heard.until("notifications/tools/list_changed")
    assert told.get("params", {}) in ({}, {"_meta": {}})


@covers("M-SUB-2", "M-SUB-1")
async def test_a_resource_is_subscribed_to_by_listening_to_it(modern: ScriptedServer, bridge: Gateway) -> None:
    modern.capabilities["resources"] = {"subscribe": True}
    host = await bridge.greeted()
    wanted = [{"uri": "file:///a"}, {"uri": "file:///b"}]
    async with host.listen() as heard:
        for each in wanted:
            assert (await host.ask("resources/subscribe", each)).result == {}
        uris = {each["uri"] for each in wanted}
        await eventually(
            lambda: set().union(*(wish.get("resourceSubscriptions", ()) for wish in modern.listens.filters)) == uris
        )
        await modern.push(note("notifications/resources/updated", uri="file:///b"))
        told = await heard.until("notifications/resources/updated")
        assert told["params"]["uri"] == "file:///b"
        assert (await host.ask("resources/unsubscribe", wanted[0])).result == {}
        await eventually(
            lambda: (
                set().union(*(wish.get("resourceSubscriptions", ()) for wish in modern.listens.filters))
                == {"file:///b"}
            )
        )
    assert modern.heard("resources/subscribe") == []


@covers("H-MOD-10", "T-25")
async def test_a_call_is_cancelled_by_closing_its_stream(modern: ScriptedServer, host: Host) -> None:
    modern.script["report"] = hold = Hold()
    async with host.asking("tools/call", {"name": "report", "arguments": {}}, id="mine"):
        async with bounded():
            await hold.begun.wait()
        await host.tell("notifications/cancelled", {"requestId": "mine"})
        await modern.leaving("tools/call")
    assert modern.heard("notifications/cancelled") == []


@covers("H-MOD-10", "L-CANCEL-2", "T-25")
async def test_a_task_is_cancelled_by_closing_the_stream_of_its_call(modern: ScriptedServer, host: Host) -> None:
    modern.script["report"] = hold = Hold()
    task = (await host.start("report"))["taskId"]
    async with bounded():
        await hold.begun.wait()
    assert (await host.ask("tasks/cancel", {"taskId": task})).result["status"] == "cancelled"
    await modern.leaving("tools/call")
    assert modern.heard("notifications/cancelled") == []


@covers("H-LEG-10", "T-11", "H-LEG-12")
async def test_a_host_that_drops_its_connection_leaves_the_servers_stream_open(
    modern: ScriptedServer, host: Host
) -> None:
    modern.script["report"] = hold = Hold()
    async with host.asking("tools/call", {"name": "report", "arguments": {}}), bounded():
        await hold.begun.wait()
    assert (await host.ask("ping")).result == {}
    assert (await host.call("echo")).result["content"] == []
    assert modern.left == []
    hold.release(DONE)
    await host.call("echo")
    assert modern.left == []


@covers("M-CREATE-3", "L-CREATE-1", "L-RES-2")
async def test_a_call_runs_as_a_task_on_one_open_stream(modern: ScriptedServer, host: Host) -> None:
    modern.script["report"] = hold = Hold()
    task = (await host.start("report", {"a": 1}))["taskId"]
    async with bounded():
        await hold.begun.wait()
    assert modern.left == []
    hold.release(DONE)
    assert (await host.ask("tasks/result", {"taskId": task})).result["content"] == DONE["content"]
    assert len(modern.heard("tools/call")) == 1


async def test_a_server_that_needs_what_the_host_lacks_is_a_failure_that_says_so(
    modern: ScriptedServer, host: Host
) -> None:
    async def needy(turn: Any) -> Any:
        return await error(-32021, "no", {"requiredCapabilities": {"sampling": {}}}, status=400)(turn)

    modern.script["echo"] = needy
    answer = await host.call("echo")
    assert (answer.code, answer.error["data"]["upstreamCode"]) == (-32603, -32021)
