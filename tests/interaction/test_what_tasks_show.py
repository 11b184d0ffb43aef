"""What an operator sees of tasks in the metrics: how long outcomes lie, who asks whom for what, what nobody fetched."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.waiting import bounded
from interaction.idempotency import upgrade
from interaction.questions import ACCEPTED, ASKED, DONE, ELICIT, ROOTS, SAMPLE, capable
from interaction.queues import narrow

DELIVERED = "taskgate_task_delivery_delay_seconds"
UNDELIVERED = "taskgate_tasks_undelivered_total"
SETTLED = "taskgate_task_input_requests_total"
WAITED = "taskgate_task_input_wait_seconds"
POLLS = "taskgate_task_polls_per_task"
EXPIRED = "taskgate_task_expirations_total"
SECURITY = "taskgate_security_events_total"
PURGING = {"backend": "memory", "purge_interval": "20ms"}
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> ManualClock:
    """Time stands still unless a test says otherwise."""
    return ManualClock()


@pytest.fixture
async def timed(server: ScriptedServer, clock: ManualClock) -> AsyncIterator[Gateway]:
    """A gateway that removes what has expired at once; each call of a modern host is a task."""
    config = configuration({"reports": server.url}, store=PURGING, tasks=upgrade())
    async with serve(config, Environment(clock=clock)) as gateway:
        yield gateway


async def shows(gateway: Gateway, family: str, value: float, **labels: str) -> None:
    """Wait until a scrape shows that much."""
    async with bounded():
        while await gateway.count(family, **labels) != value:
            await asyncio.sleep(0.002)


# --- outcomes --------------------------------------------------------------------------------------------------------


async def test_how_long_an_outcome_lay_is_shown_once_however_often_it_is_fetched(
    timed: Gateway, server: ScriptedServer, clock: ManualClock
) -> None:
    server.script["report"] = hold = Hold()
    host = await timed.greeted()
    task = (await host.start("report"))["taskId"]
    hold.release(DONE)
    await host.until(task, "completed")
    assert await timed.count(f"{DELIVERED}_count") == 0
    clock.advance(timedelta(seconds=40))
    for _ in range(3):
        assert (await host.ask("tasks/result", {"taskId": task})).result["content"] == DONE["content"]
    assert await timed.count(f"{DELIVERED}_count", upstream="reports") == 1
    assert await timed.count(f"{DELIVERED}_sum") == 40
    clock.advance(2 * HOUR)
    await shows(timed, "taskgate_tasks_purged_total", 1, status="completed")
    assert await timed.count(UNDELIVERED) == 0


async def test_a_look_of_the_modern_era_at_a_task_that_has_ended_fetches_its_outcome(timed: Gateway) -> None:
    host = timed.modern()
    task = (await host.start("echo"))["taskId"]
    await host.until(task, "completed")
    await host.task(task)
    assert await timed.count(f"{DELIVERED}_count", upstream="reports") == 1


async def test_that_an_outcome_was_fetched_is_no_news_to_its_host(gateway: Gateway) -> None:
    host = await gateway.greeted()
    async with host.listen() as get:
        task = (await host.start("echo"))["taskId"]
        told = await get.until("notifications/tasks/status")
        assert (told["params"]["taskId"], told["params"]["status"]) == (task, "completed")
        await host.ask("tasks/result", {"taskId": task})
        await shows(gateway, "taskgate_store_operation_duration_seconds_count", 2, operation="swap")
        other = (await host.start("echo"))["taskId"]
        async with bounded():
            while get.of("notifications/tasks/status")[-1]["params"]["taskId"] != other:
                await asyncio.sleep(0.002)
        assert [told["params"]["taskId"] for told in get.of("notifications/tasks/status")] == [task, other]


async def test_what_nobody_fetched_is_shown_when_it_is_removed(timed: Gateway, clock: ManualClock) -> None:
    host = await timed.greeted()
    task = (await host.start("echo"))["taskId"]
    # That it has ended is not what it came to.
    await host.until(task, "completed")
    clock.advance(2 * HOUR)
    await shows(timed, UNDELIVERED, 1, upstream="reports", status="completed")


async def test_an_outcome_that_was_fetched_before_a_restart_is_not_shown_as_fetched_for_the_first_time(
    server: ScriptedServer, tmp_path: Path
) -> None:
    config = configuration({"reports": server.url}, folder=tmp_path, tasks=upgrade())
    async with serve(config) as gateway:
        host = gateway.modern()
        task = (await host.start("echo"))["taskId"]
        await host.until(task, "completed")
        assert await gateway.count(f"{DELIVERED}_count") == 1
    async with serve(config) as gateway:
        host = gateway.modern()
        assert (await host.task(task))["status"] == "completed"
        assert await gateway.count(f"{DELIVERED}_count") == 0


# --- polls -----------------------------------------------------------------------------------------------------------


async def test_how_many_polls_a_task_took_is_shown_when_its_host_sees_that_it_has_ended(
    timed: Gateway, server: ScriptedServer
) -> None:
    server.script["report"] = hold = Hold()
    host = timed.modern()
    task = (await host.start("report"))["taskId"]
    for _ in range(3):
        await host.task(task)
    assert await timed.count(f"{POLLS}_count") == 0
    hold.release(DONE)
    await shows(timed, "taskgate_tasks_finished_total", 1, reason="ok")
    for _ in range(2):
        assert (await host.task(task))["status"] == "completed"
    assert await timed.count(f"{POLLS}_count", upstream="reports") == 1
    assert await timed.count(f"{POLLS}_sum") == 4


# --- questions -------------------------------------------------------------------------------------------------------


async def test_what_becomes_of_each_question_is_shown_and_how_long_its_task_waited(
    gateway: Gateway, tool: TalkingTool
) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask("a-1")
        await host.respond((await stream.until(ELICIT))["id"], ACCEPTED)
        await tool.told("a-1")
        await tool.ask("a-2", SAMPLE, ASKED)
        await host.respond((await stream.until(SAMPLE))["id"], error={"code": -1, "message": "They do not want to"})
        await tool.told("a-2")
        await tool.ask("a-3", ROOTS, {})
        await stream.until(ROOTS)
        await tool.finish(DONE)
        await stream.result()
    for kind, outcome in (("elicitation", "answered"), ("sampling", "declined"), ("roots", "superseded")):
        assert await gateway.count(SETTLED, upstream="reports", kind=kind, outcome=outcome) == 1
    assert await gateway.count(SETTLED) == 3
    assert await gateway.count(f"{WAITED}_count", upstream="reports") == 3


async def test_a_question_that_nobody_answers_is_shown_as_expired(server: ScriptedServer, tool: TalkingTool) -> None:
    config = configuration({"reports": server.url}, tasks={"input_required": {"max_wait": "50ms"}})
    async with serve(config) as gateway:
        host = await capable(gateway)
        await host.start("report")
        await tool.ask("a-1")
        await shows(gateway, SETTLED, 1, kind="elicitation", outcome="expired")
        assert await gateway.count(f"{WAITED}_count") == 1
        await tool.finish(DONE)


async def test_an_answer_to_what_was_never_asked_is_shown_as_suspicious(gateway: Gateway, tool: TalkingTool) -> None:
    host = await capable(gateway)
    task = (await host.start("report"))["taskId"]
    assert (await host.respond(f"{task}.input-1", ACCEPTED)).status == 202
    await shows(gateway, SECURITY, 1, type="input_key_unknown")
    await tool.finish(DONE)


# --- tasks that expire -----------------------------------------------------------------------------------------------


async def test_a_task_that_expires_is_shown_by_what_it_was_at(
    server: ScriptedServer, tool: TalkingTool, clock: ManualClock
) -> None:
    """One works, one waits for its host, and one has not come to its turn."""
    server.script["slow"] = Hold()
    server.tools.append({"name": "slow", "inputSchema": {"type": "object"}})
    two = narrow(server, concurrency=2, wait="24h")
    tasks = {"input_required": {"max_wait": "24h"}, "ttl": {"max": "1h"}}
    config = configuration({}, upstreams=two, store=PURGING, tasks=tasks)
    async with serve(config, Environment(clock=clock)) as gateway:
        host = await capable(gateway)
        asked = (await host.start("report"))["taskId"]
        await tool.ask("a-1")
        await host.until(asked, "input_required")
        await host.start("slow")
        await host.start("slow")
        clock.advance(2 * HOUR)
        for phase in ("queued", "working", "input_required"):
            await shows(gateway, EXPIRED, 1, upstream="reports", phase=phase)
        assert await gateway.count(SETTLED, outcome="expired") == 1
        assert await gateway.count(f"{WAITED}_sum") == HOUR.total_seconds()
