"""Calls that are made twice while the first one waits for its turn at the server: they have one turn between them."""

import asyncio
from typing import Any

import pytest

from helpers.server import ScriptedServer
from helpers.waiting import bounded, eventually
from interaction.queues import DONE, OneByOne, expect_all_given_back, narrowly, queued, refused_in_queue
from interaction.refusals import NEEDED, refused

KEY = "io.taskgate/idempotency-key"


def joins(mode: str, **more: Any) -> dict[str, Any]:
    """The section of tasks with a rule that has retries join."""
    return {"upgrade": [{"tool": "*", "mode": mode, "join_retries": "30s"}], **more}


@pytest.fixture
def slow(server: ScriptedServer) -> OneByOne:
    """The tool `report`, which answers when it is let to."""
    server.script["report"] = slow = OneByOne()
    return slow


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_who_joins_a_call_that_waits_takes_no_place_and_keeps_it_waiting_when_the_first_one_leaves(
    server: ScriptedServer, slow: OneByOne, era: str
) -> None:
    async with narrowly(server, tasks=joins("sync")) as gateway:
        host: Any = gateway.modern(tasks=False) if era == "2026-07-28" else await gateway.greeted(era)
        running = asyncio.create_task(host.call("report", {"n": 0}))
        await slow.comes(1)
        first = asyncio.create_task(host.ask("tools/call", {"name": "report", "arguments": {"n": 1}}, id="f"))
        await queued(gateway, 1)
        second = asyncio.create_task(host.call("report", {"n": 1}))
        async with bounded():
            while not await gateway.count("taskgate_calls_joined_total", how="retry"):
                await asyncio.sleep(0)
        if era == "2025-11-25":
            await host.tell("notifications/cancelled", {"requestId": "f"})
        else:
            first.cancel()
        await asyncio.wait([first])
        await queued(gateway, 1)
        slow.let_all_go()
        async with bounded():
            assert (await second).result["content"] == DONE["content"]
            await running
        assert [each["n"] for each in slow.arrived] == [0, 1]
        await expect_all_given_back(gateway)


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}], ids=["plain", "may be held"])
async def test_all_who_wait_for_a_call_hear_that_it_does_not_come_to_its_turn(
    server: ScriptedServer, slow: OneByOne, capabilities: dict[str, Any]
) -> None:
    async with narrowly(server, wait="200ms", tasks=joins("sync")) as gateway:
        host = gateway.modern(tasks=False, capabilities=capabilities)
        running = asyncio.create_task(host.call("report", {"n": 0}))
        await slow.comes(1)
        calls = [asyncio.create_task(host.call("report", {"n": 1})) for _ in range(2)]
        for call in calls:
            await refused_in_queue(call)
        assert await gateway.count("taskgate_tool_calls_total", disposition="rejected") == 1
        slow.let_all_go()
        async with bounded():
            await running
        assert len(slow.arrived) == 1


async def test_one_that_could_become_a_task_is_refused_and_counted_so_where_its_turn_does_not_come_within_its_grace(
    server: ScriptedServer, slow: OneByOne
) -> None:
    async with narrowly(server, wait="50ms", tasks=joins("auto", inline_grace="1h")) as gateway:
        host = gateway.modern()
        running = asyncio.create_task(host.call("report", {"n": 0}))
        await slow.comes(1)
        await refused_in_queue(host.call("report", {"n": 1}))
        slow.let_all_go()
        async with bounded():
            assert (await running).result["resultType"] == "complete"
        assert await gateway.count("taskgate_tool_calls_total", disposition="rejected") == 1
        assert await gateway.count("taskgate_tool_calls_total", disposition="inline") == 1


async def test_a_joined_call_that_became_a_task_while_it_waited_fails_unsent_where_it_waits_too_long(
    server: ScriptedServer, slow: OneByOne
) -> None:
    async with narrowly(server, wait="300ms", tasks=joins("auto", inline_grace="20ms")) as gateway:
        host = gateway.modern()
        running = await host.start("report", {"n": 0})
        first, second = await asyncio.gather(host.start("report", {"n": 1}), host.start("report", {"n": 1}))
        assert first["taskId"] == second["taskId"]
        error = (await host.until(first["taskId"], "failed"))["error"]
        assert (error["code"], error["data"]["reason"], error["data"]["dispatched"]) == (429, "queue", False)
        slow.let_all_go()
        await host.until(running["taskId"], "completed")
        assert len(slow.arrived) == 1
        await expect_all_given_back(gateway)


async def test_a_host_without_tasks_is_refused_the_call_whose_key_is_that_of_a_task(
    server: ScriptedServer, slow: OneByOne
) -> None:
    tasks = {"upgrade": [{"tool": "*", "mode": "always"}]}
    async with narrowly(server, tasks=tasks) as gateway:
        task = await gateway.modern().start("report", meta={KEY: "k"})
        await slow.comes(1)
        answer = await gateway.modern(tasks=False).call("report", meta={KEY: "k"})
        assert refused(answer, 400, -32021)["data"] == NEEDED
        slow.let_all_go()
        await gateway.modern().until(task["taskId"], "completed")
        await eventually(lambda: len(slow.arrived) == 1)
