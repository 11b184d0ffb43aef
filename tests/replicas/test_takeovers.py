"""A replica dies, or stands still for longer than its lease: others end, or run, what it held, and it cannot undo that.

Real processes and signals: nothing of one that is killed, or stopped, goes on in any thread.
"""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest

from helpers.gateway.replicas import LEASE
from helpers.host.host import Host
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.shared_store import SharedServer
from helpers.waiting import bounded, eventually
from interaction.questions import ACCEPTED, CAPABLE, DONE, ELICIT
from replicas.processes import LOST, Start, counted, ended
from requirements import covers
from taskgate.stores.redis.options import KeyNames, RedisOptions


async def test_what_a_killed_replica_ran_ends_at_another_as_one_of_unknown_outcome(
    server: ScriptedServer, start: Start, http: aiohttp.ClientSession
) -> None:
    server.script["report"] = Hold()
    first, second = await start(), await start()
    host = first.host(http)
    await host.initialize()
    task = (await host.start("report"))["taskId"]
    await eventually(lambda: server.heard("tools/call"))
    first.kill()
    found = await ended(second.again(host), task)
    assert (found["status"], found["statusMessage"]) == ("failed", LOST)
    assert len(server.heard("tools/call")) == 1
    assert await counted(http, second, 'taskgate_task_recoveries_total{outcome="failed"') == 1


@covers("T48")
async def test_what_a_killed_replica_had_not_sent_is_sent_by_another_once(
    server: ScriptedServer, start: Start, http: aiohttp.ClientSession
) -> None:
    server.script["report"] = Hold()
    first = await start()
    host = first.host(http)
    await host.initialize()
    await host.start("report")
    await eventually(lambda: server.heard("tools/call"))
    waiting = [(await host.start("echo", {"number": number}))["taskId"] for number in range(3)]
    second = await start()
    first.kill()
    there = second.again(host)
    for task in waiting:
        assert (await ended(there, task))["status"] == "completed"
    sent = [call["params"]["arguments"].get("number") for call in server.heard("tools/call")]
    assert sorted(number for number in sent if number is not None) == [0, 1, 2]


async def test_a_replica_that_stood_still_for_too_long_gives_its_call_up_and_its_answer_counts_for_nothing(
    server: ScriptedServer, start: Start, http: aiohttp.ClientSession
) -> None:
    server.script["report"] = hold = Hold()
    first, second = await start(), await start()
    host = first.host(http)
    await host.initialize()
    task = (await host.start("report"))["taskId"]
    await eventually(lambda: server.heard("tools/call"))
    first.ask(signal.SIGSTOP)
    there = second.again(host)
    found = await ended(there, task)
    assert found["statusMessage"] == LOST
    hold.release(DONE)
    first.ask(signal.SIGCONT)

    async with bounded():
        while not await counted(http, first, "taskgate_leases_lost_total"):
            pass
    assert await there.task(task) == found
    assert await host.task(task) == found
    assert len(server.heard("tools/call")) == 1


async def test_a_replica_that_stood_still_for_less_than_its_lease_loses_nothing(
    server: ScriptedServer, start: Start, http: aiohttp.ClientSession
) -> None:
    server.script["report"] = hold = Hold()
    first, second = await start(), await start()
    host = first.host(http)
    await host.initialize()
    task = (await host.start("report"))["taskId"]
    await eventually(lambda: server.heard("tools/call"))
    first.ask(signal.SIGSTOP)
    there = second.again(host)
    assert (await there.task(task))["status"] == "working"
    first.ask(signal.SIGCONT)
    hold.release(DONE)
    assert (await ended(there, task))["status"] == "completed"
    assert await counted(http, first, "taskgate_leases_lost_total") == 0


@asynccontextmanager
async def carried(host: Host, task: str, tool: TalkingTool) -> AsyncIterator[None]:
    """The task's question is on the stream of a `tasks/result` of the host."""
    async with host.asking("tasks/result", {"taskId": task}) as stream:
        await tool.ask("q")
        await stream.until(ELICIT)
        yield


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_question_on_a_stream_of_a_killed_replica_is_asked_again_where_its_host_waits_then(
    tool: TalkingTool, server: ScriptedServer, start: Start, http: aiohttp.ClientSession, when: str
) -> None:
    first, second, third = await start(), await start(), await start()
    host = first.host(http)
    await host.initialize(capabilities=CAPABLE)
    task = (await host.start("report"))["taskId"]
    there = third.again(host)
    async with AsyncExitStack() as stack:
        async with carried(second.again(host), task, tool):
            if when == "before":
                stream = await stack.enter_async_context(there.asking("tasks/result", {"taskId": task}))
            second.kill()
        if when == "after":
            stream = await stack.enter_async_context(there.asking("tasks/result", {"taskId": task}))
        asked = await stream.until(ELICIT)
        assert (await there.respond(asked["id"], ACCEPTED)).status == 202
        assert (await tool.told("q"))["result"] == ACCEPTED
        await tool.finish(DONE)
        assert (await stream.result())["content"] == DONE["content"]
        assert len(stream.of(ELICIT)) == 1
    assert len(server.heard("tools/call")) == 1
    assert len(server.replies) == 1


async def test_a_question_on_a_stream_of_a_killed_replica_is_asked_again_on_the_get_stream_of_its_session(
    tool: TalkingTool, start: Start, http: aiohttp.ClientSession
) -> None:
    first, second, third = await start(), await start(), await start()
    host = first.host(http)
    await host.initialize(capabilities=CAPABLE)
    task = (await host.start("report"))["taskId"]
    there = third.again(host)
    async with AsyncExitStack() as stack:
        async with carried(second.again(host), task, tool):
            get = await stack.enter_async_context(there.listen())
            # In order: what waited for the stream was looked for before.
            await there.task(task)
            second.kill()
        asked = await get.until(ELICIT)
        await there.respond(asked["id"], ACCEPTED)
        assert (await tool.told("q"))["result"] == ACCEPTED
        await tool.finish(DONE)
        assert (await ended(there, task))["status"] == "completed"
        assert len(get.of(ELICIT)) == 1


_SAVE = """
local saved = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  saved[#saved + 1] = {key, redis.call('PTTL', key), redis.call('DUMP', key)}
end
return saved"""
_BRING_BACK = """
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end
for at = 2, #ARGV, 3 do redis.call('RESTORE', ARGV[at], math.max(0, tonumber(ARGV[at + 1])), ARGV[at + 2]) end"""


# It stops a process for less than its lease: a machine that is busy with other tests takes longer.
@pytest.mark.alone
async def test_of_a_store_that_came_back_between_two_signs_of_life_with_what_was_true_before_nothing_is_taken_over(
    server: ScriptedServer,
    valkey_server: SharedServer,
    options: RedisOptions,
    start: Start,
    http: aiohttp.ClientSession,
) -> None:
    """Every sign of life was heard, and yet no lease is what it seems until those who live were heard again."""
    server.script["report"] = hold = Hold()
    keys = KeyNames(options.key_prefix)
    second = await start()
    first = await start()
    host = first.host(http)
    await host.initialize()
    task = (await host.start("report"))["taskId"]
    await eventually(lambda: server.heard("tools/call"))
    lives = valkey_server.ask("ZRANGE", keys.of("lives"), 0, -1)
    (runs_it,) = [valkey_server.ask("HGET", keys.of(f"task:{task}"), "holder")]
    (watches,) = [name for name in lives if name != runs_it]

    def until(holder: bytes) -> float:
        return float(valkey_server.ask("ZSCORE", keys.of("lives"), holder) or 0)

    async def signs_of(holder: bytes, count: int, known: float) -> None:
        for _ in range(count):
            await eventually(lambda known=known: until(holder) != known)  # type: ignore[misc]
            known = until(holder)

    saved = valkey_server.ask("EVAL", _SAVE, 0, keys.every)
    then, brought_back = until(runs_it), until(watches)
    # The leases of what was saved lapse.
    await eventually(lambda: min(until(runs_it), until(watches)) > then + 1.25 * LEASE.total_seconds() * 1_000_000)
    first.ask(signal.SIGSTOP)
    valkey_server.ask("EVAL", _BRING_BACK, 0, keys.every, *(part for row in saved for part in row))
    # One of two is given right before something is taken over. Who stays away for longer is taken for gone.
    await signs_of(watches, 2, known=brought_back)
    first.ask(signal.SIGCONT)
    await signs_of(runs_it, 2, known=until(runs_it))
    there = second.again(host)
    assert (await there.task(task))["status"] == "working"
    hold.release(DONE)
    assert (await ended(there, task))["status"] == "completed"
    assert await counted(http, second, "taskgate_task_recoveries_total") == 0
    assert await counted(http, first, "taskgate_leases_lost_total") == 0
