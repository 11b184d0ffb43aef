"""Gateways that are killed, or restarted one after the other, at the same addresses."""

import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from helpers.gateway_process import GatewayProcess, gateway_process, write_configuration
from helpers.ports import free_port
from helpers.several_gateways import key_file
from helpers.shared_store import SharedServer

AT = '{{listen: "${{LISTEN}}", drain: {{delay: 0s, timeout: {drain}}}}}'


class Gateway:
    """One gateway, which may be gone for a while."""

    def __init__(self, folder: Path, file: Path) -> None:
        self.listen = f"127.0.0.1:{free_port()}"
        self.is_up = False
        self._folder, self._file = folder, file
        self._starts = 0
        self._life = AsyncExitStack()
        self._process: GatewayProcess | None = None

    async def start(self) -> None:
        """Start it, and wait until it serves."""
        self._starts += 1
        environment = {"LISTEN": self.listen, "TASKGATE_DATA_DIR": str(self._folder / "data")}
        log = self._folder / f"gateway-{self._starts}.log"
        process = gateway_process(["--config", self._file], log=log, environment=environment)
        self._process = await self._life.enter_async_context(process)
        self.is_up = True

    async def kill(self) -> None:
        """End it as a machine does that loses its power."""
        assert self._process is not None, "it was started"
        self._process.kill()
        self.is_up = False
        await self.stop()

    async def restart(self) -> None:
        """End it as an orchestrator does, and start it again."""
        assert self._process is not None, "it was started"
        self.is_up = False
        self._process.ask(signal.SIGTERM)
        await self._process.child.process.wait()
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        """End it in whatever way it still can."""
        await self._life.aclose()


@asynccontextmanager
async def single(folder: Path, url: str, **sections: str) -> AsyncIterator[Gateway]:
    """A gateway over SQLite for the length of a block."""
    file = write_configuration(folder, url, **{"server": AT.format(drain="5s"), **sections})
    gateway = Gateway(folder, file)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


@asynccontextmanager
async def replicas(
    folder: Path, url: str, store: SharedServer, *, drain: str = "5s", **sections: str
) -> AsyncIterator[Sequence[Gateway]]:
    """Three gateways over one Valkey for the length of a block."""
    options = store.options()
    redis = f'{{url: "redis://{store.address}/0", key_prefix: "{options.key_prefix}"}}'
    shared = {
        "server": AT.format(drain=drain),
        "auth": f'{{mode: none, context: {{key_file: "{key_file(folder)}"}}}}',
        "audit": "{enabled: false}",
        "store": f"{{backend: redis, redis: {redis}, lease: {{ttl: 3s, heartbeat: 500ms}}}}",
    }
    file = write_configuration(folder, url, **{**shared, **sections})
    async with AsyncExitStack() as stack:
        gateways = []
        for name in ("one", "two", "three"):
            (own := folder / name).mkdir()
            gateways.append(gateway := Gateway(own, file))
            stack.push_async_callback(gateway.stop)
            await gateway.start()
        yield gateways
