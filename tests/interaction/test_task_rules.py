"""Which calls become tasks, for how long and how many: the operator's rules, as hosts meet them."""

from datetime import timedelta
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.host.host import Host
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer, error, status
from helpers.waiting import bounded, eventually
from requirements import covers

DONE = {"content": [{"type": "text", "text": "done"}]}
MODES = {"sync": "forbidden", "auto": "optional", "always": "optional", "required": "required"}


def rules(**modes: str) -> dict[str, Any]:
    """A rule for each tool, in this order."""
    return {"upgrade": [{"tool": tool, "mode": mode} for tool, mode in modes.items()]}


@covers("L-TOOL-1")
@pytest.mark.parametrize(("mode", "support"), MODES.items())
async def test_a_tool_tells_its_task_support_by_its_mode(server: ScriptedServer, mode: str, support: str) -> None:
    server.tools = [{"name": "report", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}]
    async with serve(configuration({"reports": server.url}, tasks=rules(report=mode, other="auto"))) as gateway:
        new, old = await gateway.greeted(), await gateway.greeted("2025-06-18")
        listed = (await new.ask("tools/list")).result["tools"]
        seen_by_old = (await old.ask("tools/list")).result["tools"]
    assert [tool["execution"]["taskSupport"] for tool in listed] == [support]
    assert [tool.get("execution") for tool in seen_by_old] == [None]


@covers("L-TOOL-1", "L-TOOL-6")
async def test_what_a_tool_of_a_server_without_tasks_says_of_them_means_nothing(
    server: ScriptedServer, host: Host
) -> None:
    server.tools = [{"name": "native", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}]
    assert (await host.ask("tools/list")).result["tools"][0]["execution"] == {"taskSupport": "optional"}
    assert (await host.call("native", {"a": 1})).result["structuredContent"] == {"a": 1}
    assert ["task" in call["params"] for call in server.heard("tools/call")] == [False]


@covers("L-TOOL-2", "L-CREATE-5")
async def test_a_task_for_a_tool_that_forbids_it_is_refused(server: ScriptedServer) -> None:
    config = configuration({"reports": server.url}, tasks=rules(echo="sync", report="auto"))
    async with serve(config) as gateway:
        host = await gateway.greeted()
        answer = await host.call("echo", task={})
        plain = await host.call("echo", {"a": 1})
    assert (answer.status, answer.code) == (200, -32601)
    assert plain.result["structuredContent"] == {"a": 1}


@covers("L-TOOL-3")
async def test_a_tool_that_must_be_a_task_is_refused_when_called_plainly(server: ScriptedServer) -> None:
    async with serve(configuration({"reports": server.url}, tasks=rules(echo="required"))) as gateway:
        new, old = await gateway.greeted(), await gateway.greeted("2025-06-18")
        refused = await new.call("echo")
        assert (await old.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
        assert (await new.start("echo"))["status"] == "working"
    assert (refused.status, refused.code) == (200, -32601)
    assert len(server.heard("tools/call")) <= 2


@covers("L-TOOL-4", "L-TOOL-3")
async def test_where_every_tool_must_be_a_task_each_is_refused_in_the_same_way(server: ScriptedServer) -> None:
    rule = {"upgrade": [{"tool": "*", "mode": "required"}]}
    async with serve(configuration({"reports": server.url}, tasks=rule)) as gateway:
        host = await gateway.greeted()
        assert [(await host.call(tool)).code for tool in ("echo", "report", "unknown")] == [-32601] * 3
    assert server.heard("tools/call") == []


@covers("L-TOOL-5")
async def test_a_session_without_tasks_has_task_ignored(server: ScriptedServer, gateway: Gateway) -> None:
    old = await gateway.greeted("2025-06-18")
    answer = await old.call("echo", {"a": 1}, task={"ttl": 1})
    assert answer.result["structuredContent"] == {"a": 1}
    assert "task" not in server.heard("tools/call")[0]["params"]
    assert (await old.ask("tasks/get", {"taskId": "a" * 32})).code == -32601


@covers("L-CREATE-5")
async def test_a_task_for_a_tool_that_is_not_listed_is_refused_and_nothing_stored(
    server: ScriptedServer, gateway: Gateway, host: Host
) -> None:
    answer = await host.call("unknown", task={})
    text = 'Unknown tool "unknown": tools/list has the tools of this server'
    assert (answer.status, answer.error) == (200, {"code": -32602, "message": text})
    assert server.heard("tools/call") == []
    assert await gateway.count("taskgate_tasks_started_total") == 0


async def test_who_mistypes_a_tool_is_told_which_one_it_may_have_meant(host: Host) -> None:
    told = {name: (await host.call(name, task={})).error["message"] for name in ("reprot", 'r"\u202eeport', "x" * 128)}
    assert told == {
        "reprot": 'Unknown tool "reprot": did you mean "report"?',
        'r"\u202eeport': 'Unknown tool "r\'\ufffdeport": did you mean "report"?',
        "x" * 128: f'Unknown tool "{"x" * 128}": tools/list has the tools of this server',
    }


async def test_the_catalogue_is_read_again_when_the_server_says_that_it_changed(
    server: ScriptedServer, host: Host
) -> None:
    assert (await host.call("new", task={})).code == -32602
    server.tools = [*server.tools, {"name": "new", "inputSchema": {"type": "object"}}]
    await server.streaming()
    await server.push({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    async with bounded():
        while "error" in ((await host.call("new", task={})).message or {}):
            pass


@pytest.mark.parametrize("reply", [error(-32603, "no"), status(500)], ids=["error", "500"])
async def test_a_catalogue_that_cannot_be_read_refuses_the_task_and_stores_nothing(
    server: ScriptedServer, gateway: Gateway, host: Host, reply: Any
) -> None:
    server.methods["tools/list"] = reply
    answer = await host.call("echo", task={})
    assert (answer.status, answer.code) == (200, -32603)
    assert server.heard("tools/call") == []
    assert await gateway.count("taskgate_tasks_started_total") == 0


@covers("L-CREATE-3", "R-RES-2")
@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        pytest.param({}, 1_800_000, id="nothing"),
        pytest.param({"ttl": None}, 1_800_000, id="null"),
        pytest.param({"ttl": 0}, 60_000, id="zero"),
        pytest.param({"ttl": 59_999}, 60_000, id="below"),
        pytest.param({"ttl": 61_000}, 61_000, id="within"),
        pytest.param({"ttl": 3_600_001}, 3_600_000, id="above"),
        pytest.param({"ttl": 10**30}, 3_600_000, id="enormous"),
    ],
)
async def test_a_ttl_is_brought_within_what_the_operator_allows(
    server: ScriptedServer, asked: dict[str, Any], granted: int
) -> None:
    ttl = {"ttl": {"default": "30m", "min": "1m", "max": "1h"}}
    async with serve(configuration({"reports": server.url}, tasks=ttl)) as gateway:
        host = await gateway.greeted()
        assert (await host.start("echo", **asked))["ttl"] == granted


@covers("L-TTL-1", "L-TTL-2", "R-RES-3", "L-GET-2")
@pytest.mark.parametrize("finished", [True, False])
async def test_an_expired_task_is_gone_and_its_call_ended(
    server: ScriptedServer, clock: ManualClock, finished: bool
) -> None:
    hold = server.script["report"] = Hold()
    ttl = {"min": "1m", "max": "1m", "default": "1m"}
    config = configuration({"reports": server.url}, store={"purge_interval": "20ms"}, tasks={"ttl": ttl})
    async with serve(config, Environment(clock=clock)) as gateway:
        host = await gateway.greeted()
        task = await host.start("echo" if finished else "report", ttl=60_000)
        if finished:
            await host.ask("tasks/result", {"taskId": task["taskId"]})
        clock.advance(timedelta(milliseconds=59_999))
        assert (await host.task(task["taskId"]))["ttl"] == 60_000
        clock.advance(timedelta(milliseconds=1))
        gone = await host.ask("tasks/get", {"taskId": task["taskId"]})
        unknown = await host.ask("tasks/get", {"taskId": "A" * 32})
        assert gone.error == unknown.error == {"code": -32602, "message": "Task not found"}
        async with bounded():
            while not await gateway.count("taskgate_tasks_purged_total"):
                pass
        assert await gateway.count("taskgate_task_expirations_total") == (0 if finished else 1)
        if not finished:
            await eventually(lambda: server.cancelled == [hold.turns[0].id])


@covers("L-CANCEL-3", "L-TTL-2")
async def test_a_cancelled_task_is_kept_until_its_time_is_over(server: ScriptedServer, clock: ManualClock) -> None:
    server.script["report"] = Hold()
    ttl = {"min": "1m", "keep": "1m"}
    config = configuration({"reports": server.url}, store={"purge_interval": "20ms"}, tasks={"ttl": ttl})
    async with serve(config, Environment(clock=clock)) as gateway:
        host = await gateway.greeted()
        task, short = await host.start("report", ttl=120_000), await host.start("echo", ttl=60_000)
        await host.ask("tasks/cancel", {"taskId": task["taskId"]})
        await host.ask("tasks/result", {"taskId": short["taskId"]})
        clock.advance(timedelta(milliseconds=119_999))
        # Whatever is purged by now, is gone.
        async with bounded():
            while not await gateway.count("taskgate_tasks_purged_total"):
                pass
        assert (await host.ask("tasks/get", {"taskId": short["taskId"]})).code == -32602
        assert (await host.task(task["taskId"]))["status"] == "cancelled"
        clock.advance(timedelta(milliseconds=1))
        assert (await host.ask("tasks/get", {"taskId": task["taskId"]})).code == -32602


@covers("L-CREATE-3", "L-TTL-1", "L-GET-1")
async def test_no_time_to_live_ends_a_call_that_runs(server: ScriptedServer, clock: ManualClock) -> None:
    """With the defaults: of a host that names a minute, and of one that names nothing."""
    hold = server.script["report"] = Hold()
    config = configuration({"reports": server.url}, store={"purge_interval": "20ms"})
    async with serve(config, Environment(clock=clock)) as gateway:
        host, other = await gateway.greeted(), gateway.modern()
        tasks = [await host.start("report", ttl=60_000), await host.start("report")]
        assert [task["ttl"] for task in tasks] == [3_600_000] * 2
        ended = await host.start("echo")
        await host.ask("tasks/result", {"taskId": ended["taskId"]})
        clock.advance(timedelta(minutes=61))
        await gateway.counted("taskgate_tasks_purged_total")
        for task in tasks:
            shown = await host.task(task["taskId"])
            assert (shown["status"], shown["ttl"]) == ("working", 5_400_000)
            assert (await other.task(task["taskId"]))["ttlMs"] == 5_400_000
        hold.release(DONE)
        for task in tasks:
            assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == DONE["content"]
            assert (await host.task(task["taskId"]))["ttl"] == 61 * 60_000 + 30 * 60_000
        # From the end on it is there for half an hour.
        clock.advance(timedelta(minutes=29, seconds=59))
        assert (await host.task(tasks[0]["taskId"]))["status"] == "completed"
        clock.advance(timedelta(seconds=1))
        assert (await host.ask("tasks/get", {"taskId": tasks[0]["taskId"]})).code == -32602


@covers("R-RES-1")
async def test_unfinished_tasks_are_capped_and_a_finished_one_makes_room(server: ScriptedServer) -> None:
    hold = server.script["report"] = Hold()
    config = configuration({"reports": server.url}, limits={"concurrency": {"tasks_per_context": 2}})
    async with serve(config) as gateway:
        host, other = await gateway.greeted(), await gateway.greeted()
        first = await host.start("report")
        await host.start("report")
        refused = await other.call("report", task={})
        assert (refused.status, refused.code, refused.headers["Retry-After"]) == (200, 429, "2")
        assert refused.error["data"] == {
            "origin": "gateway",
            "reason": "concurrency",
            "limit": 2,
            "scope": "context",
            "retryAfterMs": 2000,
        }
        await host.ask("tasks/cancel", {"taskId": first["taskId"]})
        await other.start("report")
        hold.release({"content": []})


@covers("L-GET-2")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
@pytest.mark.parametrize("id", ["A" * 32, "", "x", "A" * 10_000, "é", 7, None, ["A" * 32], "A" * 31 + " "])
async def test_every_id_that_is_no_task_gets_the_same_answer(host: Host, method: str, id: object) -> None:
    answer = await host.ask(method, {"taskId": id})
    assert (answer.status, answer.error) == (200, {"code": -32602, "message": "Task not found"})


@covers("I-ISO-6")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_a_task_of_one_mount_is_unknown_at_another(server: ScriptedServer, method: str) -> None:
    async with serve(configuration({"reports": server.url, "other": server.url})) as gateway:
        mine, other = await gateway.greeted(mount="reports"), await gateway.greeted(mount="other")
        task = await mine.start("echo")
        answer = await other.ask(method, {"taskId": task["taskId"]})
        assert answer.error == {"code": -32602, "message": "Task not found"}
        await gateway.counted("taskgate_task_access_denials_total", mcp_method_name=method, reason="not_found")


@covers("L-CAP-2", "I-ISO-4")
async def test_tasks_are_not_listed(host: Host) -> None:
    assert (await host.ask("tasks/list")).code == -32601
