"""A call that is sent again while it runs is one call: by its key, or where a rule lets retries join."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import both_eras
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.waiting import bounded, eventually
from interaction.idempotency import KEY, YEAR, calls, start_with_key, upgrade
from interaction.questions import DONE

ANOTHER = "The idempotency key was used for another call"


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


@pytest.fixture
async def gateway(server: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway that makes a task of every call whose host can have one."""
    async with serve(configuration({"reports": server.url}, tasks=upgrade())) as gateway:
        yield gateway


# --- plain calls -----------------------------------------------------------------------------------------------------


async def left_alone(gateway: Gateway, hold: Hold, **meta: Any) -> None:
    """A host of the legacy era that called `report`, and whose connection is gone."""
    host = await gateway.greeted()
    lost = asyncio.create_task(host.call("report", YEAR, **meta))
    async with bounded():
        await hold.begun.wait()
    lost.cancel()
    await asyncio.wait([lost])


JOINS = upgrade("sync", join_retries="30s")


@pytest.mark.parametrize(
    ("tasks", "meta", "how"),
    [(upgrade("sync"), {"_meta": {KEY: "k"}}, "key"), (JOINS, {}, "retry")],
    ids=["key", "retry"],
)
async def test_a_retry_joins_the_call_that_runs_though_its_first_host_is_gone(
    server: ScriptedServer, hold: Hold, tasks: dict[str, Any], meta: dict[str, Any], how: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        await left_alone(gateway, hold, **meta)
        again = asyncio.create_task((await gateway.greeted()).call("report", YEAR, **meta))
        await _joined(gateway, how)
        hold.release(DONE)
        async with bounded():
            assert (await again).result["content"] == DONE["content"]
        assert len(calls(server)) == 1


async def _joined(gateway: Gateway, how: str, times: int = 1) -> None:
    async with bounded():
        while await gateway.count("taskgate_calls_joined_total", how=how) < times:
            await asyncio.sleep(0.01)


async def test_a_call_that_is_over_runs_again(server: ScriptedServer, gateway: Gateway) -> None:
    host = await gateway.greeted()
    for _ in range(2):
        assert (await host.call("echo", YEAR, _meta={KEY: "k"})).result["structuredContent"] == YEAR
    assert len(calls(server)) == 2


async def test_the_key_of_another_call_that_runs_is_refused(
    server: ScriptedServer, gateway: Gateway, hold: Hold
) -> None:
    await left_alone(gateway, hold, _meta={KEY: "k"})
    answer = await (await gateway.greeted()).call("report", {"year": 2027}, _meta={KEY: "k"})
    assert (answer.code, answer.error["message"]) == (-32602, ANOTHER)
    hold.release(DONE)


async def test_who_joins_a_call_of_the_modern_era_has_its_answer_when_the_first_one_leaves(
    server: ScriptedServer, hold: Hold
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=JOINS)) as gateway:
        host = gateway.modern()
        params = {"name": "report", "arguments": YEAR}
        async with host.asking("tools/call", params) as first, host.asking("tools/call", params) as second:
            await _joined(gateway, "retry")
            await first.leave()
            hold.release(DONE)
            assert (await second.answer()).result["content"] == DONE["content"]
        assert len(calls(server)) == 1


async def test_when_the_last_one_leaves_the_call_is_cancelled_and_a_retry_runs_anew(
    server: ScriptedServer, hold: Hold
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=JOINS)) as gateway:
        host = gateway.modern()
        params = {"name": "report", "arguments": YEAR}
        async with host.asking("tools/call", params) as first, host.asking("tools/call", params) as second:
            await _joined(gateway, "retry")
            await first.leave()
            await second.leave()
            await eventually(lambda: server.heard("notifications/cancelled") or hold.left.is_set())
        async with host.asking("tools/call", params) as third:
            await eventually(lambda: len(calls(server)) == 2)
            hold.release(DONE)
            assert (await third.answer()).result["content"] == DONE["content"]


async def test_without_a_rule_or_a_key_every_call_runs(server: ScriptedServer, gateway: Gateway, hold: Hold) -> None:
    host = await gateway.greeted()
    both = [asyncio.create_task(host.call("report", YEAR)) for _ in range(2)]
    await eventually(lambda: len(calls(server)) == 2)
    hold.release(DONE)
    async with bounded():
        await asyncio.gather(*both)


# --- retries of tasks ------------------------------------------------------------------------------------------------


@both_eras
async def test_a_retry_of_a_task_that_runs_gets_the_same_one_and_of_one_that_ended_another(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    tasks = upgrade(join_retries="30s")
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = await gateway.greeted(era=era)
        first = await start_with_key(host, None)
        assert await start_with_key(host, None) == first
        assert await start_with_key(host, None, {"year": 2027}) != first
        hold.release(DONE)
        await host.until(first, "completed")
        assert await start_with_key(host, None) != first
        assert await gateway.count("taskgate_calls_joined_total", how="retry") == 1


@both_eras
async def test_retries_that_come_at_once_are_one_task(server: ScriptedServer, hold: Hold, era: str) -> None:
    tasks = upgrade(join_retries="30s")
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        hosts = [await gateway.greeted(era=era) for _ in range(8)]
        async with bounded():
            made = await asyncio.gather(*(start_with_key(host, None) for host in hosts))
            await hold.begun.wait()
        assert len(set(made)) == 1
        assert len(calls(server)) == 1


@pytest.mark.parametrize("grace", ["0s", "200ms"])
async def test_a_retry_of_a_call_that_became_a_task_on_its_way_gets_that_task(
    server: ScriptedServer, hold: Hold, grace: str
) -> None:
    tasks = {**upgrade("auto", join_retries="30s"), "inline_grace": grace}
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = await gateway.greeted(era="modern")
        first, second = await asyncio.gather(start_with_key(host, None), start_with_key(host, None))
        third = await start_with_key(host, None)
        assert first == second == third
        assert len(calls(server)) == 1
        hold.release(DONE)
        await host.until(first, "completed")


# --- what a server says meanwhile ------------------------------------------------------------------------------------


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}], ids=["cannot be asked", "can be asked"])
async def test_what_a_server_says_after_the_first_host_left_harms_nobody(
    server: ScriptedServer, tool: TalkingTool, capabilities: dict[str, Any]
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=JOINS)) as gateway:
        host = gateway.modern(capabilities=capabilities)
        params, meta = {"name": "report", "arguments": YEAR}, {"progressToken": "p"}
        async with (
            host.asking("tools/call", params, meta=meta) as first,
            host.asking("tools/call", params, meta=meta) as second,
        ):
            await _joined(gateway, "retry")
            async with bounded():
                await tool.begun.wait()
            await first.leave()
            await gateway.counted("mcp_server_operation_duration_seconds_count", error_type="cancelled")
            await tool.note("notifications/progress", progressToken=tool.called.token, progress=1)
            await tool.ask("q", "elicitation/create", {"message": "Go on?", "requestedSchema": {"type": "object"}})
            # Nobody is there who could answer.
            async with bounded():
                told = await tool.told("q")
            assert "error" in told or told["result"]["action"] in ("cancel", "decline")
            await tool.finish(DONE)
            assert (await second.answer()).result["content"] == DONE["content"]
