"""Whatever order calls, cancels, departures, expiries, failures and reloads come in: no slot is lost or used twice.

One random history a seed, over the whole gateway: both eras, plain calls and tasks, a store that takes its time.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import ScriptedServer, Turn, error, resets, result, status, transport_of
from helpers.waiting import bounded
from interaction.queues import OneByOne, expect_all_given_back

STEPS = 120
FIRST, WIDEST = 2, 4
GONE_WITHIN = 20
"""Turns of the loop in which a server hears that a connection was lost."""
DONE = {"content": []}
ENDS = (result(DONE), result(DONE), result(DONE), error(-32000, "no"), status(500), resets())


def number_of(turn: Turn) -> int:
    """The number that a call has as its argument."""
    number: int = turn.message["params"]["arguments"]["n"]
    return number


class Crowd:
    """Hosts that do whatever comes to mind, and servers that do too.

    `seen` counts the calls that came there, by their numbers, and `there` has those that are there now. `width` is how
    many may be at each server, also once it was moved, and `widest` the most of that since each call began. `beyond`
    says where there were more.
    """

    def __init__(
        self, gateway: Gateway, servers: Sequence[ScriptedServer], folder: Path | None, chance: random.Random
    ) -> None:
        self.gateway, self.servers, self.folder, self.chance = gateway, servers, folder, chance
        self.seen: Counter[int] = Counter()
        self.there: list[Turn] = []
        self.width = Counter({servers[0]: FIRST})
        self.widest: dict[int, Counter[ScriptedServer]] = {}
        self.beyond: list[str] = []
        self.number = 0
        self.tasks: set[asyncio.Task[Any]] = set()
        self.known: list[tuple[Any, str]] = []
        self.hosts: list[Host] = []
        for server in servers:
            server.script["report"] = self.answer

    async def answer(self, turn: Turn) -> web.StreamResponse:
        self.seen[number_of(turn)] += 1
        self.there.append(turn)
        here = [each for each in self.there if each.server is turn.server]
        most = max(self.widest[number_of(each)][turn.server] for each in here)
        try:
            # One that was given up is there until its connection is known to be lost, which takes some turns.
            for _ in range(GONE_WITHIN if len(here) > most else 0):
                await asyncio.sleep(0)
            here = [each for each in here if each in self.there and not transport_of(each.request).is_closing()]
            if len(here) > most:
                self.beyond.append(f"{len(here)} calls in {most} slots")
            await self.dawdle(300)
            return await self.chance.choice(ENDS)(turn)
        finally:
            self.there.remove(turn)

    async def dawdle(self, turns: int) -> None:
        for _ in range(self.chance.randrange(turns)):
            await asyncio.sleep(0)

    def begin(self, work: Callable[..., Coroutine[Any, Any, Any]], *given: Any, **more: Any) -> None:
        task = asyncio.create_task(self._through(partial(work, *given, **more)))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _through(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        # What hosts are answered is not looked at here; what they lost by leaving is nobody's failure.
        with suppress(aiohttp.ClientError, AssertionError, KeyError):
            await work()

    def next(self) -> dict[str, int]:
        self.number += 1
        self.widest[self.number] = self.width.copy()
        return {"n": self.number}

    # --- what happens

    async def step(self) -> None:
        mostly = (self.plain, self.task, self.modern, self.give_up, self.cancel)
        reloads = [self.reload] * (1 if len(self.servers) == 1 else 4)
        await self.chance.choice((*mostly, *mostly, self.short, self.part, *reloads))()
        await self.dawdle(40)

    async def host(self) -> Host:
        if len(self.hosts) < 2:
            self.hosts.append(await self.gateway.greeted())
        return self.chance.choice(self.hosts)

    async def plain(self) -> None:
        host, id = await self.host(), f"p{self.number}"
        self.begin(host.ask, "tools/call", {"name": "report", "arguments": self.next()}, id=id)
        if self.chance.random() < 0.3:
            await self.dawdle(60)
            self.begin(host.tell, "notifications/cancelled", {"requestId": id})

    async def task(self, **more: Any) -> None:
        host = await self.host()

        async def start() -> None:
            self.known.append((host, (await host.start("report", self.next(), **more))["taskId"]))

        self.begin(start)

    async def short(self) -> None:
        await self.task(ttl=1)

    async def modern(self) -> None:
        host = self.gateway.modern()

        async def start() -> None:
            found = (await host.call("report", self.next())).result
            if found["resultType"] == "task":
                self.known.append((host, found["taskId"]))

        self.begin(start)

    async def give_up(self) -> None:
        if self.tasks:
            self.chance.choice(sorted(self.tasks, key=lambda task: task.get_name())).cancel()

    async def cancel(self) -> None:
        if self.known:
            host, id = self.chance.choice(self.known)
            self.begin(host.ask, "tasks/cancel", {"taskId": id})

    async def part(self) -> None:
        if self.hosts and self.chance.random() < 0.3:
            self.begin(self.hosts.pop().leave)

    async def reload(self) -> None:
        server, width = self.chance.choice(self.servers), self.chance.randint(1, WIDEST)
        config = configured(server, width, self.chance.choice((2, 8, 64)), self.folder)
        # Until it is over, calls may begin by either.
        for widest in (self.width, *self.widest.values()):
            widest[server] = max(widest[server], width)
        async with bounded():
            assert (await self.gateway.reload(config)).result in ("success", "unchanged")
        self.width[server] = width


def configured(
    server: ScriptedServer, turns: int, size: int = 8, folder: Path | None = None, max_wait: str = "1s"
) -> GatewayConfig:
    section = {"path": "/reports/mcp", "url": server.url, "concurrency": turns}
    section |= {"queue": {"size": size, "max_wait": max_wait}, "circuit_breaker": None}
    limits = {"rate": [], "concurrency": {"tasks_per_context": 1000}}
    tasks = {"ttl": {"min": "50ms", "default": "1h", "max": "1h"}, "inline_grace": "5ms"}
    return configuration({}, folder=folder, upstreams={"reports": section}, limits=limits, tasks=tasks)


async def history(servers: Sequence[ScriptedServer], folder: Path | None, seed: int, end: Callable[..., Any]) -> None:
    async with serve(configured(servers[0], FIRST, folder=folder)) as gateway:
        crowd = Crowd(gateway, servers, folder, random.Random(seed))
        steps = 0
        # On a slow disk few calls are sent within the steps: then there are more steps.
        while steps < STEPS or len(crowd.seen) <= STEPS // 10:
            steps += 1
            assert steps <= 100 * STEPS, "hardly a call reaches the server"
            await crowd.step()
            assert crowd.beyond == [], "who makes a call has a slot, whoever moved the server, and back"
        await end(gateway, crowd)
        for task in tuple(crowd.tasks):
            task.cancel()
        if crowd.tasks:
            await asyncio.wait(crowd.tasks)
        await expect_all_given_back(gateway)
        assert set(crowd.seen.values()) <= {1}, "no call is sent twice"
        await gateway.shows("taskgate_tasks_running", 0)
    assert not set().union(*(server.live for server in servers)), "every session with a server has ended"


async def all_ends(gateway: Gateway, crowd: Crowd) -> None:
    async with bounded(10):
        while crowd.tasks:
            await asyncio.wait(tuple(crowd.tasks))
        await gateway.shows("taskgate_tasks_running", 0)
    await expect_all_given_back(gateway)
    # There are as many slots as there should be: no more, and no fewer.
    server, slow = crowd.servers[0], OneByOne()
    server.script["report"] = slow
    # None of the six that wait may be given up before all of them were seen.
    config = configured(server, 3, 16, crowd.folder, max_wait="1m")
    assert (await gateway.reload(config)).result in ("success", "unchanged")
    host = await gateway.greeted()
    calls = [asyncio.create_task(host.call("report")) for _ in range(9)]
    await gateway.upstream_is(in_use=3, queued=6)
    await slow.comes(3)
    assert len(slow.arrived) == 3
    slow.let_all_go()
    async with bounded():
        await asyncio.gather(*calls)
    assert await host.leave() == 200


async def drained(gateway: Gateway, crowd: Crowd) -> None:
    async with bounded(10):
        await gateway.drain()


@pytest.mark.parametrize("end", [all_ends, drained])
@pytest.mark.parametrize("kept", ["memory", "file"])
@pytest.mark.parametrize("seed", range(3))
async def test_no_slot_is_lost(server: ScriptedServer, tmp_path: Path, kept: str, seed: int, end: Any) -> None:
    await history([server], tmp_path if kept == "file" else None, seed, end)


@pytest.mark.parametrize("end", [all_ends, drained])
@pytest.mark.parametrize("seed", [1, 3, 8, 9])
async def test_nor_where_the_server_is_moved_to_and_fro(
    server: ScriptedServer, other: ScriptedServer, seed: int, end: Any
) -> None:
    other.tools = server.tools
    await history([server, other], None, seed, end)
