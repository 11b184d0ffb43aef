"""A wall clock that is set while a gateway runs: tasks, calls and sessions go by the time that has really passed.

Tokens are judged by the wall clock as it is, and what an earlier process left expires by it.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.virtual_time import pass_time
from helpers.waiting import bounded, eventually
from helpers.wandering_clock import WanderingClock
from requirements import covers

DONE = {"content": [{"type": "text", "text": "done"}]}
JUMPS = [timedelta(days=400), timedelta(days=-400)]
SHORT = {"ttl": {"min": "1s", "default": "1h", "keep": "1s"}}


@pytest.fixture
def clock() -> WanderingClock:
    """The clock of the machine, which can be set."""
    return WanderingClock()


@pytest.fixture(params=["memory", "sqlite"])
async def gateway(
    request: pytest.FixtureRequest, server: ScriptedServer, clock: WanderingClock, tmp_path: Path
) -> AsyncIterator[Gateway]:
    """A gateway on that machine, which removes what has expired at once."""
    folder = tmp_path if request.param == "sqlite" else None
    config = configuration({"reports": server.url}, folder=folder, tasks=SHORT, store={"purge_interval": "20ms"})
    async with serve(config, Environment(clock=clock), data_directory=tmp_path) as gateway:
        yield gateway


@covers("T54")
@pytest.mark.parametrize("jump", JUMPS, ids=["forward", "back"])
async def test_a_call_that_runs_goes_on_and_its_session_and_times_stay(
    server: ScriptedServer, gateway: Gateway, clock: WanderingClock, jump: timedelta
) -> None:
    hold = server.script["report"] = Hold()
    host = await gateway.greeted()
    begun, task = clock.now(), await host.start("report")
    async with bounded():
        await hold.begun.wait()
        clock.by = jump
        purges = await gateway.count("taskgate_store_operation_duration_seconds_count", operation="purge")
        while await gateway.count("taskgate_store_operation_duration_seconds_count", operation="purge") < purges + 3:
            await asyncio.sleep(0.01)
        assert (await host.task(task["taskId"]))["status"] == "working"
        hold.release(DONE)
        assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] == DONE["content"]
    assert server.cancelled == []
    ended = await host.task(task["taskId"])
    for told in (ended["createdAt"], ended["lastUpdatedAt"], (await host.start("echo"))["createdAt"]):
        assert abs(datetime.fromisoformat(told) - begun) < timedelta(minutes=1)


@pytest.mark.parametrize("jump", JUMPS, ids=["forward", "back"])
async def test_a_task_lives_as_long_as_it_was_promised(
    server: ScriptedServer, gateway: Gateway, clock: WanderingClock, jump: timedelta
) -> None:
    host = await gateway.greeted()
    task = (await host.call("echo", task={"ttl": 1500})).result["task"]
    clock.by = jump
    assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).result["content"] is not None
    async with bounded():
        while (answer := await host.ask("tasks/get", {"taskId": task["taskId"]})).message is not None:
            if "error" in answer.message:
                break
            await asyncio.sleep(0.05)
    assert answer.code == -32602


async def test_what_an_earlier_process_left_expires_by_the_wall_clock(
    server: ScriptedServer, clock: WanderingClock, tmp_path: Path
) -> None:
    config = configuration({"reports": server.url}, folder=tmp_path)
    async with serve(config, Environment(clock=clock), data_directory=tmp_path) as gateway:
        task = await (await gateway.greeted()).start("echo")
        clock.by = timedelta(hours=2)
    async with serve(config, Environment(clock=clock), data_directory=tmp_path) as gateway:
        assert (await (await gateway.greeted()).ask("tasks/get", {"taskId": task["taskId"]})).code == -32602


async def test_a_token_is_judged_by_the_wall_clock(
    server: ScriptedServer, clock: WanderingClock, tmp_path: Path
) -> None:
    issuer = TokenIssuer(tmp_path)
    async with serve(guarded({"reports": server.url}, issuer), Environment(clock=clock)) as gateway:
        token = issuer.token(gateway.url())
        await gateway.greeted(token=token)
        clock.by = timedelta(days=2)
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}}
        assert (await gateway.host(token=token).ask("initialize", params)).status == 401


async def test_the_log_tells_once_that_the_wall_clock_was_set(
    server: ScriptedServer, clock: WanderingClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(configuration({"reports": server.url}), Environment(clock=clock)):
        clock.by = timedelta(hours=3)

        def told() -> list[str]:
            return [record.getMessage() for record in caplog.records if record.name == "taskgate.sweeper"]

        # It is compared now and then.
        await eventually(told)
        await pass_time(120)
        assert len(told()) == 1
        assert "restart" in told()[0]
