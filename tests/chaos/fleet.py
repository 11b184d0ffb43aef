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
from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import Replica
from helpers.ports import free_port
from helpers.shared_store import SharedServer
from helpers.token_issuer import TokenIssuer

LEASE, HEARTBEAT = 3.0, 1.0
PREFIX = "chaos:"
AUDIENCE = "http://chaos.example"


class Fleet:
    """All of them."""

    def __init__(self, store: SharedServer, replicas: Sequence[Replica], ways: Sequence[Stretch]) -> None:
        self.store = store
        self.replicas = replicas
        self._ways = ways
        self._busy = [asyncio.Lock() for _ in replicas]
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
            case Fault.FREEZE:
                async with self._busy[planned.replica]:
                    process = self.replicas[planned.replica].process
                    process.ask(signal.SIGSTOP)
                    await asyncio.sleep(planned.length)
                    process.ask(signal.SIGCONT)
            case _:
                async with self._busy[planned.replica]:
                    replica = self.replicas[planned.replica]
                    await replica.end(signal.SIGKILL if planned.fault is Fault.KILL else signal.SIGTERM)
                    await asyncio.sleep(planned.length)
                    await replica.start()


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
            listen = f"127.0.0.1:{free_port()}"
            file = _configure(own, url, issuer, listen=listen, store=way.port, cap=cap)
            ways.append(way)
            replicas.append(Replica(own, file, listen))
        try:
            await asyncio.gather(*(replica.start() for replica in replicas))
            yield Fleet(store, replicas, ways)
        finally:
            for way in ways:
                way.way = Way.OPEN
            await asyncio.gather(*(replica.stop() for replica in replicas))


def _configure(folder: Path, url: str, issuer: TokenIssuer, *, listen: str, store: int, cap: int) -> Path:
    keys = folder.parent
    redis = f'{{url: "redis://127.0.0.1:{store}/0", key_prefix: "{PREFIX}", timeouts: {{connect: 1s, command: 1s}}}}'
    lease = f"{{ttl: {LEASE * 1000:.0f}ms, heartbeat: {HEARTBEAT * 1000:.0f}ms}}"
    issued = f'{{issuer: "{issuer.issuer}", jwks_file: "{issuer.file}", audience: ["{AUDIENCE}"]}}'
    return write_configuration(
        folder,
        url,
        server={"listen": listen, "drain": {"delay": "0s", "timeout": "2s"}, "public_url": f"http://{listen}"},
        auth=f'{{mode: required, issuers: {{corp: {issued}}}, context: {{key_file: "{keys}/context.key"}}}}',
        store=f"{{backend: redis, redis: {redis}, lease: {lease}}}",
        audit={"hmac_key_file": f"{keys}/audit.key"},
        limits=f"{{rate: [], concurrency: {{tasks_per_context: {cap}}}}}",
        tasks={"ttl": {"default": "1h"}},
    )
