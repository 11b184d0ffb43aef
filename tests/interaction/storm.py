"""Many callers who make, cancel and lose tasks all at once, and what the file of the store says meanwhile."""

import asyncio
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from time import time
from typing import Any

from helpers.gateway.gateway import Gateway
from helpers.host.host import ERAS, Host
from helpers.manual_clock import ManualClock
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer
from interaction.questions import DONE

TENANTS = {"ann": "red", "bob": "red", "cleo": "blue", "dora": "blue"}
MOUNTS = ("reports", "search")
TOOLS = ("report", "report", "report", "slow", "echo")
"""`report` and `slow` wait until they are released, `slow` becomes a task on its way where it can, `echo` ends."""
CAPS = {
    "tasks_per_context": 5,
    "tasks_per_tenant": 8,
    "tasks_per_tool": 9,
    "tasks_per_upstream": 11,
    "tasks_global": 13,
}
KEPT = 14 * 1024
DORA = 7
"""Dora may have more tasks than the others."""
SCOPES = dict(zip(("context", "tenant", "tool", "upstream", "global"), CAPS.values(), strict=True))


@dataclass(slots=True)
class Ledger:
    """The file of a store, as another reader sees it."""

    path: Path
    clock: ManualClock
    most: Counter[str] = field(default_factory=Counter)
    """The most that there ever was of each scope."""

    def unfinished(self) -> dict[str, Counter[Any]]:
        """How many unexpired tasks have not ended, by what caps count over."""
        with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as file:
            statement = "SELECT context, tenant, tool, upstream FROM tasks WHERE unfinished = 1 AND expires > ?"
            rows = file.execute(statement, (int(self.clock.now().timestamp() * 1_000_000),)).fetchall()
        columns = [*zip(*rows, strict=True)] or [()] * 4
        return {scope: Counter(column) for scope, column in zip(SCOPES, [*columns, [0] * len(rows)], strict=True)}

    def check(self) -> None:
        """No cap is exceeded now."""
        for scope, counts in self.unfinished().items():
            numbers = sorted(counts.values(), reverse=True)
            self.most[scope] = max(self.most[scope], *numbers, 0)
            if scope == "context":
                assert not numbers or numbers[0] <= DORA, numbers
                assert all(number <= SCOPES[scope] for number in numbers[1:]), numbers
            else:
                assert not numbers or numbers[0] <= SCOPES[scope], (scope, numbers)

    def kept(self) -> int:
        """How many tasks are kept, whatever became of them."""
        with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as file:
            ((count,),) = file.execute("SELECT count(*) FROM tasks").fetchall()
        return int(count)

    def sizes(self) -> Counter[bytes]:
        """How many bytes are kept of each context."""
        with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as file:
            return Counter(dict(file.execute("SELECT context, sum(body_size) FROM tasks GROUP BY context").fetchall()))

    def image(self, folder: Path) -> None:
        """Put into a folder what a process that is killed now leaves behind: nothing moves from the log meanwhile."""
        folder.mkdir()
        for name in ("taskgate.db", "taskgate.db-wal"):
            shutil.copyfile(self.path.with_name(name), folder / name)


class Storm:
    """What happens in one life of a gateway, in an order that depends on the seed alone."""

    def __init__(
        self, gateway: Gateway, server: ScriptedServer, issuer: TokenIssuer, ledger: Ledger, chance: Random
    ) -> None:
        self.gateway, self.server, self.issuer = gateway, server, issuer
        self.ledger, self.chance = ledger, chance
        self.hosts: dict[tuple[str, str, str], Host] = {}
        self.made: list[tuple[Host, str]] = []
        self.refusals: Counter[str] = Counter()
        self.ended = 0

    async def arrive(self) -> None:
        """A host of either era of every caller at every mount."""
        for name, tenant in TENANTS.items():
            for mount in MOUNTS:
                token = self.issuer.token(self.gateway.url(mount), subject=name, org=tenant, exp=int(time()) + 7200)
                for era in ERAS:
                    self.hosts[name, mount, era] = await self.gateway.greeted(mount=mount, token=token, era=era)

    def release(self) -> None:
        """Let every call that runs have its result."""
        hold = self.server.script.get("report")
        self.server.script["report"] = self.server.script["slow"] = Hold()
        if isinstance(hold, Hold):
            hold.release(DONE)

    async def rage(self, creates: int, others: int, abreast: int) -> None:
        """So many calls, and so many of everything else among them, `abreast` at once."""
        room = asyncio.Semaphore(abreast)

        async def in_its_turn(step: Any, chance: Random) -> None:
            async with room:
                await step(chance)

        steps: list[Any] = [self.create] * creates + [self.other] * others
        self.chance.shuffle(steps)
        raging = asyncio.gather(*(in_its_turn(step, Random(self.chance.random())) for step in steps))
        # Whoever still waits for an answer gets it, now and then.
        while not (await asyncio.wait((raging,), timeout=0.3))[0]:
            self.release()
        await raging

    async def create(self, chance: Random) -> None:
        """A call that is a task, or wants to be; some hosts leave before they hear of it."""
        host = self.hosts[chance.choice([*TENANTS]), chance.choice(MOUNTS), chance.choice(ERAS)]
        tool, arguments = chance.choice(TOOLS), {"text": "x" * chance.randint(1, 2000)}
        ttl = chance.choice([2_000, 20_000, 600_000])
        calling = asyncio.create_task(host.call_as_task(tool, arguments, task={"ttl": ttl}))
        patience = chance.choice([0.0, 0.01, 0.05, 20.0, 20.0, 20.0, 20.0])
        try:
            done, _ = await asyncio.wait((calling,), timeout=patience)
        finally:
            calling.cancel()
        if not done:
            await asyncio.wait((calling,))
        else:
            self.take(host, calling.result().message)
        self.ended += 1
        self.ledger.check()

    def take(self, host: Host, message: Any) -> None:
        """What a call came to."""
        if message is not None and "error" in message:
            data = message["error"]["data"]
            self.refusals[data.get("scope", data["reason"])] += 1
        elif message is not None:
            result = message["result"]
            task = result.get("task", result).get("taskId")
            if task is not None:
                self.made.append((host, task))

    async def other(self, chance: Random) -> None:
        """A cancel, an end of all calls that run, or time that passes."""
        what = chance.random()
        if what < 0.7 and self.made:
            host, task = chance.choice(self.made)
            await host.ask("tasks/cancel", {"taskId": task})
        elif what < 0.85:
            self.release()
        else:
            self.ledger.clock.advance(timedelta(seconds=chance.choice([0.5, 1, 3])))
        self.ledger.check()

    async def calm(self) -> None:
        """Return once no task runs any more, though nearly all are kept still."""
        while self.ledger.unfinished()["global"].total():
            self.release()
            await asyncio.wait((asyncio.ensure_future(self.gateway.ready()),))

    async def hoard(self, name: str, mount: str) -> None:
        """Have one caller make tasks, each after the one before has ended, until as much of them is kept as may be."""
        while True:
            answer = await self.hosts[name, mount, "modern"].call("report", {"text": "x" * 2000})
            assert answer.message is not None
            if "error" in answer.message:
                assert answer.error["data"]["reason"] == "bytes"
                self.refusals["bytes"] += 1
                return
            await self.calm()

    async def fill(self) -> Counter[str]:
        """Make tasks until nobody may make any more; whoever is refused is so by a cap that is full. How many."""
        made: Counter[str] = Counter()
        waiting = [(name, mount) for name in TENANTS for mount in MOUNTS]
        while waiting:
            name, mount = waiting.pop(0)
            answer = await self.hosts[name, mount, "modern"].call("report")
            assert answer.message is not None
            if "result" in answer.message:
                made[name] += 1
                waiting.append((name, mount))
                continue
            data = answer.error["data"]
            held = self.ledger.unfinished()[data["scope"]] if data["reason"] == "concurrency" else self.ledger.sizes()
            # Callers have limits of their own, so the fullest need not be the one that was refused.
            is_full = data["limit"] in held.values() if data["reason"] == "concurrency" else max(held.values()) >= KEPT
            assert is_full, (data, held)
            self.refusals[data["scope"] if data["reason"] == "concurrency" else data["reason"]] += 1
        return made
