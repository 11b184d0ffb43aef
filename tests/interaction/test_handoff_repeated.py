"""A call of a host without tasks that is made again: it joins the one that runs, also after its connection was lost."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.host.host import ERAS
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.virtual_time import pass_time
from helpers.waiting import bounded, eventually
from interaction.handoffs import MODES, YEAR, calls, cut, handle_of, handoff, kept, taskless, waited
from interaction.questions import DONE

KEY = "io.taskgate/idempotency-key"
LONG = 16 * 1024
"""The length of arguments up to which spelling makes no difference."""
eras = pytest.mark.parametrize("era", ERAS)
modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


@eras
async def test_the_same_call_of_a_host_gets_the_same_handle_while_it_runs(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        assert handle_of(await host.call("report", {"year": 2026})) == handle
        assert handle_of(await host.call("report", {"year": 2025})) != handle
        await eventually(lambda: calls(server) == 2)
        assert await gateway.count("taskgate_calls_joined_total", how="retry") == 1
        hold.release(DONE)


@eras
async def test_the_same_call_gets_the_result_that_was_not_fetched_once(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, era)
        handle_of(await host.call("report", YEAR))
        hold.release(DONE)
        await gateway.shows("taskgate_tasks_finished_total", 1)
        assert (await host.call("report", YEAR)).result["content"] == DONE["content"]
        assert calls(server) == 1
        # It was fetched, so the next one is meant.
        await host.call("report", YEAR)
        assert calls(server) == 2


@eras
async def test_the_same_call_at_once_after_a_fetched_result_runs_anew(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, era)
        handle = handle_of(await host.call("report", YEAR))
        hold.release(DONE)
        assert (await waited(host, handle)).result["content"] == DONE["content"]
        # On the connection of the wait this call says that its answer has arrived.
        await host.call("report", YEAR)
        assert calls(server) == 2


@eras
async def test_a_result_older_than_the_window_is_not_given_again(server: ScriptedServer, hold: Hold, era: str) -> None:
    tasks = handoff()
    tasks["handoff"]["retry_window"] = "1ms"
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        host = await taskless(gateway, era)
        handle_of(await host.call("report", YEAR))
        hold.release(DONE)
        await gateway.shows("taskgate_tasks_finished_total", 1)
        await host.call("report", YEAR)
        assert calls(server) == 2


@eras
async def test_a_rule_may_say_that_calls_never_join(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff(join_retries="never"))) as gateway:
        host = await taskless(gateway, era)
        handles = {handle_of(await host.call("report", YEAR)) for _ in range(2)}
        assert (len(handles), calls(server)) == (2, 2)
        hold.release(DONE)


@eras
async def test_calls_of_other_callers_never_join(
    server: ScriptedServer, hold: Hold, issuer: TokenIssuer, era: str
) -> None:
    async with serve(guarded({"reports": server.url}, issuer, tasks=handoff())) as gateway:
        tokens = [issuer.token(gateway.url(), subject=name) for name in ("mine", "other")]
        hosts = [await taskless(gateway, era, token) for token in tokens]
        handles = {handle_of(await host.call("report", YEAR)) for host in hosts}
        assert (len(handles), calls(server)) == (2, 2)
        hold.release(DONE)


@modes
@eras
async def test_a_lost_connection_keeps_the_call_and_the_same_call_made_again_finds_it(
    server: ScriptedServer, hold: Hold, era: str, mode: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("10s", mode=mode))) as gateway:
        await cut(await taskless(gateway, era), hold)
        await kept(gateway)
        again = asyncio.create_task((await taskless(gateway, era)).call("report", YEAR))
        await gateway.shows("taskgate_calls_joined_total", 1, how="retry")
        hold.release(DONE)
        async with bounded():
            assert (await again).result["content"] == DONE["content"]
        assert (calls(server), server.cancelled) == (1, [])


@modes
@eras
async def test_a_host_that_connects_again_in_the_other_era_finds_its_call(
    server: ScriptedServer, hold: Hold, era: str, mode: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("10s", mode=mode))) as gateway:
        await cut(await taskless(gateway, era), hold)
        await kept(gateway)
        (other,) = {*ERAS} - {era}
        again = asyncio.create_task((await taskless(gateway, other)).call("report", YEAR))
        await gateway.shows("taskgate_calls_joined_total", 1, how="retry")
        hold.release(DONE)
        async with bounded():
            assert (await again).result["content"] == DONE["content"]
        assert (calls(server), server.cancelled) == (1, [])


@eras
async def test_a_lost_call_is_kept_while_a_host_of_the_other_era_makes_the_same(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h", ceiling="1h"))) as gateway:
        (other,) = {*ERAS} - {era}
        first, second = await taskless(gateway, era), await taskless(gateway, other)
        lost = asyncio.create_task(first.call("report", YEAR))
        async with bounded():
            await hold.begun.wait()
        hold.begun.clear()
        # What one era is answered may be no answer in the other, so it has a request of its own.
        waiting = asyncio.create_task(second.call("report", YEAR))
        async with bounded():
            await hold.begun.wait()
        lost.cancel()
        await asyncio.wait([lost])
        await kept(gateway)
        again = asyncio.create_task((await taskless(gateway, era)).call("report", YEAR))
        await gateway.shows("taskgate_calls_joined_total", 1, how="retry")
        hold.release(DONE)
        async with bounded():
            assert [(await each).result["content"] for each in (again, waiting)] == [DONE["content"]] * 2
        assert (calls(server), server.cancelled) == (2, [])


@modes
@eras
async def test_a_kept_call_that_no_host_asks_for_is_cancelled_after_the_window(
    server: ScriptedServer, hold: Hold, era: str, mode: str
) -> None:
    tasks = handoff("10s", mode=mode)
    tasks["handoff"]["retry_window"] = "50ms"
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        await cut(await taskless(gateway, era), hold)
        await eventually(lambda: bool(server.cancelled) or hold.left.is_set())
        await gateway.shows("taskgate_tasks_finished_total", 1, status="cancelled")


@modes
@eras
async def test_a_kept_call_outlives_a_short_window_while_another_host_waits_for_it(
    server: ScriptedServer, hold: Hold, era: str, mode: str
) -> None:
    tasks, key = handoff("1h", ceiling="1h", mode=mode), {KEY: "k"}
    more: dict[str, Any] = {"meta": key} if era == "modern" else {"_meta": key}
    tasks["handoff"]["retry_window"] = "50ms"
    async with serve(configuration({"reports": server.url}, tasks=tasks)) as gateway:
        first, other = await taskless(gateway, era), await taskless(gateway, era)
        lost = asyncio.create_task(first.call("report", YEAR, **more))
        async with bounded():
            await hold.begun.wait()
        joins = asyncio.create_task(other.call("report", YEAR, **more))
        await gateway.shows("taskgate_calls_joined_total", 1)
        lost.cancel()
        await asyncio.wait([lost])
        await pass_time(5)
        assert (server.cancelled, hold.left.is_set()) == ([], False)
        hold.release(DONE)
        async with bounded():
            assert (await joins).result["content"] == DONE["content"]
        assert calls(server) == 1


async def test_a_cancellation_of_a_legacy_host_cancels_its_call_at_once(server: ScriptedServer, hold: Hold) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("10s"))) as gateway:
        host = await taskless(gateway, "legacy")
        asking = asyncio.create_task(host.ask("tools/call", {"name": "report", "arguments": YEAR}, id="call"))
        async with bounded():
            await hold.begun.wait()
        await host.tell("notifications/cancelled", {"requestId": "call"})
        await eventually(lambda: bool(server.cancelled))
        async with bounded():
            assert (await asking).status == 202
        assert await gateway.count("taskgate_tasks_started_total") == 0


@eras
async def test_a_kept_call_is_found_after_a_restart(
    server: ScriptedServer, hold: Hold, tmp_path: Path, era: str
) -> None:
    config = configuration({"reports": server.url}, folder=tmp_path, tasks=handoff())
    async with serve(config) as gateway:
        handle = handle_of(await (await taskless(gateway, era)).call("report", YEAR))
        hold.release(DONE)
        await gateway.shows("taskgate_tasks_finished_total", 1)
    async with serve(config) as gateway:
        host = await taskless(gateway, era)
        assert (await host.call("report", YEAR)).result["content"] == DONE["content"]
        assert (await waited(host, handle)).result["content"] == DONE["content"]
        assert calls(server) == 1


@eras
async def test_a_call_whose_connection_was_lost_is_counted_once(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff(after="30s"))) as gateway:
        await cut(await taskless(gateway, era), hold)
        await kept(gateway)
        assert await gateway.count("taskgate_tool_calls_total") == 1
        hold.release(DONE)


@eras
async def test_a_call_that_joins_a_lost_one_is_counted_as_joined_once(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff("300ms"))) as gateway:
        host = await taskless(gateway, era)
        await cut(host, hold)
        await kept(gateway)
        handle_of(await host.call("report", YEAR))
        assert await gateway.count("taskgate_calls_joined_total") == 1
        assert await gateway.count("taskgate_tool_calls_total", disposition="handoff") == 2
        hold.release(DONE)


@eras
async def test_each_repeated_call_is_counted(server: ScriptedServer, hold: Hold, era: str) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, era)
        for times in (1, 2):
            handle_of(await host.call("report", YEAR))
            assert await gateway.count("taskgate_tool_calls_total", disposition="handoff") == times
        hold.release(DONE)


@pytest.mark.parametrize("size", [LONG - 60, LONG - 30, LONG])
async def test_a_large_call_made_again_with_another_progress_token_is_the_same(
    server: ScriptedServer, hold: Hold, size: int
) -> None:
    async with serve(configuration({"reports": server.url}, tasks=handoff())) as gateway:
        host = await taskless(gateway, "legacy")
        arguments = {"text": "x" * (size - len('{"name":"report","arguments":{"text":""}}'))}
        first = handle_of(await host.call("report", arguments))
        again = await host.call("report", arguments, _meta={"progressToken": "t" * 30})
        assert (handle_of(again), calls(server)) == (first, 1)
        hold.release(DONE)


@eras
async def test_a_caller_with_too_many_waits_gets_the_handle_of_its_call_at_once(
    server: ScriptedServer, hold: Hold, era: str
) -> None:
    limits = {"concurrency": {"waits_per_context": 1}}
    async with serve(configuration({"reports": server.url}, tasks=handoff("1h"), limits=limits)) as gateway:
        lost, other = {"year": 2025}, await taskless(gateway, era)
        for number, arguments in enumerate((YEAR, lost), 1):
            hold.begun.clear()
            await cut(await taskless(gateway, era), hold, arguments)
            await gateway.shows("taskgate_tool_calls_total", number, disposition="handoff")
        waiting = asyncio.create_task((await taskless(gateway, era)).call("report", YEAR))
        await gateway.shows("taskgate_calls_joined_total", 1)
        async with bounded():
            handle = handle_of(await other.call("report", lost))
        assert (await waited(other, handle)).code == 429
        hold.release(DONE)
        async with bounded():
            assert (await waiting).result["content"] == DONE["content"]
