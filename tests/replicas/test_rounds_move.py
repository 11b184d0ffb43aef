"""A task that waits for input at a server of the modern era goes on at another replica when its own is killed.

Nothing is held between two rounds, so nothing is lost with the process; and each round reaches the server once. Real
processes and signals.
"""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from helpers.host.host import Host
from helpers.server import Rounds, ScriptedServer
from helpers.waiting import bounded
from interaction.bridges import FORM, ROOTS, modern
from interaction.questions import ACCEPTED
from replicas.processes import Start, counted, starting
from taskgate.stores.redis.options import RedisOptions

__all__ = ["modern"]

ASKABLE = {"elicitation": {"form": {}}, "roots": {}}


@pytest.fixture
async def start(modern: ScriptedServer, options: RedisOptions, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts replicas, each a process, whose lease is two seconds."""
    upstreams = f'{{reports: {{path: /reports/mcp, url: "{modern.url}", health: null, protocol_version: auto}}}}'
    tasks = '{upgrade: [{tool: "*", mode: always}], early_poll: {reject_above: 1000}}'
    async with starting(modern.url, options, tmp_path, upstreams=upstreams, tasks=tasks) as start:
        yield start


async def asked(host: Host, task: str, count: int) -> dict[str, str]:
    """The keys of so many input requests by their methods, once the task has them."""
    async with bounded():
        while len(found := (await host.task(task)).get("inputRequests", {})) != count:
            pass
    return {each["method"]: key for key, each in found.items()}


async def test_who_is_killed_between_two_rounds_is_followed_by_another_that_makes_the_next_ones(
    modern: ScriptedServer, start: Start, http: aiohttp.ClientSession
) -> None:
    modern.script["report"] = rounds = Rounds(
        {"inputRequests": {"a": FORM, "b": ROOTS}, "requestState": "one"},
        {"inputRequests": {"c": FORM}, "requestState": "two"},
    )
    first, second = await start(), await start()
    task = (await first.host(http, era="modern", capabilities=ASKABLE).start("report"))["taskId"]
    keys = await asked(first.host(http, era="modern", capabilities=ASKABLE), task, 2)
    there = second.host(http, era="modern", capabilities=ASKABLE)
    # One is answered while the first lives, and the other after.
    await there.update(task, {keys["roots/list"]: {"roots": []}})
    await asked(there, task, 1)
    first.kill()
    await there.update(task, {keys["elicitation/create"]: ACCEPTED})
    (other,) = (await there.until(task, "input_required"))["inputRequests"]
    assert other not in keys.values()
    await there.update(task, {other: {"action": "decline"}})
    done = await there.until(task, "completed")
    assert done["result"]["structuredContent"] == {"answers": rounds.answers}
    assert rounds.answers == [{"a": ACCEPTED, "b": {"roots": []}}, {"c": {"action": "decline"}}]
    assert (rounds.states, len(rounds.turns)) == (["one", "two"], 3)
    assert await counted(http, second, 'taskgate_task_recoveries_total{outcome="retried"') == 1


async def test_who_parts_between_two_rounds_leaves_the_task_to_another(
    modern: ScriptedServer, start: Start, http: aiohttp.ClientSession
) -> None:
    """Nothing of it is cut off, so it does not end as shut down."""
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"})
    first, second = await start(), await start()
    task = (await first.host(http, era="modern", capabilities=ASKABLE).start("report"))["taskId"]
    (key,) = (await asked(first.host(http, era="modern", capabilities=ASKABLE), task, 1)).values()
    first.ask(signal.SIGINT)
    await first.exit_status()
    there = second.host(http, era="modern", capabilities=ASKABLE)
    assert (await there.task(task))["status"] == "input_required"
    await there.update(task, {key: ACCEPTED})
    await there.until(task, "completed")
    assert (rounds.answers, rounds.states, len(rounds.turns)) == ([{"a": ACCEPTED}], ["one"], 2)


async def test_a_legacy_host_that_was_asked_by_the_one_that_is_killed_is_asked_again_by_another(
    modern: ScriptedServer, start: Start, http: aiohttp.ClientSession
) -> None:
    """Its stream is gone, and with it who was to bring the question back."""
    modern.tools = [
        {"name": "report", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
    ]
    modern.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"})
    first, second = await start(), await start()
    host = first.host(http)
    await host.initialize(capabilities={"elicitation": {}})
    task = (await host.start("report"))["taskId"]
    async with bounded(), host.asking("tasks/result", {"taskId": task}) as waiting:
        await waiting.until("elicitation/create")
        first.kill()
    there = second.host(http)
    there.session, there.revision = host.session, host.revision
    async with bounded(), there.asking("tasks/result", {"taskId": task}) as waiting:
        question = await waiting.until("elicitation/create")
        await there.respond(question["id"], ACCEPTED)
        assert (await waiting.result())["structuredContent"] == {"answers": rounds.answers}
    assert (rounds.answers, len(rounds.turns)) == ([{"a": ACCEPTED}], 2)
