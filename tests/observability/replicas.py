"""The last part of the scenario: two gateways that share a store, and what happens only to such.

One of them stands still for longer than its lease, their store goes away and comes back, and one is killed. What must
not live here: what a gateway goes through that is alone (`drive`), and what is expected of any of it.
"""

import asyncio
import signal
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from helpers.gateway.replicas import store_section
from helpers.ports import free_port
from helpers.prometheus_server import PrometheusServer
from helpers.secrets import noted
from helpers.store_server import SharedServer
from helpers.waiting import eventually
from observability.counting import Count
from observability.scene import Scene
from observability.stage import Gateway, gateway, scraped

PASSWORD = noted("the-password-of-the-store-of-the-scenario")
KEPT_FOR = 20_000
"""Milliseconds: a task that is to be taken over must not expire before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a replica left behind; `sinks` are the files of its audit log, and `status` how it ended."""

    sinks: Mapping[str, Path]
    scrapes: tuple[str, ...]
    log: str
    status: int


@dataclass(slots=True)
class Replica:
    """One of them, and where it is found: HOST:PORT."""

    folder: Path
    listen: str
    admin: str
    process: Gateway
    scrapes: list[str] = field(default_factory=list)

    def of(self, family: str, labels: str = "") -> str:
        """The series that it has of a family."""
        return f'{family}{{instance="{self.admin}"{labels}}}'

    def left(self, status: int) -> Left:
        """What is there once it has ended."""
        stdout = self.folder / "stdout"
        stdout.write_bytes(self.process.stdout)
        sinks = {"file": self.folder / "data" / "audit.jsonl", "stdout": stdout}
        return Left(sinks=sinks, scrapes=tuple(self.scrapes), log=self.process.log(), status=status)


class Replicas:
    """Plays it, with the servers, people and keys of those that were alone before, who had `config`."""

    def __init__(
        self, folder: Path, config: dict[str, Any], scene: Scene, count: Count, operator: aiohttp.ClientSession
    ) -> None:
        self.folder = folder
        self.served_until = 0.0
        """When the last of them was asked to end."""
        self.wrong_rules: list[str] = []
        self._config = config
        self._scene = scene
        self._count = count
        self._operator = operator

    async def play(self) -> tuple[Left, ...]:
        """All of it; what is left of the one that is killed, and then of the other."""
        self._scene.secrets.add(PASSWORD)
        self._store = SharedServer(self.folder, durable=True, password=PASSWORD)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._store)
            one, other = await asyncio.gather(self._started(stack, "one"), self._started(stack, "other"))
            self.prometheus = await stack.enter_async_context(PrometheusServer(self.folder, one.admin, other.admin))
            await self.prometheus.has_seen_all()
            await self._stand_still(one, other)
            await self._lose_the_store(one, other)
            for replica in (one, other):
                replica.scrapes.append(await scraped(self._operator, replica.admin))
            killed = await self._kill(one, other)
            other.scrapes.append(await scraped(self._operator, other.admin))
            self.wrong_rules = await self.prometheus.wrong_rules()
            self.served_until = time.time()
            other.process.ask(signal.SIGTERM)
            return one.left(killed), other.left(await other.process.ended())

    async def _started(self, stack: AsyncExitStack, name: str) -> Replica:
        folder = self.folder / name
        folder.mkdir()
        listen, admin = (f"127.0.0.1:{free_port()}" for _ in range(2))
        process = await stack.enter_async_context(gateway(folder, name, self._configuration(listen, admin)))
        return Replica(folder, listen, admin, process)

    def _configuration(self, listen: str, admin: str) -> dict[str, Any]:
        config, keys = self._config, self.folder / "data"
        sinks = [sink for sink in config["audit"]["sinks"] if sink["name"] != "spare"]
        return {
            **config,
            "server": {**config["server"], "listen": listen},
            "admin": {**config["admin"], "listen": admin},
            "auth": {**config["auth"], "context": {"key_file": str(keys / "context.key")}},
            "audit": {**config["audit"], "sinks": sinks, "hmac_key_file": str(keys / "audit.key")},
            "store": {**store_section(self._store.options(key_prefix="scenario:")), "purge_interval": "200ms"},
        }

    def _at(self, replica: Replica) -> Scene:
        return self._scene.elsewhere(replica.listen, self.prometheus)

    async def _stand_still(self, one: Replica, other: Replica) -> None:
        """A task is taken for lost, since whoever runs it gives no sign of life; then that one does again."""
        scene = self._at(one)
        await scene.started(await scene.legacy("alice", "desk"), "slow", ttl=KEPT_FOR)
        await self.prometheus.until(f"sum({one.of('taskgate_tasks_running')}) > 0")
        one.process.ask(signal.SIGSTOP)
        try:
            await self.prometheus.until(f"sum({other.of('taskgate_task_recoveries_total')}) > 0")
        finally:
            one.process.ask(signal.SIGCONT)
        await self.prometheus.until(f"{one.of('taskgate_leases_lost_total')} > 0")
        await self.prometheus.has_seen_all()

    async def _lose_the_store(self, *replicas: Replica) -> None:
        """What needs no task goes on without it, by rates that each judges for itself."""
        await asyncio.to_thread(self._store.stop)
        for _ in range(2):
            for replica in replicas:
                host = await self._at(replica).modern("alice", "desk", tasks=False)
                await host.call("sleepy")
            await self.prometheus.has_seen_all()
        await self._all_show(replicas, 0)
        await asyncio.to_thread(self._store.start)
        await self._all_show(replicas, 1)

    async def _all_show(self, replicas: tuple[Replica, ...], value: int) -> None:
        for replica in replicas:
            for family in ("taskgate_store_up", "taskgate_ready"):
                await self.prometheus.until(f"{replica.of(family)} == {value}")

    async def _kill(self, one: Replica, other: Replica) -> int:
        """Tasks lose the process that runs them; the exit status of that."""
        scene = self._at(one)
        host = await scene.legacy("alice", "desk")
        for tool in ("slow", "again"):
            await scene.started(host, tool, ttl=KEPT_FOR)
        await eventually(lambda: self._count.is_told(self.folder))
        one.process.ask(signal.SIGKILL)
        status = await one.process.ended()
        recovered = other.of("taskgate_task_recoveries_total", ',outcome="retried"')
        await self.prometheus.until(f"sum({recovered}) > 0")
        recovered = other.of("taskgate_task_recoveries_total", ',outcome="failed"')
        await self.prometheus.until(f"sum({recovered}) > 1")
        return status
