"""Hosts without tasks lose their connections at random moments: no call runs twice, and none is lost."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from random import Random

import aiohttp
import pytest

from handoff.gateways import replicas, single
from handoff.hosts import taskless
from handoff.matrix import Mode
from handoff.server import counting_server
from handoff.storms import Storm
from helpers.host.host import ERAS
from helpers.shared_store import SharedServer

CUTS = int(os.environ.get("HANDOFF_CUTS", "100"))
SEED = os.environ.get("HANDOFF_SEED", "1")
LIMITS = "{rate: [], concurrency: {tasks_per_context: 100000, tasks_global: 100000, kept_per_context: null}}"


def sections(url: str, mode: Mode) -> dict[str, str]:
    """What every gateway of a storm has in its file, with a rule of that mode."""
    upstream = f'{{path: /reports/mcp, url: "{url}", health: null, concurrency: 500}}'
    tasks = f'{{upgrade: [{{tool: "*", mode: {mode}, handoff: {{after: 200ms}}}}], handoff: {{ceiling: 400ms}}}}'
    return {"tasks": tasks, "limits": LIMITS, "upstreams": f"{{reports: {upstream}}}"}


async def rage(storm: Storm, address: str, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
    """Have a storm, and judge it; what happens meanwhile is done again and again."""
    async with aiohttp.ClientSession() as http:
        hosts = [await taskless(http, address, era) for era in ERAS]
        raging = asyncio.create_task(storm.rage(hosts))
        try:
            while meanwhile is not None and not storm.is_over and not raging.done():
                await meanwhile()
            await raging
        finally:
            raging.cancel()
            await asyncio.wait([raging])
    print(f"seed {SEED}: {storm}")  # noqa: T201 - what it came to belongs into the report of every run
    assert storm.wrong() == []
    assert storm.cut >= CUTS


@pytest.mark.parametrize("mode", ["auto", "always"])
@pytest.mark.program
@pytest.mark.timeout(60 + CUTS)
async def test_no_call_runs_twice_and_none_is_lost_while_connections_are_cut(tmp_path: Path, mode: Mode) -> None:
    async with counting_server() as (url, books), single(tmp_path, url, **sections(url, mode)) as gateway:
        await rage(Storm(f"{SEED} cuts", CUTS, books, lambda _: gateway.listen), gateway.listen)


@pytest.mark.program
@pytest.mark.kill
@pytest.mark.timeout(60 + CUTS)
async def test_no_call_runs_twice_and_none_is_lost_while_the_gateway_is_killed(tmp_path: Path) -> None:
    async with counting_server() as (url, books), single(tmp_path, url, **sections(url, "always")) as gateway:
        chance = Random(f"{SEED} kills")
        storm = Storm(f"{SEED} kills", CUTS, books, lambda _: gateway.listen)

        async def kill() -> None:
            await asyncio.sleep(0.5 + chance.random() * 1.5)
            await gateway.kill()
            storm.note_kill()
            await gateway.start()

        await rage(storm, gateway.listen, kill)


@pytest.mark.program
@pytest.mark.timeout(90 + CUTS)
async def test_no_call_runs_twice_and_none_is_lost_while_three_replicas_are_restarted(
    valkey_server: SharedServer, tmp_path: Path
) -> None:
    async with (
        counting_server() as (url, books),
        replicas(tmp_path, url, valkey_server, **sections(url, "always")) as three,
    ):
        turns = count()

        def any_up(chance: Random) -> str:
            up = [each for each in three if each.is_up]
            return chance.choice(up).listen

        # Any replica gets the next request.
        storm = Storm(f"{SEED} rolling", CUTS, books, any_up)

        async def restart() -> None:
            await three[next(turns) % 3].restart()

        await rage(storm, three[0].listen, restart)
