"""Gateways whose clocks are an hour from the store's, or jump that far while they run, are one to their hosts.

Whatever has to do with time goes by the store's; for tokens see `test_clocks_and_tokens`.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import serve_replicas
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.shared_store import SharedServer
from helpers.waiting import bounded, eventually
from helpers.wandering_clock import WanderingClock
from interaction.held_calls import CAPABLE, sent_for, through
from interaction.questions import ACCEPTED, DONE
from replicas.conftest import AT_ONCE
from replicas.processes import LOST, Start, counted, ended
from replicas.wrong_clocks import HOUR, Pair, clocks, hours

__all__ = ["clocks", "hours"]

MINUTE_MS, SECOND_MS = 60_000, 1_000
KEY = "io.taskgate/idempotency-key"
CALLS = {"name": "calls", "scope": "context", "rate": "1/h", "burst": 4, "methods": ["tools/call"]}


@pytest.fixture
async def pair(
    server: ScriptedServer,
    valkey_server: SharedServer,
    tmp_path: Path,
    clocks: list[WanderingClock],
    hours: tuple[int, int],
) -> AsyncIterator[Pair]:
    """Two gateways without authentication; a caller may have two tasks, and make four calls."""
    servers, options = {"reports": server.url}, valkey_server.options()
    tasks = AT_ONCE | {"ttl": {"min": "1s", "keep": "1s"}}
    limits = {"rate": [CALLS], "concurrency": {"tasks_per_context": 2}}
    async with serve_replicas(2, servers, options, tmp_path, clocks=clocks, tasks=tasks, limits=limits) as gateways:
        yield Pair(gateways, clocks, jump=not any(hours))


async def begun(server: ScriptedServer, pair: Pair, **task: Any) -> tuple[Host, str, Hold]:
    """A host at the first, a task of its that runs there, and what that waits for."""
    server.script["report"] = hold = Hold()
    host = await pair.one.greeted()
    made = (await host.start("report", **task))["taskId"]
    async with bounded():
        await hold.begun.wait()
    pair.later()
    return host, made, hold


async def known(host: Host, task: str) -> bool:
    return "result" in ((await host.ask("tasks/get", {"taskId": task})).message or {})


# --- tasks -----------------------------------------------------------------------------------------------------------


async def test_the_times_of_a_task_are_the_same_wherever_one_asks_and_those_of_the_store(
    server: ScriptedServer, pair: Pair
) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    host, task, hold = await begun(server, pair)
    there = pair.other.again(host)
    seen, found = await host.task(task), await pair.other.modern().task(task)
    assert await there.task(task) == seen
    assert (seen["createdAt"], seen["lastUpdatedAt"], seen["ttl"]) == tuple(
        found[name] for name in ("createdAt", "lastUpdatedAt", "ttlMs")
    )
    assert before < datetime.fromisoformat(seen["createdAt"]) <= datetime.fromisoformat(seen["lastUpdatedAt"])
    hold.release(DONE)
    async with bounded():
        assert (await there.ask("tasks/result", {"taskId": task})).result["content"] == DONE["content"]
    done = await there.task(task)
    assert await host.task(task) == done
    assert datetime.fromisoformat(done["lastUpdatedAt"]) < datetime.now(UTC) + timedelta(seconds=1)


async def test_a_task_is_kept_for_as_long_as_was_said_and_its_key_with_it(server: ScriptedServer, pair: Pair) -> None:
    server.script["report"] = hold = Hold()
    host = await pair.one.greeted()
    created = await host.call("report", task={"ttl": MINUTE_MS}, _meta={KEY: "k"})
    task = created.result["task"]["taskId"]
    pair.later()
    await pair.swept()
    there = pair.other.again(host)
    assert await known(host, task)
    assert await known(there, task)
    again = await there.call("report", task={"ttl": MINUTE_MS}, _meta={KEY: "k"})
    assert again.result["task"]["taskId"] == task
    hold.release(DONE)
    await there.until(task, "completed")
    assert len(server.heard("tools/call")) == 1


async def test_a_task_is_gone_at_all_when_it_is_time(server: ScriptedServer, pair: Pair) -> None:
    host, task, hold = await begun(server, pair, ttl=SECOND_MS)
    hold.release(DONE)
    async with bounded(5):
        for each in (pair.other.again(host), host):
            while await known(each, task):
                await asyncio.sleep(0.01)


async def test_a_call_goes_on_and_nobody_takes_it_over(server: ScriptedServer, pair: Pair) -> None:
    host, task, hold = await begun(server, pair)
    await pair.swept()
    pair.jump()
    await pair.swept()
    there = pair.other.again(host)
    assert (await there.task(task))["status"] == "working"
    hold.release(DONE)
    assert (await there.until(task, "completed"))["taskId"] == task
    for gateway in (pair.one, pair.other):
        assert await gateway.count("taskgate_leases_lost_total") == 0
        assert await gateway.count("taskgate_task_recoveries_total") == 0
    assert len(server.heard("tools/call")) == 1


async def test_what_is_asked_at_one_is_answered_at_the_other(pair: Pair, tool: TalkingTool) -> None:
    host = pair.one.modern(capabilities={"elicitation": {}})
    task = (await host.start("report"))["taskId"]
    await tool.ask("q")
    pair.later()
    there = pair.other.again(host)
    ((key, _),) = (await there.until(task, "input_required"))["inputRequests"].items()
    await pair.swept()
    await there.update(task, {key: ACCEPTED})
    assert (await tool.told("q"))["result"] == ACCEPTED
    await tool.finish(DONE)
    assert (await there.until(task, "completed"))["result"]["content"] == DONE["content"]


@pytest.mark.parametrize(("first_ahead", "second_ahead"), [(3600, -3600), (-3600, 3600)], ids=["ahead", "behind"])
async def test_what_a_killed_one_ran_ends_at_the_other_by_no_clock_of_theirs(
    server: ScriptedServer,
    start: Start,
    http: aiohttp.ClientSession,
    tmp_path: Path,
    first_ahead: int,
    second_ahead: int,
) -> None:
    """Real processes whose clocks are hours apart, so that the wait is over in time by the lease alone.

    The clock of the other is put right meanwhile.
    """
    server.script["report"] = Hold()
    files = [tmp_path / name for name in ("one", "other", "later")]
    for file, seconds in zip(files, (first_ahead, second_ahead, 0), strict=True):
        file.write_text(f"{seconds}")
    one, other = await asyncio.gather(*(start(ahead=file) for file in files[:2]))
    host = one.host(http)
    await host.initialize()
    task = (await host.start("report"))["taskId"]
    await eventually(lambda: server.heard("tools/call"))
    there = other.again(host)
    one.kill()
    files[2].replace(files[1])
    found = await ended(there, task)
    assert (found["status"], found["statusMessage"]) == ("failed", LOST)
    assert len(server.heard("tools/call")) == 1
    assert await counted(http, other, 'taskgate_task_recoveries_total{outcome="failed"') == 1


# --- limits ----------------------------------------------------------------------------------------------------------


async def test_there_are_no_more_tasks_than_may_be_over_both(server: ScriptedServer, pair: Pair) -> None:
    host, _, hold = await begun(server, pair, ttl=MINUTE_MS)
    there = pair.other.again(host)
    assert "task" in (await there.call("report", task={"ttl": MINUTE_MS})).result
    for each in (host, there):
        refused = await each.call("report", task={})
        assert refused.error["data"]["scope"] == "context"
    hold.release(DONE)


async def test_rates_count_over_both_and_say_when_there_is_room_again(pair: Pair) -> None:
    host = await pair.one.greeted()
    hosts = [host, pair.other.again(host)]
    answers = []
    for number in range(6):
        answers.append(await hosts[number % 2].call("echo"))
        if number == 1:
            pair.later()
    assert ["error" in (answer.message or {}) for answer in answers] == [False] * 4 + [True] * 2
    for refused in answers[4:]:
        assert 3_500_000 < refused.error["data"]["retryAfterMs"] <= 3_600_000


# --- what crosses between them ---------------------------------------------------------------------------------------


async def test_a_session_is_alive_at_both(pair: Pair) -> None:
    host = await pair.one.greeted()
    there = pair.other.again(host)
    pair.later()
    await pair.swept()
    assert (await there.ask("ping")).result == {}
    await pair.swept()
    assert (await host.ask("ping")).result == {}


async def test_answers_that_come_to_the_other_go_on_with_a_call_that_is_held(
    server: ScriptedServer, pair: Pair, tool: TalkingTool
) -> None:
    """The state that the host brings back is sealed with its end, and says who holds the call."""
    host = pair.one.modern(capabilities=CAPABLE, tasks=False)
    tool.begun.set()
    await tool.ask("q")
    result = await sent_for(host)
    pair.later()
    await pair.swept()
    told = await through(pair.other.again(host), result, tool, "q")
    assert told["result"] == ACCEPTED
    assert len(server.heard("tools/call")) == 1


# --- a store that is not there in the beginning ----------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_nothing_is_kept_by_the_clock_of_a_gateway_that_does_not_know_the_stores_time_yet(
    server: ScriptedServer, tmp_path: Path, wrong: timedelta
) -> None:
    server.script["report"] = hold = Hold()
    store = SharedServer(tmp_path)
    servers, clocks = {"reports": server.url}, [WanderingClock(wrong)]
    async with serve_replicas(1, servers, store.options(), tmp_path, clocks=clocks, tasks=AT_ONCE) as [gateway]:
        await asyncio.to_thread(store.start)
        try:
            made = await kept(gateway)
            assert abs(datetime.fromisoformat(made["createdAt"]) - datetime.now(UTC)) < timedelta(minutes=1)
            hold.release(DONE)
            await gateway.modern().until(made["taskId"], "completed")
        finally:
            await gateway.close()
            await asyncio.to_thread(store.stop)


async def kept(gateway: Gateway) -> dict[str, Any]:
    """The first task that is made."""
    async with bounded():
        while "result" not in ((answer := await gateway.modern().call("report")).message or {}):
            assert answer.code == 503, answer.message
    return answer.result
