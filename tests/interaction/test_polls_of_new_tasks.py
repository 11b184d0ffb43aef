"""A poll of a new task waits for its end, and then the interval grows with the age: quick tools are quick as tasks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host, both_eras
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.waiting import bounded
from interaction.idempotency import start_with_key, upgrade
from interaction.questions import CAPABLE, DONE, ELICIT
from requirements import covers

GRACE = 10.0
"""Seconds that a poll may wait where it is not to end by itself."""
ACTIVE = "http_server_active_requests"
FIELD = {"legacy": "pollInterval", "modern": "pollIntervalMs"}


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


@asynccontextmanager
async def polled(server: ScriptedServer, grace: str = "10s", **sections: Any) -> AsyncIterator[Gateway]:
    """A gateway with tasks of every call, whose polls wait so long."""
    tasks = {**upgrade(), "poll_grace": grace, "poll_interval": {"jitter": 0}}
    async with serve(configuration({"reports": server.url}, tasks=tasks, **sections)) as gateway:
        yield gateway


def now() -> float:
    """The time of the loop, in seconds."""
    return asyncio.get_running_loop().time()


async def waiting(gateway: Gateway, host: Host, task: str) -> asyncio.Task[dict[str, Any]]:
    """A poll that has come to the gateway, and waits there."""
    before = await gateway.count(ACTIVE, http_route="mcp")
    poll = asyncio.create_task(host.task(task))
    await gateway.shows(ACTIVE, before + 1, http_route="mcp")
    return poll


# --- until when it waits ----------------------------------------------------------------------------------------------


@both_eras
async def test_a_poll_of_a_new_task_waits_until_it_has_ended(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with polled(server) as gateway:
        host = await gateway.greeted(era=era)
        task, begun = await start_with_key(host, None), now()
        poll = await waiting(gateway, host, task)
        hold.release(DONE)
        async with bounded():
            found = await poll
        assert (found["status"], now() - begun < GRACE / 2) == ("completed", True)
        if era == "modern":
            assert found["result"]["content"] == DONE["content"]
        assert await gateway.counts("taskgate_task_polls_total", "result") == {"terminal": 1}


@both_eras
async def test_it_waits_until_the_task_is_half_a_second_old_and_no_longer(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    config = configuration({"reports": server.url}, tasks={**upgrade(), "poll_interval": {"jitter": 0}})
    async with serve(config) as gateway:
        host = await gateway.greeted(era=era)
        begun, task = now(), await start_with_key(host, None)
        found = await host.task(task)
        assert (found["status"], 0.45 <= now() - begun < 1) == ("working", True)
        assert 255 <= found[FIELD[era]] < 500
        begun = now()
        assert (await host.task(task))["status"] == "working"
        assert now() - begun < 0.25
        # How quickly polls are answered is watched: a wait on purpose is no trouble.
        labels = {"mcp_method_name": "tasks/get"}
        assert await gateway.count("mcp_server_operation_duration_seconds_count", **labels) == 2
        assert await gateway.count("mcp_server_operation_duration_seconds_sum", **labels) < 0.25


@both_eras
async def test_it_waits_until_the_task_asks_its_host(server: ScriptedServer, tool: TalkingTool, era: str) -> None:
    async with polled(server) as gateway:
        host = await gateway.greeted(era=era, capabilities=CAPABLE)
        poll = await waiting(gateway, host, await start_with_key(host, None))
        await tool.ask("q")
        async with bounded(GRACE / 2):
            assert (await poll)["status"] == "input_required"


async def test_news_of_the_task_do_not_end_the_wait(server: ScriptedServer, tool: TalkingTool) -> None:
    async with polled(server) as gateway:
        host = await gateway.greeted()
        poll = await waiting(gateway, host, await start_with_key(host, None))
        await tool.note("notifications/progress", progressToken=tool.called.token, progress=1)
        await tool.finish(DONE)
        async with bounded():
            assert (await poll)["status"] == "completed"


@both_eras
async def test_it_ends_when_the_task_is_cancelled(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with polled(server) as gateway:
        host = await gateway.greeted(era=era)
        task = await start_with_key(host, None)
        poll = await waiting(gateway, host, task)
        await host.cancel(task)
        async with bounded(GRACE / 2):
            assert (await poll)["status"] == "cancelled"


@both_eras
async def test_without_grace_no_poll_waits(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with polled(server, "0s") as gateway:
        host = await gateway.greeted(era=era)
        task, begun = await start_with_key(host, None), now()
        found = await host.task(task)
        assert (found["status"], found[FIELD[era]], now() - begun < 0.1) == ("working", 100, True)


async def test_a_task_that_waits_for_an_answer_is_polled_at_once(server: ScriptedServer, tool: TalkingTool) -> None:
    async with polled(server) as gateway:
        host = await gateway.greeted(capabilities=CAPABLE)
        task = await start_with_key(host, None)
        async with host.asking("tasks/result", {"taskId": task}) as stream:
            await tool.ask("q")
            await stream.until(ELICIT)
            async with bounded(GRACE / 2):
                assert (await host.task(task))["status"] == "input_required"


# --- what bounds the waits --------------------------------------------------------------------------------------------


@covers("T41")
@both_eras
async def test_beyond_the_limit_of_waits_a_poll_is_answered_at_once_and_not_refused(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    limits = {"rate": [], "concurrency": {"waits_per_context": 1}}
    async with polled(server, limits=limits) as gateway:
        host = await gateway.greeted(era=era)
        task = await start_with_key(host, None)
        poll = await waiting(gateway, host, task)
        async with bounded(GRACE / 2):
            assert (await host.task(task))["status"] == "working"
        assert await gateway.counts("taskgate_cap_rejections_total", "cap") == {}
        hold.release(DONE)
        async with bounded():
            assert (await poll)["status"] == "completed"


@covers("T41")
async def test_a_host_that_leaves_gives_its_wait_back(server: ScriptedServer, hold: Hold) -> None:
    limits = {"rate": [], "concurrency": {"waits_per_context": 1}}
    async with polled(server, limits=limits) as gateway:
        host = await gateway.greeted()
        task = await start_with_key(host, None)
        before = await gateway.count(ACTIVE, http_route="mcp")
        gone = await waiting(gateway, host, task)
        gone.cancel()
        await gateway.shows(ACTIVE, before, http_route="mcp")
        wait = asyncio.create_task(host.ask("tasks/result", {"taskId": task}))
        await gateway.shows(ACTIVE, before + 1, http_route="mcp")
        hold.release(DONE)
        async with bounded():
            assert (await wait).result["content"] == DONE["content"]
        # A poll whose answer has no reader is not counted.
        assert await gateway.count("taskgate_task_polls_total") == 0


async def test_a_gateway_that_ends_answers_polls_that_wait(server: ScriptedServer, hold: Hold) -> None:
    async with polled(server) as gateway:
        host = await gateway.greeted()
        poll = await waiting(gateway, host, await start_with_key(host, None))
        closing = asyncio.create_task(gateway.drain())
        async with bounded(GRACE / 2):
            assert (await poll)["status"] in {"working", "failed"}
            await closing
