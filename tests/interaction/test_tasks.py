"""Tasks from their creation to their end, as a host sees them."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer, error, result, stream
from helpers.waiting import bounded, eventually
from requirements import covers

DONE = {"content": [{"type": "text", "text": "done"}], "structuredContent": {"n": 1}}
RELATED = "io.modelcontextprotocol/related-task"


async def ended(host: Host, id: str) -> dict[str, Any]:
    """The task, once it has ended."""
    await host.ask("tasks/result", {"taskId": id})
    return await host.task(id)


@covers("L-CREATE-1", "L-CREATE-2", "L-GET-1", "L-META-1", "T-3", "I-ISO-4", "T15")
async def test_a_call_with_task_is_answered_at_once_with_a_working_task(server: ScriptedServer, host: Host) -> None:
    server.script["report"] = hold = Hold()
    answer = await host.call("report", {"q": 1}, task={"ttl": 90_000})
    task = answer.result["task"]
    assert not answer.streamed
    assert task == {
        "taskId": task["taskId"],
        "status": "working",
        "createdAt": task["createdAt"],
        "lastUpdatedAt": task["createdAt"],
        "ttl": 3_600_000,
        "pollInterval": 2000,
    }
    assert len(task["taskId"]) == 32
    assert answer.result["_meta"][RELATED] == {"taskId": task["taskId"]}
    age = datetime.now(UTC) - datetime.fromisoformat(task["createdAt"])
    assert 0 <= age.total_seconds() < 30
    assert await host.task(task["taskId"]) == task
    async with bounded():
        await hold.begun.wait()
    hold.release(DONE)
    assert (await ended(host, task["taskId"]))["status"] == "completed"


@covers("L-RES-1", "L-RES-2", "L-RES-3", "T-18", "H-LEG-14")
async def test_the_result_is_waited_for_and_is_the_servers_own(server: ScriptedServer, host: Host) -> None:
    server.script["report"] = hold = Hold()
    task = await host.start("report")
    waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": task["taskId"]}))
    async with bounded():
        await hold.begun.wait()
        assert (await host.task(task["taskId"]))["status"] == "working"
        assert not waiting.done()
        hold.release({**DONE, "_meta": {"mine": 1}})
        answer = await waiting
    assert answer.streamed
    assert answer.result == {**DONE, "_meta": {"mine": 1, RELATED: {"taskId": task["taskId"]}}}


@covers("L-RES-4", "T18")
async def test_a_result_can_be_fetched_by_many_and_again(server: ScriptedServer, host: Host) -> None:
    server.script["report"] = hold = Hold()
    task = await host.start("report")
    asking = [asyncio.create_task(host.ask("tasks/result", {"taskId": task["taskId"]})) for _ in range(10)]
    async with bounded():
        await hold.begun.wait()
        gone = asking.pop()
        gone.cancel()
        await asyncio.wait([gone])
        hold.release(DONE)
        answers = [answer.result for answer in await asyncio.gather(*asking)]
    again = await host.again().ask("tasks/result", {"taskId": task["taskId"]})
    assert not again.streamed
    assert answers == [again.result] * 9


@covers("L-STAT-3", "T-1", "I-ISO-7", "L-RES-2")
async def test_a_tools_error_makes_the_task_failed_and_its_result_still_the_tools(
    server: ScriptedServer, host: Host
) -> None:
    value = {"content": [{"type": "text", "text": "no books"}, {"type": "text", "text": "at all"}], "isError": True}
    server.script["broken"] = result(value)
    task = await host.start("broken")
    last = await ended(host, task["taskId"])
    assert (last["status"], last["statusMessage"]) == ("failed", "no books\nat all")
    answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
    assert {key: answer.result[key] for key in value} == value


@covers("L-STAT-3", "L-RES-2", "L-RES-3", "L-CREATE-6")
async def test_an_error_of_the_server_makes_the_task_failed_and_comes_back_whole(
    server: ScriptedServer, host: Host
) -> None:
    server.script["broken"] = error(-32055, "not today")
    task = await host.start("broken")
    last = await ended(host, task["taskId"])
    assert (last["status"], last["statusMessage"]) == ("failed", "not today")
    assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).error == {
        "code": -32055,
        "message": "not today",
    }


@covers("L-CANCEL-2", "L-RES-5", "L-STAT-2", "T-25")
async def test_a_cancelled_task_stays_cancelled_and_its_server_is_told(
    server: ScriptedServer, gateway: Gateway, host: Host
) -> None:
    server.script["report"] = hold = Hold()
    task = await host.start("report")
    waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": task["taskId"]}))
    async with bounded():
        await hold.begun.wait()
        cancelled = await host.ask("tasks/cancel", {"taskId": task["taskId"]})
        answer = await waiting
    assert cancelled.result["status"] == "cancelled"
    assert cancelled.result["taskId"] == task["taskId"]
    assert answer.error == {"code": -32800, "message": "Task was cancelled"}
    await eventually(lambda: server.cancelled == [hold.turns[0].id])
    hold.release(DONE)
    assert (await host.task(task["taskId"]))["status"] == "cancelled"
    assert await gateway.count("taskgate_task_cancel_requests_total", outcome="propagated") == 1


@covers("L-CANCEL-1")
@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
async def test_an_ended_task_cannot_be_cancelled(server: ScriptedServer, host: Host, how: str) -> None:
    server.script["report"] = {"completed": result(DONE), "failed": error(-1, "no")}.get(how, Hold())
    task = await host.start("report")
    if how == "cancelled":
        await host.ask("tasks/cancel", {"taskId": task["taskId"]})
    last = await ended(host, task["taskId"])
    assert last["status"] == how
    answer = await host.ask("tasks/cancel", {"taskId": task["taskId"]})
    assert (answer.status, answer.code) == (200, -32602)
    assert await host.task(task["taskId"]) == last


@covers("L-CANCEL-4")
async def test_notifications_cancelled_does_nothing_to_a_task(server: ScriptedServer, host: Host) -> None:
    server.script["report"] = hold = Hold()
    answer = await host.ask("tools/call", {"name": "report", "task": {}}, id="create")
    async with bounded():
        await hold.begun.wait()
    await host.tell("notifications/cancelled", {"requestId": "create"})
    assert (await host.task(answer.result["task"]["taskId"]))["status"] == "working"
    assert server.cancelled == []
    hold.release(DONE)


@covers("L-GET-3", "T22")
async def test_only_the_task_id_selects_a_task(server: ScriptedServer, host: Host) -> None:
    first, second = await host.start("echo"), await host.start("echo")
    params = {"taskId": first["taskId"], "_meta": {RELATED: {"taskId": second["taskId"]}}, "task": {}}
    assert (await host.ask("tasks/get", params)).result["taskId"] == first["taskId"]


@covers("T-11", "L-RES-4")
async def test_a_task_goes_on_when_its_session_has_ended_and_another_session_fetches_it(
    server: ScriptedServer, gateway: Gateway, host: Host
) -> None:
    server.script["report"] = hold = Hold()
    task = await host.start("report")
    async with bounded():
        await hold.begun.wait()
    await host.leave()
    other = await gateway.greeted()
    assert (await other.task(task["taskId"]))["status"] == "working"
    assert server.verbs("DELETE") == []
    hold.release(DONE)
    assert (await ended(other, task["taskId"]))["status"] == "completed"
    await eventually(lambda: len(server.verbs("DELETE")) == 1)


@covers("L-NOTIF-1", "L-NOTIF-2", "V-INIT-3", "S-SEC-8")
async def test_the_end_of_a_task_is_told_to_the_session_that_made_it_and_to_no_other(
    server: ScriptedServer, gateway: Gateway, host: Host
) -> None:
    other = await gateway.greeted()
    async with host.listen() as mine, other.listen() as foreign:
        task = await host.start("echo")
        told = await mine.until("notifications/tasks/status")
        fences = await other.start("echo")
        assert (await foreign.until("notifications/tasks/status"))["params"]["taskId"] == fences["taskId"]
    assert told["params"] == await host.task(task["taskId"])
    assert [note["params"]["taskId"] for note in foreign.of("notifications/tasks/status")] == [fences["taskId"]]


async def test_every_one_of_many_cancels_reaches_the_server(server: ScriptedServer) -> None:
    many = 150
    hold = server.script["report"] = Hold()
    limits = {"concurrency": {"tasks_per_context": many}}
    upstreams = {"reports": {"path": "/reports/mcp", "url": server.url, "concurrency": many}}
    async with serve(configuration({}, upstreams=upstreams, limits=limits)) as gateway:
        host = await gateway.greeted()
        tasks = await asyncio.gather(*(host.start("report") for _ in range(many)))
        await eventually(lambda: len(hold.turns) == many)
        await asyncio.gather(*(host.ask("tasks/cancel", {"taskId": task["taskId"]}) for task in tasks))
        await eventually(lambda: len(server.cancelled) == many)
    assert sorted(server.cancelled) == sorted(turn.id for turn in hold.turns)


@covers("L-TOOL-6")
async def test_a_tasks_call_reaches_the_server_without_what_was_meant_for_the_gateway(
    server: ScriptedServer, host: Host
) -> None:
    meta = {"progressToken": "mine", RELATED: {"taskId": "x"}, "kept": 1}
    answer = await host.call("echo", {"a": 1}, task={"ttl": 60_000}, _meta=meta)
    await ended(host, answer.result["task"]["taskId"])
    sent = server.heard("tools/call")[0]["params"]
    # A token of ours, whether the host gave one or not: progress is the task's status message.
    assert isinstance(sent["_meta"].pop("progressToken"), int)
    assert sent == {"name": "echo", "arguments": {"a": 1}, "_meta": {"kept": 1}}


async def test_a_large_result_of_a_task_comes_back_to_the_byte(server: ScriptedServer, host: Host) -> None:
    value = {"content": [{"type": "text", "text": "ü\u2028" * 400_000}]}
    server.script["report"] = stream(value)
    task = await host.start("report")
    assert (await ended(host, task["taskId"]))["status"] == "completed"
    answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
    assert answer.result["content"] == value["content"]
    assert not answer.streamed


async def test_a_large_result_in_a_file_is_told_on_every_stream_as_it_is_fetched(
    server: ScriptedServer, tmp_path: Path
) -> None:
    hold = server.script["report"] = Hold()
    value = {"content": [{"type": "text", "text": "ü\u2028\U0001f600" * 40_000}], "_meta": {"com.example/k": 1}}
    config = configuration({"reports": server.url}, folder=tmp_path)
    async with bounded(), serve(config, data_directory=tmp_path) as gateway:
        host, other = await gateway.greeted(), gateway.modern()
        task = (await host.start("report"))["taskId"]
        async with other.listen(taskIds=[task]) as stream:
            waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": task}))
            await hold.begun.wait()
            hold.release(value)
            answer = await waiting
            told = (await stream.until("notifications/tasks", times=2))["params"]["result"]
        fetched = await host.ask("tasks/result", {"taskId": task})
        shown = (await other.task(task))["result"]
    assert (answer.streamed, fetched.streamed) == (True, False)
    assert answer.result == fetched.result
    assert fetched.result["content"] == told["content"] == shown["content"] == value["content"]
    assert told == shown == {"resultType": "complete", **value}


async def test_a_result_that_is_too_large_makes_the_task_failed(server: ScriptedServer) -> None:
    server.script["report"] = result({"content": [{"type": "text", "text": "x" * 5000}]})
    async with serve(configuration({"reports": server.url}, tasks={"max_result": "4KiB"})) as gateway:
        host = await gateway.greeted()
        task = await host.start("report")
        assert (await ended(host, task["taskId"]))["status"] == "failed"
        error_ = (await host.ask("tasks/result", {"taskId": task["taskId"]})).error
    assert error_["data"] == {"origin": "upstream", "reason": "too_large", "dispatched": True}
