"""Hosts of the modern era before a server of the initialize one: what is offered to them, and how calls end."""

from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import called
from helpers.modern_schema import SERVER, TASKS
from helpers.server import Hold, ScriptedServer, error, stream
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import eventually
from interaction.questions import DONE
from interaction.refusals import refused
from requirements import covers

RESULT = {"content": [], "structuredContent": {"a": 1}}
COMPLETION = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "b"}}
AT_ONCE = {"inline_grace": "0s"}


def rules(mode: str) -> dict[str, Any]:
    return {"upgrade": [{"tool": "*", "mode": mode}]}


async def initialized(server: ScriptedServer) -> list[dict[str, Any]]:
    """What each session was opened with."""
    return [message["params"] for message in server.heard("initialize")]


# --- discovery and lists ----------------------------------------------------------------------------------------------


@covers("V-DISC-1", "V-DISC-5", "V-META-3", "V-CACHE-1", "T-23")
async def test_discovery_tells_what_the_server_said_when_it_was_met(server: ScriptedServer, gateway: Gateway) -> None:
    server.capabilities = {"tools": {"listChanged": True}, "logging": {}, "tasks": {"list": {}, "cancel": {}}}
    found = await gateway.modern().discover()
    assert found["supportedVersions"] == ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
    assert found["capabilities"] == {"tools": {"listChanged": True}, "logging": {}, "extensions": {TASKS: {}}}
    assert found["instructions"] == "Do as the script says."
    assert found["_meta"][SERVER] == server.info
    assert found["ttlMs"] >= 0


@covers("V-DISC-4", "M-NEG-6")
async def test_where_no_call_becomes_a_task_there_is_no_extension(server: ScriptedServer) -> None:
    async with serve(configuration({"reports": server.url}, tasks=rules("sync"))) as gateway:
        host = gateway.modern()
        assert "extensions" not in (await host.discover())["capabilities"]
        refused(await host.ask("tasks/get", {"taskId": "A" * 32}), 404, -32601)


@covers("B-CONV-1", "B-CONV-2", "V-CACHE-1", "V-CACHE-2", "V-META-3", "V-LIST-1", "T-23")
async def test_tools_are_listed_without_what_this_era_does_not_have(server: ScriptedServer, gateway: Gateway) -> None:
    server.page_size = 1
    tool = {"name": "echo", "inputSchema": {"type": "object"}, "icons": [], "annotations": {"readOnlyHint": True}}
    server.tools = [
        {**tool, "execution": {"taskSupport": "optional"}},
        {"name": "b", "inputSchema": {"type": "object"}},
    ]
    host = gateway.modern()
    listed = (await host.ask("tools/list")).result
    assert listed["tools"] == [tool]
    assert (listed["ttlMs"], listed["cacheScope"]) == (0, "private")
    rest = (await host.ask("tools/list", {"cursor": listed["nextCursor"]})).result
    assert ([each["name"] for each in rest["tools"]], rest["cacheScope"]) == (["b"], "private")


@covers("V-CACHE-1", "B-CONV-10", "V-META-6")
@pytest.mark.parametrize(
    ("method", "params", "said", "kept"),
    [
        ("prompts/list", {}, {"prompts": []}, True),
        ("prompts/get", {"name": "p"}, {"messages": []}, False),
        ("resources/list", {}, {"resources": []}, True),
        ("resources/templates/list", {}, {"resourceTemplates": []}, True),
        ("resources/read", {"uri": "file:///a"}, {"contents": []}, True),
        ("completion/complete", COMPLETION, {"completion": {"values": []}}, False),
    ],
)
async def test_whatever_else_a_server_offers_is_served(
    server: ScriptedServer,
    gateway: Gateway,
    method: str,
    params: dict[str, Any],
    said: dict[str, Any],
    kept: bool,
) -> None:
    server.capabilities |= {"prompts": {}, "resources": {}, "completions": {}}
    server.methods[method] = stream(said)
    result = (await gateway.modern().ask(method, params)).result
    assert {name: result[name] for name in said} == said
    assert ({"ttlMs", "cacheScope"} <= set(result)) == kept


# --- sessions with the server -----------------------------------------------------------------------------------------


@covers("B-CONV-4", "V-META-8")
@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({}, {}),
        (
            {"elicitation": {"form": {}}, "sampling": {"tools": {}}},
            {"elicitation": {"form": {}}, "sampling": {"tools": {}}},
        ),
        ({"roots": {"listChanged": True}}, {"roots": {}}),
        ({"tasks": {"list": {}}, "extensions": {"org.example/x": {}}}, {}),
    ],
)
async def test_a_server_is_declared_what_the_request_declares(
    server: ScriptedServer, gateway: Gateway, declared: dict[str, Any], told: dict[str, Any]
) -> None:
    await gateway.modern(capabilities=declared).call("echo")
    (opened,) = await initialized(server)
    assert (opened["protocolVersion"], opened["capabilities"]) == ("2025-11-25", told)


@covers("T-28", "U-HTTP-1", "V-META-4")
async def test_requests_that_can_do_the_same_share_a_session_and_no_others_do(
    server: ScriptedServer, issuer: TokenIssuer
) -> None:
    async with serve(guarded({"reports": server.url}, issuer)) as gateway:
        alice, bob = (gateway.modern(token=issuer.token(gateway.url(), subject=name)) for name in ("alice", "bob"))
        for _ in range(2):
            await alice.call("echo")
        await alice.call("echo", capabilities={"roots": {}})
        await bob.call("echo")
    calls = [each for each in server.requests if each.message and each.message.get("method") == "tools/call"]
    sessions = [each.headers["mcp-session-id"] for each in calls]
    assert sessions[0] == sessions[1]
    assert len(set(sessions)) == 3
    assert len(await initialized(server)) == 3


# --- calls ------------------------------------------------------------------------------------------------------------


@covers("M-CREATE-1", "M-NEG-2", "V-META-6", "V-META-3")
@pytest.mark.parametrize("tasks", [True, False])
async def test_a_quick_call_is_answered_plainly(server: ScriptedServer, gateway: Gateway, tasks: bool) -> None:
    result = (await gateway.modern(tasks=tasks).call("echo", {"a": 1})).result
    assert {name: value for name, value in result.items() if name != "_meta"} == {**RESULT, "resultType": "complete"}
    assert await gateway.count("taskgate_tasks_started_total") == 0


@covers("M-CREATE-1", "M-CREATE-2", "M-CREATE-3", "M-GET-1", "M-GET-2", "M-GET-6", "T-2", "T-3", "T-14")
async def test_a_slow_call_becomes_a_task(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    async with serve(configuration({"reports": server.url}, tasks=AT_ONCE)) as gateway:
        host = gateway.modern()
        made = await host.start("report", {"a": 1})
        assert made["status"] == "working"
        found = [await host.task(made["taskId"]) for _ in range(2)]
        assert found[0] == found[1]
        assert {name: found[0][name] for name in ("taskId", "createdAt", "ttlMs")} == {
            name: made[name] for name in ("taskId", "createdAt", "ttlMs")
        }
        hold.release(RESULT)
        done = await host.until(made["taskId"], "completed")
    assert done["result"] == {**RESULT, "resultType": "complete"}
    assert len(server.heard("tools/call")) == 1


@covers("M-NEG-2", "V-DISC-4", "T-8")
@pytest.mark.parametrize("mode", ["auto", "always"])
async def test_without_the_extension_a_slow_call_blocks(server: ScriptedServer, mode: str) -> None:
    server.script["report"] = hold = Hold()
    async with serve(configuration({"reports": server.url}, tasks={**rules(mode), **AT_ONCE})) as gateway:
        host = gateway.modern()
        await host.start("report")
        async with host.asking("tools/call", called("report"), capabilities={}) as asked:
            await eventually(lambda: len(hold.turns) == 2)
            hold.release(DONE)
            assert (await asked.answer()).result["content"] == DONE["content"]


@covers("M-NEG-3", "V-META-5")
async def test_a_tool_that_must_be_a_task_is_refused_to_who_can_have_none(server: ScriptedServer) -> None:
    async with serve(configuration({"reports": server.url}, tasks=rules("required"))) as gateway:
        answer = await gateway.modern(tasks=False).call("echo")
        needed = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        assert refused(answer, 400, -32021)["data"] == needed
        assert server.heard("tools/call") == []
        assert (await gateway.modern().start("echo"))["status"] == "working"


@covers("R-RES-6", "M-CREATE-1")
async def test_over_the_cap_a_call_that_may_be_a_task_blocks(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    limits = {"concurrency": {"tasks_per_context": 1}}
    async with serve(configuration({"reports": server.url}, tasks=AT_ONCE, limits=limits)) as gateway:
        host = gateway.modern()
        task = (await host.start("report"))["taskId"]
        async with host.asking("tools/call", called("report")) as asked:
            await eventually(lambda: len(hold.turns) == 2)
            hold.release(DONE)
            assert (await asked.answer()).result["resultType"] == "complete"
        await host.until(task, "completed")


@covers("B-CONV-8", "T-24", "V-ERA-9")
@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        (-32602, 200, -32602),
        (-32601, 404, -32601),
        (-32603, 200, -32603),
        (-32002, 200, -32602),
        (-32042, 200, -32603),
        (-32021, 200, -32603),
        (-32077, 200, -32603),
        (-32000, 200, -32000),
        (12, 200, 12),
    ],
)
async def test_an_error_of_the_server_is_told_under_a_code_of_this_era(
    server: ScriptedServer, gateway: Gateway, code: int, status: int, told: int
) -> None:
    server.script["echo"] = error(code, "no")
    seen = refused(await gateway.modern().call("echo"), status, told)
    if told == -32603 != code:
        assert seen["data"]["upstreamCode"] == code


@covers("M-GET-3", "T-1", "T-24")
@pytest.mark.parametrize(("code", "told"), [(-32602, -32602), (-32002, -32602), (-32042, -32603)])
async def test_an_error_ends_a_task_as_failed(server: ScriptedServer, code: int, told: int) -> None:
    server.script["echo"] = error(code, "no such period")
    async with serve(configuration({"reports": server.url}, tasks=rules("always"))) as gateway:
        host = gateway.modern()
        task = await host.until((await host.start("echo"))["taskId"], "failed")
    assert (task["error"]["code"], "result" in task) == (told, False)
    assert "no such period" in task["statusMessage"]
