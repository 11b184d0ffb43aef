"""Calls of the modern era that wait for their turn at a server with one slot, and may become tasks meanwhile."""

import asyncio

from helpers.server import ScriptedServer
from helpers.waiting import bounded, eventually
from interaction.queues import DONE, OneByOne, begin, expect_all_given_back, narrowly, queued


async def test_a_queued_call_whose_grace_is_over_becomes_a_task_that_keeps_its_place(
    server: ScriptedServer, slow: OneByOne
) -> None:
    async with narrowly(server, tasks={"inline_grace": "50ms"}) as gateway:
        patient, host = gateway.modern(tasks=False), gateway.modern()
        (first,) = begin(patient.call("report", {"n": 0}))
        await slow.comes(1)
        (behind,) = begin(patient.call("report", {"n": 9}))
        await queued(gateway, 1)
        task = await host.start("report", {"n": 1})
        assert (task["status"], task["statusMessage"]) == ("working", "Queued (1 ahead)")
        (later,) = begin(patient.call("report", {"n": 2}))
        await queued(gateway, 3)
        slow.let_all_go()
        assert (await host.until(task["taskId"], "completed"))["result"]["content"] == DONE["content"]
        async with bounded():
            await asyncio.gather(first, behind, later)
        assert [each["n"] for each in slow.arrived] == [0, 9, 1, 2]
        assert await gateway.count("taskgate_tool_calls_total", disposition="task", tool="report") == 1
        await expect_all_given_back(gateway)


async def test_a_queued_call_that_has_its_turn_within_the_grace_is_answered_with_its_result(
    server: ScriptedServer, slow: OneByOne
) -> None:
    async with narrowly(server, tasks={"inline_grace": "1h"}) as gateway:
        host = gateway.modern()
        calls = begin(host.call("report"), host.call("report"))
        await slow.comes(1)
        await queued(gateway, 1)
        slow.let_all_go()
        async with bounded():
            assert [(await call).result["resultType"] for call in calls] == ["complete"] * 2
        assert await gateway.count("taskgate_tasks_started_total") == 0
        await expect_all_given_back(gateway)


async def test_a_queued_call_that_may_not_become_a_task_goes_on_to_wait_in_its_place(
    server: ScriptedServer, slow: OneByOne
) -> None:
    """R-RES-6: its host did not ask for a task, so a cap on tasks refuses nothing."""
    limits = {"rate": [], "concurrency": {"tasks_per_context": 1}}
    async with narrowly(server, tasks={"inline_grace": "20ms"}, limits=limits) as gateway:
        host = gateway.modern()
        first = await host.start("report", {"n": 0})
        (second,) = begin(host.call("report", {"n": 1}))
        await queued(gateway, 1)
        begun = asyncio.get_running_loop().time()
        await eventually(lambda: asyncio.get_running_loop().time() > begun + 0.05)
        slow.let_all_go()
        async with bounded():
            assert (await second).result["resultType"] == "complete"
        await host.until(first["taskId"], "completed")
        await expect_all_given_back(gateway)


async def test_a_host_that_leaves_while_its_queued_call_could_become_a_task_leaves_nothing(
    server: ScriptedServer, slow: OneByOne
) -> None:
    async with narrowly(server, tasks={"inline_grace": "1h"}) as gateway:
        host = gateway.modern()
        (first,) = begin(host.call("report"))
        await slow.comes(1)
        async with host.asking("tools/call", {"name": "report", "arguments": {}}) as asked:
            await queued(gateway, 1)
            await asked.leave()
        await queued(gateway, 0)
        slow.let_all_go()
        async with bounded():
            await first
        assert (len(slow.arrived), await gateway.count("taskgate_tasks_started_total")) == (1, 0)
