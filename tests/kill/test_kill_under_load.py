"""kill -9 at any instant, again and again: whatever was acknowledged is found, ends, and ran at most once.

Instants of the start, of the recovery that follows and of the load are drawn. On SQLite the same is done with a power
cut at each kill, on Valkey with kills of that as well.
"""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import get_args

import aiohttp
import pytest
from example.processes import Child

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process, serving, starting_gateway
from helpers.host.host import Host
from helpers.server import ScriptedServer
from kill import stores
from kill.books import LOST, TOOL, Books, check, check_until_gone, create_until_gone

CYCLES = int(os.environ.get("KILL_CYCLES", "5"))
SEED = os.environ.get("KILL_SEED", "2")
HOSTS = 4
PAUSE = 0.04
PATIENCE = 60.0
LIMITS = "{rate: [], concurrency: {tasks_per_context: 100000, tasks_global: 100000, kept_per_context: null}}"


class Deployment:
    """One gateway after the other over one store, and the hosts, whose sessions outlive them as their tasks do."""

    def __init__(self, store: stores.Embedded, books: Books, hosts: list[Host]) -> None:
        self._store, self._books, self._hosts = store, books, hosts
        self._start = 0.0

    async def live(self, child: Child, chance: Random) -> None:
        """Have a gateway live and die, one in four of them while it starts."""
        if self._start and chance.random() < 0.25:
            await asyncio.sleep(chance.random() * self._start)
            await self._kill(child, chance)
        else:
            begun = asyncio.get_running_loop().time()
            await self.reach((await serving(child)).listen)
            self._start = asyncio.get_running_loop().time() - begun
            await self._serve(child, chance)

    async def _serve(self, child: Child, chance: Random) -> None:
        """Have it die while it serves the hosts, rather sooner than later: it has the most to do at first."""
        checking, *making = self._hosts
        # In turn: without pauses most calls wait for their turn, with pauses most are sent at once.
        pause = self._books.life % 2 * PAUSE
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as doing:
            for host in making:
                doing.create_task(create_until_gone(host, self._books, pause))
            # Its draws are as many as it has time for: those of the kills stay the same.
            doing.create_task(check_until_gone(checking, self._books, Random(self._books.life)))
            await asyncio.sleep(chance.random() ** 2 * self._store.longest)
            await self._kill(child, chance)

    async def _kill(self, child: Child, chance: Random) -> None:
        await self._store.kill(child, chance)
        await child.process.wait()

    async def reach(self, listen: str) -> None:
        """Have the hosts speak to the gateway that listens there; at first each opens its session."""
        for host in self._hosts:
            host.url = f"http://{listen}/reports/mcp"
            if host.session is None:
                await host.initialize()

    async def judge(self) -> None:
        """Ask for every task that was ever acknowledged."""
        tasks, hosts = list(self._books.acknowledged), self._hosts
        async with asyncio.TaskGroup() as checking:
            for number, host in enumerate(hosts):
                checking.create_task(check(host, self._books, tasks[number :: len(hosts)]))


@pytest.mark.kill
@pytest.mark.timeout(120 + 15 * CYCLES)
@pytest.mark.parametrize("name", get_args(stores.Name))
async def test_what_was_acknowledged_survives_every_kill_and_ran_at_most_once(
    name: stores.Name, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    books = Books()
    async with ScriptedServer() as server, aiohttp.ClientSession() as http, AsyncExitStack() as stack:
        store = await stores.opened(name, tmp_path, stack)
        server.tools = [{"name": TOOL, "inputSchema": {"type": "object"}}]
        server.script[TOOL] = books.run
        # Fewer calls at once than hosts make, so that tasks wait for their turn where hosts do not pause.
        upstream = f'{{path: /reports/mcp, url: "{server.url}", health: null, concurrency: 6, queue: {{size: 32}}}}'
        sections = {"limits": LIMITS, "upstreams": f"{{reports: {upstream}}}", **store.sections}
        arguments = ["--config", write_configuration(tmp_path, server.url, **sections)]
        arguments += ["--loop", request.config.getoption("--loop")]
        data = {"TASKGATE_DATA_DIR": str(store.data)}
        hosts = [Host(http, "") for _ in range(1 + HOSTS)]
        deployment = Deployment(store, books, hosts)
        for books.life in range(CYCLES):
            log, chance = tmp_path / f"{books.life}.log", Random(f"{SEED} {name} {books.life}")
            async with starting_gateway(arguments, log=log, environment=data, program=store.program()) as child:
                await deployment.live(child, chance)
            assert books.wrong() == {}, str(books)
            await store.recover(child, chance)
        books.life = CYCLES
        async with gateway_process(arguments, log=tmp_path / "last.log", environment=data) as gateway:
            await deployment.reach(gateway.listen)
            await deployment.judge()
    print(f"{name}, seed {SEED}, {books}")  # noqa: T201 - what it came to belongs into the report of every run
    assert len(books.ends) == len(books.acknowledged) > CYCLES
    assert books.wrong() == {}
    assert LOST in books.ends.values(), "no kill fell into a running call: the test shows too little"
    # A few cycles on a slow machine may have no such kill.
    assert books.waited or CYCLES < 20, "no kill fell into a task that waited for its turn: the test shows too little"
