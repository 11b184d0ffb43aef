"""One caller that takes all it may does not take what another needs: slots of a server, and time."""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import aiohttp
import pytest

from attacks.watch import watching
from helpers.gateway.process import GatewayProcess, serve_process
from helpers.host.host import Host
from helpers.server import ScriptedServer, Turn, result
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded, eventually
from requirements import covers

pytestmark = [pytest.mark.attack, pytest.mark.alone]

AUDIENCE = "https://mcp.example.com/reports"
SLOTS = 32
TAKES = 0.03  # seconds that a usual call takes at the server
PAUSE = 0.2  # seconds between calls of the hostile caller, as the default rate allows
PEACE = ("ann", "bob", "cleo")
WAR = (("dora", "emil", "fred"), ("gus", "hal", "ida"), ("jo", "kim", "lee"))
EACH = 20  # calls that each neighbour makes, as the default burst allows


class Stage:
    """A gateway with default limits, before a server whose tool `slow` answers at the end alone."""

    def __init__(
        self, gateway: GatewayProcess, server: ScriptedServer, issuer: TokenIssuer, http: aiohttp.ClientSession
    ):
        self.gateway, self.server = gateway, server
        self.over = asyncio.Event()
        self.slow = 0
        self._issuer, self._http = issuer, http
        server.script["slow"], server.script["quick"] = self._answer_late, self._answer

    async def host(self, name: str) -> Host:
        """A host of one caller, greeted."""
        token = self._issuer.token(AUDIENCE, subject=name)
        host = self.gateway.host(self._http, token)
        await host.initialize()
        return host

    async def seconds(self, names: Sequence[str]) -> list[float]:
        """How long each call took of callers who make theirs one after another, side by side; none is refused."""

        async def of(name: str) -> list[float]:
            host, took = await self.host(name), []
            for _ in range(EACH):
                begun = time.perf_counter()
                assert (await host.call("quick")).result["content"] == []
                took.append(time.perf_counter() - begun)
            return took

        return sorted(each for some in await asyncio.gather(*map(of, names)) for each in some)

    async def attack(self) -> None:
        """Slow calls of one caller, a burst and then as fast as its rate allows; looks about as often, too."""
        mallory = await self.host("mallory")
        calls = [asyncio.create_task(mallory.call("slow")) for _ in range(20)]
        for number in count():
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await self.over.wait()
            if self.over.is_set():
                break
            calls.append(asyncio.create_task(mallory.call("slow")))
            if number % 2:
                calls.append(asyncio.create_task(mallory.ask("tools/list")))
        for each in await asyncio.gather(*calls):
            assert each.status == 200

    async def _answer(self, turn: Turn) -> object:
        await self._rest()
        return await result({"content": []})(turn)

    async def _answer_late(self, turn: Turn) -> object:
        self.slow += 1
        await self.over.wait()
        return await result({"content": []})(turn)

    async def _rest(self) -> None:
        rested = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(TAKES, rested.set_result, None)
        await rested


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    """The stage, for the length of a block; what is slow is let go at its end."""
    issuer = TokenIssuer(folder)
    auth = f'{{mode: required, issuers: {{corp: {{issuer: "{issuer.issuer}", jwks_file: "{issuer.file}", '
    auth += f'audience: ["{AUDIENCE}"]}}}}}}'
    async with (
        ScriptedServer() as server,
        serve_process(folder, server.url, auth=auth, limits={}) as gateway,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        stage = Stage(gateway, server, issuer, http)
        try:
            yield stage
        finally:
            stage.over.set()


def told(name: str, seconds: list[float]) -> float:
    """Prints the median, the 99th percentile and the most of what calls took; returns the second."""
    p99 = statistics.quantiles(seconds, n=100, method="inclusive")[98]
    sys.stdout.write(f"{name}: median {statistics.median(seconds):.3f} s, p99 {p99:.3f} s, most {seconds[-1]:.3f} s\n")
    return p99


@covers("T46")
async def test_a_caller_who_takes_every_slot_that_it_may_moves_the_calls_of_others_by_less_than_twice(
    tmp_path: Path,
) -> None:
    async with bounded(50), staged(tmp_path) as stage:
        in_peace = told("neighbours in peace", await stage.seconds(PEACE))
        attack = asyncio.create_task(stage.attack())
        async with watching(stage.gateway, "one caller in every slot"):
            await eventually(lambda: stage.slow >= SLOTS - SLOTS // 8)
            # What else the machine does only adds: the least of several counts.
            in_war = min([told("neighbours of it", await stage.seconds(names)) for names in WAR])
        assert stage.slow == SLOTS - SLOTS // 8, "one of every eight was kept"
        stage.over.set()
        await attack
        assert in_war < 2 * in_peace
