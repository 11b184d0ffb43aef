"""Three gateways over one store, each with a network of its own to it, and the faults that befall them.

What must not live here: what hosts do meanwhile (`hosts`), and when what happens (`schedule`).
"""

import asyncio
import signal
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from chaos.network import Stretch, Way
from chaos.schedule import Fault, Planned
from helpers.gateway_process import GatewayProcess, gateway_process, write_configuration
from helpers.ports import free_port
from helpers.shared_store import SharedServer
from helpers.token_issuer import TokenIssuer

LEASE, HEARTBEAT = 3.0, 1.0
PREFIX = "chaos:"
AUDIENCE = "http://chaos.example"
MOUNT = "/reports/mcp"


class Replica:
    """One gateway, which may be gone for a while; it always listens at the same port."""

    def __init__(self, name: str, folder: Path, port: int) -> None:
        self.name = name
        self.port = port
        self.url = f"http://127.0.0.1:{port}{MOUNT}"
        self.starts = 0
        self._folder = folder
        self._life = AsyncExitStack()
        self._gateway: GatewayProcess | None = None
        self._busy = asyncio.Lock()

    async def start(self) -> None:
        """Start it, and wait until it serves."""
        self.starts += 1
        log = self._folder / f"life-{self.starts}.log"
        data = {"TASKGATE_DATA_DIR": str(self._folder / "data")}
        arguments = ["--config", self._folder / "taskgate.yaml"]
        self._gateway = await self._life.enter_async_context(gateway_process(arguments, log=log, environment=data))

    async def end(self) -> None:
        """End it in whatever way it still can."""
        gateway, self._gateway = self._gateway, None
        if gateway is not None and gateway.child.process.returncode is None:
            gateway.ask(signal.SIGCONT)
        await self._life.aclose()

    async def suffer(self, fault: Fault, length: float) -> None:
        """Have that happen, and be well again afterwards. One after the other."""
        async with self._busy:
            assert self._gateway is not None
            if fault is Fault.FREEZE:
                self._gateway.ask(signal.SIGSTOP)
                await asyncio.sleep(length)
                self._gateway.ask(signal.SIGCONT)
                return
            self._gateway.ask(signal.SIGKILL if fault is Fault.KILL else signal.SIGTERM)
            await self._gateway.exit_status()
            await self._life.aclose()
            await asyncio.sleep(length)
            await self.start()


class Fleet:
    """All of them."""

    def __init__(self, store: SharedServer, replicas: Sequence[Replica], ways: Sequence[Stretch]) -> None:
        self.store = store
        self.replicas = replicas
        self._ways = ways
        self._store_busy = asyncio.Lock()

    async def suffer(self, planned: Planned) -> None:
        """Have a fault happen from now on, for as long as planned."""
        match planned.fault:
            case Fault.STORE_KILL:
                async with self._store_busy:
                    await asyncio.to_thread(self.store.kill)
                    await asyncio.sleep(planned.length)
                    await asyncio.to_thread(self.store.start)
            case Fault.STORE_FREEZE:
                async with self._store_busy:
                    self.store.pause()
                    await asyncio.sleep(planned.length)
                    self.store.resume()
            case Fault.SILENCE | Fault.BREAK:
                way = self._ways[planned.replica]
                way.way = Way.SILENT if planned.fault is Fault.SILENCE else Way.BROKEN
                await asyncio.sleep(planned.length)
                way.way = Way.OPEN
            case _:
                await self.replicas[planned.replica].suffer(planned.fault, planned.length)


@asynccontextmanager
async def running_fleet(
    folder: Path, url: str, issuer: TokenIssuer, *, cap: int, size: int = 3
) -> AsyncIterator[Fleet]:
    """A fleet in front of the server at `url` for the length of a block, in which each caller may have `cap` tasks."""
    for name in ("context", "audit"):
        (folder / f"{name}.key").write_text(urlsafe_b64encode(name.encode().ljust(32)).decode() + "\n")
        (folder / f"{name}.key").chmod(0o600)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(SharedServer(folder, durable=True))
        replicas, ways = [], []
        for number in range(size):
            way = await stack.enter_async_context(Stretch(("127.0.0.1", store.port)))
            own = folder / f"replica-{number}"
            own.mkdir()
            port = free_port()
            _configure(own, url, issuer, port=port, store=way.port, cap=cap)
            ways.append(way)
            replicas.append(Replica(own.name, own, port))
        try:
            await asyncio.gather(*(replica.start() for replica in replicas))
            yield Fleet(store, replicas, ways)
        finally:
            for way in ways:
                way.way = Way.OPEN
            await asyncio.gather(*(replica.end() for replica in replicas))


def _configure(folder: Path, url: str, issuer: TokenIssuer, *, port: int, store: int, cap: int) -> None:
    keys = folder.parent
    redis = f'{{url: "redis://127.0.0.1:{store}/0", key_prefix: "{PREFIX}", timeouts: {{connect: 1s, command: 1s}}}}'
    lease = f"{{ttl: {LEASE * 1000:.0f}ms, heartbeat: {HEARTBEAT * 1000:.0f}ms}}"
    issued = f'{{issuer: "{issuer.issuer}", jwks_file: "{issuer.file}", audience: ["{AUDIENCE}"]}}'
    write_configuration(
        folder,
        url,
        server=f'{{listen: "127.0.0.1:{port}", drain: {{delay: 0s, timeout: 2s}}, public_url: "http://127.0.0.1:{port}"}}',
        auth=f'{{mode: required, issuers: {{corp: {issued}}}, context: {{key_file: "{keys}/context.key"}}}}',
        store=f"{{backend: redis, redis: {redis}, lease: {lease}}}",
        audit=f'{{hmac_key_file: "{keys}/audit.key"}}',
        limits=f"{{rate: [], concurrency: {{tasks_per_context: {cap}}}}}",
        tasks="{ttl: {default: 1h}}",
    )
