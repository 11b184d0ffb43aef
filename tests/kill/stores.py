"""The stores that a gateway is killed over: what they are, how it dies there, and what is left of them afterwards."""

import asyncio
from base64 import urlsafe_b64encode
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Literal

from example.processes import Child

from helpers.gateway.process import TASKGATE
from helpers.power_cut import TracedDisk
from helpers.store_server import SharedServer

LEASE, HEARTBEAT = 1.0, 0.3
Name = Literal["sqlite", "sqlite-power-cut", "valkey", "valkey-killed"]


class Embedded:
    """SQLite. `sections` are the lines of a configuration, and `longest` the most seconds of a life after its start."""

    longest = 1.5

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        self.sections = {"store": f'{{sqlite: {{path: "{self.data}/taskgate.db"}}}}'}

    def program(self) -> list[str | Path]:
        """What is started."""
        return [TASKGATE]

    async def kill(self, gateway: Child, chance: Random) -> None:
        """Kill the gateway."""
        gateway.process.kill()

    async def recover(self, gateway: Child, chance: Random) -> None:
        """Do what is to be done between the end of that gateway and the start of the next."""


class PoweredOff(Embedded):
    """SQLite on a machine that loses its power with the kill: what was not synced may be gone, of any file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._disk = TracedDisk(self.data, folder / "calls")

    def program(self) -> list[str | Path]:
        return [*self._disk.command(), TASKGATE]

    async def recover(self, gateway: Child, chance: Random) -> None:
        await self._disk.cut(gateway.process.pid, chance)


class Shared(Embedded):
    """A Valkey that lives on when gateways die."""

    longest = 3 * LEASE

    def __init__(self, folder: Path, server: SharedServer) -> None:
        super().__init__(folder)
        self._server = server
        for name in ("context", "audit"):
            (folder / f"{name}.key").write_text(urlsafe_b64encode(name.encode().ljust(32)).decode() + "\n")
            (folder / f"{name}.key").chmod(0o600)
        lease = f"{{ttl: {LEASE * 1000:.0f}ms, heartbeat: {HEARTBEAT * 1000:.0f}ms}}"
        self.sections = {
            "auth": f'{{mode: none, context: {{key_file: "{folder}/context.key"}}}}',
            "audit": f'{{hmac_key_file: "{folder}/audit.key"}}',
            "store": f'{{backend: redis, redis: {{url: "redis://{server.address}/0"}}, lease: {lease}}}',
        }


class Falling(Shared):
    """A Valkey that syncs each write, and is killed, too: with the gateway, or before it, and perhaps back by then."""

    async def kill(self, gateway: Child, chance: Random) -> None:
        if chance.random() < 0.7:
            await asyncio.to_thread(self._server.kill)
            await asyncio.sleep(chance.random() * LEASE)
            if chance.random() < 0.5:
                await asyncio.to_thread(self._server.start)
                await asyncio.sleep(chance.random() * LEASE)
        gateway.process.kill()
        await asyncio.to_thread(self._server.kill)

    async def recover(self, gateway: Child, chance: Random) -> None:
        await asyncio.to_thread(self._server.start)


async def opened(name: Name, folder: Path, stack: AsyncExitStack) -> Embedded:
    """The store of that name, with what it needs for as long as the stack is open."""
    match name:
        case "sqlite":
            return Embedded(folder)
        case "sqlite-power-cut":
            return PoweredOff(folder)
        case "valkey":
            return Shared(folder, await stack.enter_async_context(SharedServer(folder)))
        case "valkey-killed":
            return Falling(folder, await stack.enter_async_context(SharedServer(folder, durable=True)))
