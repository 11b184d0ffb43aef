"""One run: a fleet, its hosts, the faults of a seed, and the last look at every task.

What must not live here: what is judged (`checker`).
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from random import Random

import aiohttp

from chaos.fleet import AUDIENCE, LEASE, PREFIX, Fleet, running_fleet
from chaos.history import History, Kind, Seen
from chaos.hosts import TOOLS, Caller, Scene
from chaos.network import Stretch
from chaos.schedule import Planned, plan
from chaos.sdk_hosts import OfficialCaller
from helpers.server import ScriptedServer
from helpers.token_issuer import TokenIssuer

CAP = 12
CALLERS = ("alice", "bob", "carol")
LIVES = 3
OFFICIAL = 2
SETTLED_WITHIN = 4 * LEASE + 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run left behind; `eternal` are the keys that the store would keep for ever."""

    seed: int
    faults: list[Planned]
    history: History
    eternal: list[bytes]

    def __str__(self) -> str:
        seen: dict[str, int] = {}
        for each in self.history.operations:
            name = f"{each.kind} {each.seen}"
            seen[name] = seen.get(name, 0) + 1
        made = len({each.task for each in self.history.operations if each.kind is Kind.CREATE and each.task})
        counts = ", ".join(f"{name}: {number}" for name, number in sorted(seen.items()))
        faults = "\n".join(f"  {fault}" for fault in self.faults)
        ran = len(self.history.executions)
        return f"seed {self.seed}: {made} tasks, {ran} calls ran; {counts}\n{faults}"


async def run(seed: int, folder: Path, *, seconds: float) -> Run:
    """Play for so many seconds, heal everything, and look at every task until it has ended or has had the time to."""
    chance = Random(seed)
    issuer = TokenIssuer(folder)
    async with ScriptedServer() as server, aiohttp.ClientSession() as http:
        server.tools = TOOLS
        async with running_fleet(folder, server.url, issuer, cap=CAP) as fleet:
            scene = Scene(http, [replica.url() for replica in fleet.replicas], chance)
            scene.history.cap = CAP
            server.script["work"] = scene.work
            callers = [Caller(scene, name, issuer.token(AUDIENCE, subject=name)) for name in CALLERS]
            for caller in callers:
                await caller.open()
            faults = plan(seed, seconds=seconds, replicas=len(fleet.replicas), lease=LEASE)
            until = scene.now() + seconds
            lives = [caller.live(until) for caller in callers for _ in range(LIVES)]
            async with Stretch(*(replica.address for replica in fleet.replicas)) as balancer:
                # The first caller again, with tasks of its own beside.
                url, token = f"http://127.0.0.1:{balancer.port}/reports/mcp", issuer.token(AUDIENCE, subject=CALLERS[0])
                lives += [OfficialCaller(scene, CALLERS[0], token, url).live(until) for _ in range(OFFICIAL)]
                await asyncio.gather(_befall(fleet, faults), *lives)
            await _last_looks(scene, {caller.name: caller for caller in callers})
            eternal = await asyncio.to_thread(fleet.store.without_expiry, PREFIX)
            return Run(seed=seed, faults=faults, history=scene.history, eternal=eternal)


async def _befall(fleet: Fleet, faults: list[Planned]) -> None:
    begun = asyncio.get_running_loop().time()
    suffering = []
    for fault in faults:
        await asyncio.sleep(max(0.0, begun + fault.at - asyncio.get_running_loop().time()))
        suffering.append(asyncio.create_task(fleet.suffer(fault)))
    await asyncio.gather(*suffering)


async def _last_looks(scene: Scene, callers: dict[str, Caller]) -> None:
    until = scene.now() + SETTLED_WITHIN

    async def look(task: str, caller: Caller) -> None:
        while not (await caller.get(task)).is_end and scene.now() < until:
            await asyncio.sleep(0.25)
        while await caller.outcome(task) in (Seen.NO_ANSWER, Seen.REFUSED) and scene.now() < until:
            await asyncio.sleep(0.25)

    await asyncio.gather(*(look(task, callers[owner]) for task, owner in scene.known))
