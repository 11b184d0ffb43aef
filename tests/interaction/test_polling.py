"""How often hosts ask for their tasks: what they are advised in every answer, and who is refused in the end."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.host.host import both_eras
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded
from interaction.idempotency import call_with_key, start_with_key, upgrade
from interaction.questions import DONE
from requirements import covers

BURST = 20
"""How often a task may be asked for at once, whatever its interval."""
EVEN = {"poll_interval": {"jitter": 0, "min": "2s"}, "poll_grace": "0s"}
"""No interval varies, and a new task is polled as any other."""
FIELD = {"legacy": "pollInterval", "modern": "pollIntervalMs"}


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


@pytest.fixture
def clock() -> ManualClock:
    """Time stands still unless a test says otherwise."""
    return ManualClock()


def tasks(**more: Any) -> dict[str, Any]:
    """The tasks section: every call that can be is a task."""
    return {**upgrade(), **EVEN, "early_poll": {"reject_above": 10}, **more}


@pytest.fixture
async def gateway(server: ScriptedServer, clock: ManualClock) -> AsyncIterator[Gateway]:
    """A gateway that advises two seconds while its server has nothing to do."""
    config = configuration({"reports": server.url}, tasks=tasks())
    async with serve(config, Environment(clock=clock)) as gateway:
        yield gateway


# --- the advice ------------------------------------------------------------------------------------------------------


@both_eras
async def test_an_idle_server_and_a_new_task_have_the_interval_of_the_operator(
    gateway: Gateway, hold: Hold, era: str
) -> None:
    host = await gateway.greeted(era=era)
    answer = (await call_with_key(host, None)).result
    created = answer if era == "modern" else answer["task"]
    assert created[FIELD[era]] == 2000
    assert (await host.task(created["taskId"]))[FIELD[era]] == 2000
    assert await gateway.count("taskgate_poll_interval_seconds", upstream="reports") == 2


@both_eras
async def test_the_advice_grows_with_the_age_of_the_task(
    gateway: Gateway, hold: Hold, clock: ManualClock, era: str
) -> None:
    host = await gateway.greeted(era=era)
    task = await start_with_key(host, None)
    clock.advance(timedelta(minutes=5))
    assert (await host.task(task))[FIELD[era]] == 5000


async def test_a_retry_that_gets_the_task_of_its_call_is_advised_as_on_a_poll(
    server: ScriptedServer, hold: Hold, clock: ManualClock
) -> None:
    joined = {**tasks(), **upgrade("auto", join_retries="10m"), "inline_grace": "0s"}
    async with serve(configuration({"reports": server.url}, tasks=joined), Environment(clock=clock)) as gateway:
        host = await gateway.greeted(era="modern")
        task = await start_with_key(host, None)
        clock.advance(timedelta(minutes=5))
        again = (await call_with_key(host, None)).result
        assert (again["taskId"], again["pollIntervalMs"]) == (task, 5000)


@both_eras
async def test_with_jitter_no_two_answers_are_quite_the_same(
    server: ScriptedServer, hold: Hold, clock: ManualClock, era: str
) -> None:
    config = configuration({"reports": server.url}, tasks={**upgrade(), "poll_interval": {"jitter": 0.1}})
    async with serve(config, Environment(clock=clock)) as gateway:
        host = await gateway.greeted(era=era)
        task = await start_with_key(host, None)
        clock.advance(timedelta(seconds=5))
        # The burst is counted in the interval of each poll: with chance in it, fewer polls may be refused.
        told = [(await host.task(task))[FIELD[era]] for _ in range(BURST // 2)]
    assert len(set(told)) > BURST / 4
    # The base of 2 s and a hundredth of the age, a tenth less or more.
    assert all(1845 <= interval <= 2255 for interval in told)


@both_eras
async def test_where_it_is_not_adaptive_every_answer_says_the_same(
    server: ScriptedServer, hold: Hold, clock: ManualClock, era: str
) -> None:
    fixed = {"base": "3s", "adaptive": False}
    config = configuration({"reports": server.url}, tasks={**upgrade(), "poll_interval": fixed})
    async with serve(config, Environment(clock=clock)) as gateway:
        host = await gateway.greeted(era=era)
        task = await start_with_key(host, None)
        clock.advance(timedelta(minutes=5))
        assert (await host.task(task))[FIELD[era]] == 3000


async def test_under_load_every_answer_and_notification_about_a_task_advises_more(
    server: ScriptedServer, issuer: TokenIssuer, hold: Hold
) -> None:
    busy = {"path": "/reports/mcp", "url": server.url, "concurrency": 2}
    config = guarded({}, issuer, upstreams={"reports": busy}, tasks=tasks())
    async with serve(config) as gateway:
        token = issuer.token(gateway.url())
        session, modern = await gateway.greeted(token=token), gateway.modern(token=token)
        first = await session.start("report")
        assert 2000 <= first["pollInterval"] < 2300
        # Two run and one waits: one and a half times of what the server may have, twice of what it should.
        second = await modern.start("report")
        third = await modern.start("report")
        # What grows with the age is little, as long as nobody waits for minutes.
        assert 9183 <= third["pollIntervalMs"] < 9500
        told = (await session.task(first["taskId"]))["pollInterval"]
        assert 9183 <= told < 9500
        # A list tells what each was told last, until that time is over.
        found = (await session.ask("tasks/list")).result["tasks"]
        advised = {task["taskId"]: task["pollInterval"] for task in found}
        assert advised == {
            first["taskId"]: told,
            second["taskId"]: second["pollIntervalMs"],
            third["taskId"]: third["pollIntervalMs"],
        }
        async with modern.listen(taskIds=[third["taskId"]]) as listening:
            seen = await listening.until("notifications/tasks")
            assert 9183 <= seen["params"]["pollIntervalMs"] < 9500


async def test_a_notification_to_a_session_advises_too(gateway: Gateway, clock: ManualClock, tool: TalkingTool) -> None:
    host = await gateway.greeted()
    async with host.listen() as listening:
        await host.start("report")
        async with bounded():
            await tool.begun.wait()
        clock.advance(timedelta(minutes=5))
        await tool.note("notifications/progress", progressToken=tool.called.token, progress=1)
        seen = await listening.until("notifications/tasks/status")
        assert (seen["params"]["statusMessage"], seen["params"]["pollInterval"]) == ("1", 5000)
        await tool.finish(DONE)


# --- who asks too often ----------------------------------------------------------------------------------------------


@covers("T47")
@both_eras
async def test_early_polls_are_answered_as_any_other_and_counted(
    gateway: Gateway, hold: Hold, clock: ManualClock, era: str
) -> None:
    host = await gateway.greeted(era=era)
    task = await start_with_key(host, None)
    async with bounded():
        await hold.begun.wait()
    for pause in (0.0, 0.5, 1.5, 3.0):
        clock.advance(timedelta(seconds=pause))
        assert (await host.task(task))["status"] == "working"

    async def counted(result: str) -> float:
        return await gateway.count("taskgate_task_polls_total", upstream="reports", result=result)

    assert [await counted(result) for result in ("changed", "early", "unchanged")] == [1, 1, 2]
    hold.release(DONE)
    await host.until(task, "completed")
    clock.advance(timedelta(seconds=9))
    assert (await host.task(task))["status"] == "completed"
    assert await counted("terminal") >= 1


@both_eras
async def test_a_host_that_never_heeds_the_advice_is_refused_until_it_slows_down(
    gateway: Gateway, hold: Hold, clock: ManualClock, era: str
) -> None:
    host = await gateway.greeted(era=era)
    task, other = await start_with_key(host, None), await start_with_key(host, None)
    for _ in range(BURST):
        assert (await host.task(task))["status"] == "working"
    if era == "modern":
        refused = await gateway.modern().ask("tasks/get", {"taskId": task})
    else:
        refused = await (await gateway.greeted()).ask("tasks/get", {"taskId": task})
    assert (refused.status, refused.code) == (200, 429)
    assert refused.error["data"]["reason"] == "rate"
    # As the task says itself, though less would do.
    assert refused.error["data"]["retryAfterMs"] == 2000
    assert refused.headers["Retry-After"] == "2"
    assert await gateway.count("taskgate_task_polls_total", result="limited") == 1
    # No other task is any the worse for it, nor anything else that is asked of this one.
    assert (await host.task(other))["status"] == "working"
    clock.advance(timedelta(milliseconds=200))
    assert (await host.task(task))["status"] == "working"


async def test_to_wait_for_a_result_or_to_cancel_is_no_poll(gateway: Gateway, hold: Hold) -> None:
    host = await gateway.greeted()
    task = await host.start("report")
    waiting = [asyncio.create_task(host.ask("tasks/result", {"taskId": task["taskId"]})) for _ in range(BURST)]
    async with bounded():
        await hold.begun.wait()
        hold.release(DONE)
        answers = await asyncio.gather(*waiting)
    assert all(answer.result["content"] == DONE["content"] for answer in answers)
    for _ in range(BURST):
        assert (await host.ask("tasks/cancel", {"taskId": task["taskId"]})).code == -32602
    assert await gateway.count("taskgate_task_polls_total") == 0


async def test_a_host_that_asks_as_it_is_advised_is_never_early(
    gateway: Gateway, hold: Hold, clock: ManualClock
) -> None:
    host = gateway.modern()
    interval = (await host.start("report"))["pollIntervalMs"]
    task = (await host.start("report"))["taskId"]
    for _ in range(3 * BURST):
        clock.advance(timedelta(milliseconds=interval))
        interval = (await host.task(task))["pollIntervalMs"]
    assert await gateway.count("taskgate_task_polls_total") == 3 * BURST
    assert await gateway.count("taskgate_task_polls_total", result="early") == 0
