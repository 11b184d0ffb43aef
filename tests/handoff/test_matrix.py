"""Hosts without tasks get of calls of every length what the table in matrix.py says, whatever befalls the gateway."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import aiohttp
import pytest

from handoff.gateways import replicas, single
from handoff.hosts import Conversation, Model, taskless
from handoff.matrix import CEILINGS, FRACTION, MODES, SCALE, Cell, Event, cells
from handoff.server import Books, counting_server
from helpers.host.host import ERAS, Era
from helpers.shared_store import SharedServer

LONG = os.environ.get("HANDOFF_MATRIX") == "long"
LONGEST = 900.0 if LONG else 25.0
"""Seconds of the longest call, as the table has it."""
PATIENCE = LONGEST * SCALE + 60
LOST = "The gateway stopped while the call was running"
LATE: dict[Event, float] = {"nothing": 0.5, "kill -9": 1.5, "rolling restart": 0.5}
"""Seconds by which an answer may be late: neither the machine nor a start after a kill is faster in a scaled table."""
MOMENT = 0.25
"""Seconds of a call that may have ended before the kill, or that its server's first event id came after."""
NAMES = ", ".join(f'"ceiling-{ceiling}": {ceiling * SCALE * 1000:.0f}ms' for ceiling in CEILINGS)


def sections(url: str, event: Event) -> dict[str, str]:
    """What each gateway has in its file."""
    upstream = f'{{path: /reports/mcp, url: "{url}", health: null, concurrency: 500}}'
    rule = f'{{tool: "*", mode: {MODES[event]}, handoff: {{after: 45s}}}}'
    return {
        "tasks": f"{{upgrade: [{rule}], handoff: {{ceilings: {{{NAMES}}}}}}}",
        "limits": "{rate: [], concurrency: {tasks_per_context: 1000, waits_per_context: 1000}}",
        "upstreams": f"{{reports: {upstream}}}",
    }


def tried(event: Event) -> Iterator[tuple[Cell, Era]]:
    """The cells of an event that are tried, for each kind of host."""
    for cell in cells():
        if cell.event == event and cell.duration <= LONGEST:
            yield from ((cell, era) for era in ERAS)


async def play(
    event: Event,
    books: Books,
    address: Callable[[Random], str],
    first: str,
    befall: Callable[[], Awaitable[None]] | None = None,
) -> list[str]:
    """Make all calls, so that each has run for its fraction when `befall` is called; return what went wrong."""
    calls = [
        (cell, era, Conversation(number, tool=cell.tool, seconds=cell.duration * SCALE))
        for number, (cell, era) in enumerate(tried(event))
    ]
    longest = max(call.seconds for _, _, call in calls)
    async with aiohttp.ClientSession() as http, asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        hosts = {(era, each): await taskless(http, first, era, f"ceiling-{each}") for era in ERAS for each in CEILINGS}
        for cell, era, call in calls:
            chance = Random(call.number)
            model = Model(hosts[era, cell.ceiling], partial(address, chance), lambda _: None, chance)
            group.create_task(_later(FRACTION * (longest - call.seconds), model.get(call, lambda _: True)))
        if befall is not None:
            await _later(FRACTION * longest, befall())
    wrong = [each for each in calls if not _is_as(each[0], each[2], books)]
    return [f"{cell} {era}: {call}, ran {books.runs[call.number]} times" for cell, era, call in wrong]


async def _later(seconds: float, work: Awaitable[None]) -> None:
    await asyncio.sleep(seconds)
    await work


def _is_as(cell: Cell, call: Conversation, books: Books) -> bool:
    """Whether a call went as its cell says."""
    runs, is_told = books.runs[call.number], call.end is not None and LOST in call.end.words
    in_time = call.turns <= cell.most_turns and call.slowest <= cell.ceiling * SCALE + LATE[cell.event]
    if cell.event == "kill -9" and call.seconds <= MOMENT:
        return in_time and ((call.is_delivered and runs == 1) or (is_told and runs <= 1))
    return (call.is_delivered if cell.ending == "delivered" else is_told) and runs == 1 and in_time


@pytest.mark.program
@pytest.mark.timeout(PATIENCE + 30)
async def test_each_result_is_delivered_in_at_most_one_turn_for_each_ceiling(tmp_path: Path) -> None:
    async with counting_server() as (url, books), single(tmp_path, url, **sections(url, "nothing")) as gateway:
        assert await play("nothing", books, lambda _: gateway.listen, gateway.listen) == []


@pytest.mark.program
@pytest.mark.kill
@pytest.mark.timeout(PATIENCE + 30)
async def test_a_killed_gateway_delivers_what_it_can_resume_and_tells_of_the_rest(tmp_path: Path) -> None:
    async with counting_server() as (url, books), single(tmp_path, url, **sections(url, "kill -9")) as gateway:

        async def kill() -> None:
            await gateway.kill()
            await gateway.start()

        assert await play("kill -9", books, lambda _: gateway.listen, gateway.listen, kill) == []


@pytest.mark.program
@pytest.mark.timeout(PATIENCE + 60)
async def test_each_result_is_delivered_while_three_replicas_are_restarted(
    valkey_server: SharedServer, tmp_path: Path
) -> None:
    async with (
        counting_server() as (url, books),
        replicas(tmp_path, url, valkey_server, drain="60s", **sections(url, "rolling restart")) as three,
    ):

        async def restart() -> None:
            for each in three:
                await each.restart()

        def any_up(chance: Random) -> str:
            return chance.choice([each for each in three if each.is_up]).listen

        assert await play("rolling restart", books, any_up, three[0].listen, restart) == []
