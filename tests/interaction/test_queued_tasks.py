"""Tasks that wait for their turn at a server: what their hosts see of it, and what becomes of them."""

import asyncio
from pathlib import Path
from typing import Any

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.server import ScriptedServer
from helpers.stored_tasks import stored_tasks
from helpers.waiting import bounded
from interaction.falls import falling, leave_one_sent
from interaction.queues import DONE, OneByOne, expect_all_given_back, narrow, narrowly, queued
from requirements import covers

ALWAYS: dict[str, Any] = {"upgrade": [{"tool": "*", "mode": "always"}]}


async def says(host: Any, task: str, told: str) -> None:
    """Wait until a task of a modern host says that."""
    async with bounded():
        while (await host.task(task)).get("statusMessage") != told:
            await asyncio.sleep(0.005)


async def test_a_queued_task_works_and_tells_its_place_until_its_call_leaves(
    server: ScriptedServer, slow: OneByOne
) -> None:
    async with narrowly(server, tasks=ALWAYS) as gateway:
        legacy, host = await gateway.greeted(), gateway.modern()
        first = await legacy.start("report")
        assert "statusMessage" not in first
        await slow.comes(1)
        second, third = await legacy.start("report"), await host.start("report")
        assert (second["status"], second["statusMessage"]) == ("working", "Queued (0 ahead)")
        assert (third["status"], third["statusMessage"]) == ("working", "Queued (1 ahead)")
        slow.let_go()
        await slow.comes(2)
        await says(host, third["taskId"], "Queued (0 ahead)")
        running_one = await legacy.task(second["taskId"])
        assert (running_one["status"], "statusMessage" in running_one) == ("working", False)
        slow.let_go()
        await slow.comes(3)
        assert "statusMessage" not in await host.task(third["taskId"])
        slow.let_go()
        assert (await host.until(third["taskId"], "completed"))["result"]["content"] == DONE["content"]
        await expect_all_given_back(gateway)


async def test_the_age_of_the_oldest_task_is_shown_until_it_has_ended(server: ScriptedServer, slow: OneByOne) -> None:
    shown = "taskgate_task_oldest_age_seconds"
    async with narrowly(server, tasks=ALWAYS) as gateway:
        host = await gateway.greeted()
        assert f"\n{shown}{{" not in await gateway.metrics()
        await host.start("report")
        await slow.comes(1)
        first = await gateway.count(shown, upstream="reports")
        async with bounded():
            while await gateway.count(shown, upstream="reports") <= first:
                await asyncio.sleep(0.005)
        slow.let_go()
        async with bounded():
            while f"\n{shown}{{" in await gateway.metrics():
                await asyncio.sleep(0.005)


async def test_only_what_is_with_the_server_is_shown_as_running(server: ScriptedServer, slow: OneByOne) -> None:
    shown = 'taskgate_tasks_running{upstream="reports"}'
    async with narrowly(server, tasks=ALWAYS) as gateway:
        host = await gateway.greeted()
        await host.start("report")
        await slow.comes(1)
        waiting = await host.start("report")
        assert f"{shown} 1.0" in await gateway.metrics()
        await host.ask("tasks/cancel", {"taskId": waiting["taskId"]})
        slow.let_go()
        async with bounded():
            while f"{shown} 0.0" not in await gateway.metrics():
                await asyncio.sleep(0.005)


async def test_a_queued_task_is_cancelled_at_once_and_nothing_of_it_is_sent(
    server: ScriptedServer, slow: OneByOne
) -> None:
    async with narrowly(server, tasks=ALWAYS) as gateway:
        host = await gateway.greeted()
        first = await host.start("report", {"n": 0})
        await slow.comes(1)
        second, third = await host.start("report", {"n": 1}), await host.start("report", {"n": 2})
        cancelled = await host.ask("tasks/cancel", {"taskId": second["taskId"]})
        assert cancelled.result["status"] == "cancelled"
        await queued(gateway, 1)
        slow.let_all_go()
        for task in (first, third):
            async with bounded():
                assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == DONE["content"]
        assert [each["n"] for each in slow.arrived] == [0, 2]
        assert server.cancelled == []


async def test_a_task_that_waits_too_long_fails_with_429_unsent_however_long_it_may_run(
    server: ScriptedServer, slow: OneByOne
) -> None:
    async with narrowly(server, wait="50ms", tasks=ALWAYS) as gateway:
        host = await gateway.greeted()
        first = await host.start("report")
        await slow.comes(1)
        late = await host.start("report")
        async with bounded():
            error = (await host.ask("tasks/result", {"taskId": late["taskId"]})).error
        assert (error["code"], error["data"]["origin"], error["data"]["reason"]) == (429, "gateway", "queue")
        assert error["data"]["dispatched"] is False
        assert (await host.task(late["taskId"]))["status"] == "failed"
        # Running is another matter than waiting.
        assert (await host.task(first["taskId"]))["status"] == "working"
        slow.let_all_go()
        async with bounded():
            await host.ask("tasks/result", {"taskId": first["taskId"]})
        assert len(slow.arrived) == 1


async def test_a_task_is_refused_where_no_more_may_wait(server: ScriptedServer, slow: OneByOne) -> None:
    async with narrowly(server, size=1, tasks=ALWAYS) as gateway:
        host = await gateway.greeted()
        tasks = [await host.start("report") for _ in range(2)]
        await slow.comes(1)
        refused = await host.call("report", task={})
        assert (refused.status, refused.code, refused.error["data"]["reason"]) == (200, 429, "queue")
        assert await gateway.count("taskgate_tasks_started_total") == 2
        slow.let_all_go()
        for task in tasks:
            async with bounded():
                await host.ask("tasks/result", {"taskId": task["taskId"]})


async def test_a_deadline_ends_a_call_and_does_not_count_while_it_waits(server: ScriptedServer, slow: OneByOne) -> None:
    rules = {"upgrade": [{"tool": "report", "mode": "always", "deadline": "300ms"}]}
    async with narrowly(server, tasks=rules) as gateway:
        host = await gateway.greeted()
        tasks = [await host.start("report") for _ in range(2)]
        for task in tasks:
            async with bounded():
                error = (await host.ask("tasks/result", {"taskId": task["taskId"]})).error
            assert error["message"] == "The call took longer than its deadline"
            assert (error["data"]["reason"], error["data"]["dispatched"]) == ("timeout", True)
        assert len(slow.arrived) == 2
        await expect_all_given_back(gateway)


async def test_a_stop_ends_queued_tasks_unsent_where_running_ones_are_not_waited_for(
    server: ScriptedServer, slow: OneByOne, tmp_path: Path
) -> None:
    drain = {"drain": {"delay": "0s", "timeout": "2s", "running_tasks": "fail"}}
    config = configuration({}, upstreams=narrow(server), tasks=ALWAYS, server=drain | {"listen": "127.0.0.1:0"})
    async with serve(config) as gateway:
        host = await gateway.greeted()
        await host.start("report")
        await slow.comes(1)
        late = await host.start("report")
        waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": late["taskId"]}))
        await gateway.metrics()
        async with bounded():
            await gateway.drain()
            answer = await waiting
    assert answer.error["data"] == {"origin": "gateway", "reason": "shutdown", "dispatched": False}
    assert len(slow.arrived) == 1


# --- after a fall -----------------------------------------------------------------------------------------------------


async def test_after_a_fall_queued_tasks_run_in_their_turn_however_many_there_are(
    server: ScriptedServer, slow: OneByOne, tmp_path: Path
) -> None:
    async with falling(server, tmp_path, tasks=ALWAYS) as gateway:
        host = gateway.modern()
        _, *unsent = await leave_one_sent(server, tmp_path, *[host] * 7)
    config = configuration({}, upstreams=narrow(server, size=2), folder=tmp_path)
    async with serve(config) as gateway:
        host = gateway.modern()
        await slow.comes(1)
        await queued(gateway, 5)
        slow.let_all_go()
        for task in unsent:
            await host.until(task, "completed")
        assert len(slow.arrived) == 6
        await expect_all_given_back(gateway)


@covers("S-SEC-9")
async def test_after_a_fall_what_may_have_run_runs_again_only_where_its_rule_says_so(
    server: ScriptedServer, slow: OneByOne, tmp_path: Path
) -> None:
    rules = [{"tool": "report", "mode": "always", "on_lost": "rerun"}, {"tool": "*", "mode": "always"}]
    async with falling(server, tmp_path, upstreams=narrow(server, concurrency=2), tasks={"upgrade": rules}) as gateway:
        host = gateway.modern()
        (again,) = await leave_one_sent(server, tmp_path, host)
        (lost,) = await leave_one_sent(server, tmp_path, host, tool="echo")
    slow.let_all_go()
    config = configuration({"reports": server.url}, folder=tmp_path)
    async with serve(config) as gateway:
        host = gateway.modern()
        assert (await host.until(again, "completed"))["result"]["content"] == DONE["content"]
        assert (await host.until(lost, "failed"))["error"]["data"]["reason"] == "call_lost"
        assert await gateway.count("taskgate_task_recoveries_total", outcome="retried") == 1
    assert len(slow.arrived) == 1


async def test_a_rule_that_reruns_what_was_lost_is_kept_with_the_task_and_counts_once(
    server: ScriptedServer, slow: OneByOne, tmp_path: Path
) -> None:
    rules = {"upgrade": [{"tool": "report", "mode": "always", "on_lost": "rerun"}]}
    async with falling(server, tmp_path, tasks=rules) as gateway:
        task = (await (await gateway.greeted()).start("report"))["taskId"]
        await slow.comes(1)
        assert stored_tasks(tmp_path / "fallen")[task][3:8] == (True, [], {}, None, 1)
    async with falling(server, tmp_path / "next", begins_with=tmp_path) as gateway:
        await slow.comes(2)
        assert stored_tasks(tmp_path / "next" / "fallen")[task].reruns == 0
    slow.let_all_go()
    async with serve(configuration({"reports": server.url}, folder=tmp_path / "next")) as gateway:
        await gateway.modern().until(task, "failed")
    assert len(slow.arrived) == 2
