"""What a server of the legacy era tells of a call of the modern one, and what it is told when that is over."""

from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host, called
from helpers.modern_schema import LEVEL
from helpers.server import Hold, ScriptedServer, TalkingTool, note, stream
from helpers.waiting import bounded, eventually
from interaction.questions import DONE
from requirements import covers

RESULT = {"content": [], "structuredContent": {"a": 1}}
INFO = {"name": "scripted", "version": "1"}
AT_ONCE = {"inline_grace": "0s"}


def rules(mode: str) -> dict[str, Any]:
    return {"upgrade": [{"tool": "*", "mode": mode}]}


@covers("M-PROG-1", "L-PROG-2", "H-MOD-13")
async def test_progress_comes_under_the_token_of_the_request(server: ScriptedServer, gateway: Gateway) -> None:
    server.script["echo"] = stream(RESULT, progress=3)
    host = gateway.modern(tasks=False)
    answer = await host.call("echo", meta={"progressToken": "mine"})
    assert [each["params"] for each in answer.notices] == [{"progressToken": "mine", "progress": n} for n in (1, 2, 3)]
    plain = await host.call("echo")
    assert (plain.notices, plain.streamed) == ((), False)


@covers("M-NOTIF-5", "M-PROG-1")
async def test_progress_of_a_task_is_its_status_message(server: ScriptedServer, tool: TalkingTool) -> None:
    async with serve(configuration({"reports": server.url}, tasks=rules("always"))) as gateway:
        host = gateway.modern()
        task = (await host.start("report", meta={"progressToken": "mine"}))["taskId"]
        async with bounded():
            await tool.begun.wait()
        async with host.listen(taskIds=[task]) as heard:
            token = tool.called.token
            await tool.note("notifications/progress", progressToken=token, progress=3, total=10, message="fetching")
            async with bounded():
                while "fetching" not in (await host.task(task)).get("statusMessage", ""):
                    pass
            await tool.finish(DONE)
            await host.until(task, "completed")
            await eventually(lambda: heard.heard[-1]["params"].get("status") == "completed")
    assert {each["method"] for each in heard.heard[1:]} == {"notifications/tasks"}


@covers("M-LOG-1", "M-LOG-2", "T-16")
async def test_log_lines_come_to_the_request_that_wanted_them_and_as_loud_as_it_did(
    server: ScriptedServer, gateway: Gateway
) -> None:
    server.capabilities["logging"] = {}
    levels = ("debug", "notice", "error")
    lines = [note("notifications/message", level=level, data=level) for level in levels]
    server.script["echo"] = stream(RESULT, before=lines)
    host = gateway.modern(tasks=False)
    heard = {}
    for wanted in ("debug", "notice", "emergency", None):
        answer = await host.call("echo", meta={} if wanted is None else {LEVEL: wanted})
        heard[wanted] = tuple(each["params"]["level"] for each in answer.notices)
    assert heard == {"debug": levels, "notice": levels[1:], "emergency": (), None: ()}
    asked = [message["params"] for message in server.heard("logging/setLevel")]
    assert [params["level"] for params in asked] == ["debug"]


@covers("M-LOG-1")
async def test_a_log_line_of_no_request_is_for_nobody(
    server: ScriptedServer, gateway: Gateway, tool: TalkingTool
) -> None:
    server.capabilities["logging"] = {}
    host = gateway.modern(tasks=False)
    calling = host.asking("tools/call", called("report"), meta={LEVEL: "debug"})
    async with host.listen(toolsListChanged=True) as heard, calling as asked:
        async with bounded():
            await tool.begun.wait()
        await server.streaming()
        await server.push(note("notifications/message", level="error", data="whose?"))
        await server.push(note("notifications/tools/list_changed"))
        await heard.until("notifications/tools/list_changed")
        await tool.finish(DONE)
        assert (await asked.answer()).notices == ()
    assert len(heard.heard) == 2


# --- leaving and cancelling ----------------------------------------------------------------------------------------


@covers("H-MOD-9", "T-25", "T-11")
@pytest.mark.parametrize("tasks", [True, False])
async def test_a_host_that_closes_its_stream_has_its_call_cancelled(
    server: ScriptedServer, gateway: Gateway, tasks: bool
) -> None:
    server.script["report"] = hold = Hold()
    async with gateway.modern(tasks=tasks).asking("tools/call", called("report")) as asked:
        async with bounded():
            await hold.begun.wait()
        await asked.leave()
    (call,) = server.heard("tools/call")
    await eventually(lambda: server.cancelled == [call["id"]])
    assert await gateway.count("taskgate_tasks_started_total") == 0


@covers("H-MOD-9", "M-CANCEL-1", "M-CANCEL-2", "M-CANCEL-3", "T-5", "T-25")
async def test_a_task_outlives_its_request_and_ends_at_its_cancel(server: ScriptedServer) -> None:
    server.script["report"] = hold = Hold()
    async with serve(configuration({"reports": server.url}, tasks=AT_ONCE)) as gateway:
        host = gateway.modern()
        task = (await host.start("report"))["taskId"]
        async with bounded():
            await hold.begun.wait()
        await host.post(
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
            {"MCP-Protocol-Version": "2026-07-28"},
        )
        assert (await host.task(task))["status"] == "working"
        assert server.cancelled == []
        assert set((await host.cancel(task)).result) == {"resultType", "_meta"}
        assert (await host.task(task))["status"] == "cancelled"
        await eventually(lambda: server.cancelled == [server.heard("tools/call")[0]["id"]])
        assert set((await host.cancel(task)).result) == {"resultType", "_meta"}


# --- listening --------------------------------------------------------------------------------------------------------


@covers("M-SUB-1", "M-NOTIF-2", "M-NOTIF-3", "M-NOTIF-7")
async def test_resources_are_subscribed_to_once_for_all_who_listen(server: ScriptedServer, gateway: Gateway) -> None:
    server.capabilities["resources"] = {"subscribe": True, "listChanged": True}
    host: Host = gateway.modern()
    uri = {"resourceSubscriptions": ["file:///a"]}
    async with host.listen(**uri) as first:
        async with host.listen(**uri, resourcesListChanged=True) as second:
            assert first.heard[0]["params"]["notifications"] == uri
            await server.streaming()
            await server.push(
                note("notifications/resources/updated", uri="file:///b"),
                note("notifications/resources/updated", uri="file:///a"),
                note("notifications/resources/list_changed"),
            )
            await second.until("notifications/resources/list_changed")
            await first.until("notifications/resources/updated")
            assert len(server.heard("resources/subscribe")) == 1
        assert server.heard("resources/unsubscribe") == []
    await eventually(lambda: len(server.heard("resources/unsubscribe")) == 1)
    assert [each["params"]["uri"] for each in second.of("notifications/resources/updated")] == ["file:///a"]
    assert first.of("notifications/resources/list_changed") == []


@covers("H-MOD-9")
@pytest.mark.parametrize("tasks", [True, False])
@pytest.mark.parametrize("slow", ["initialize", "tools/list"])
async def test_a_host_that_leaves_while_the_server_is_met_has_no_call_made(
    server: ScriptedServer, gateway: Gateway, slow: str, tasks: bool
) -> None:
    server.sessions = False
    server.methods[slow] = hold = Hold()
    host = gateway.modern(tasks=tasks)
    async with host.asking("tools/call", called("echo")) as asked:
        async with bounded():
            await hold.begun.wait()
        await asked.leave()
    # Another request of the same host is answered after the gateway has heard that the first was left.
    assert (await gateway.modern(capabilities={"roots": {}}).ask("tasks/get", {"taskId": "A" * 32})).code == -32602
    welcome = {"protocolVersion": "2025-11-25", "capabilities": server.capabilities, "serverInfo": INFO}
    hold.release(welcome if slow == "initialize" else {"tools": server.tools})
    await host.call("report")
    assert [call["params"]["name"] for call in server.heard("tools/call")] == ["report"]
    assert await gateway.count("taskgate_tasks_started_total") == 0


@covers("H-HTTP-6", "H-MOD-13")
@pytest.mark.parametrize(
    ("method", "params", "slow"),
    [
        ("tools/call", called("echo"), "tools/list"),
        ("server/discover", {}, "initialize"),
        ("prompts/list", {}, "initialize"),
    ],
)
async def test_a_host_that_waits_for_the_server_to_be_met_is_kept_alive(
    server: ScriptedServer, method: str, params: dict[str, Any], slow: str
) -> None:
    server.sessions = False
    server.methods[slow] = hold = Hold()
    server.methods["prompts/list"] = stream({"prompts": []})
    config = configuration({"reports": server.url}, server={"sse_keepalive": "20ms"})
    async with serve(config) as gateway, gateway.modern().asking(method, params) as asked:
        await asked.kept_waiting()
        welcome = {"protocolVersion": "2025-11-25", "capabilities": server.capabilities, "serverInfo": INFO}
        hold.release(welcome if slow == "initialize" else {"tools": server.tools})
        assert (await asked.answer()).result["resultType"] == "complete"
