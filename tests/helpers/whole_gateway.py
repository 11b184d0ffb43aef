"""The whole gateway in this process, on free ports, in front of whatever server a test gives it.

The suites in `tests/interaction` come to the gateway through here: a configuration, clock, entropy, store and
transports go in, and bytes come out. What they need of the package for that is in `__all__`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp

from helpers.mcp_host import McpHost
from helpers.modern_host import ModernHost
from helpers.secrets import SHORTEST, noted
from taskgate.clock import SystemClock, SystemEntropy
from taskgate.config.model import GatewayConfig
from taskgate.errors import StoreFault, StoreUnavailable
from taskgate.stores.base import Store
from taskgate.stores.open import SqliteOptions, open_store
from taskgate.wiring.app import NOT_NOW, ConfigSource, Service
from taskgate.wiring.build import Environment, upstream_maker
from taskgate.wiring.reload import Reloaded

__all__ = [
    "NOT_NOW",
    "ConfigSource",
    "Environment",
    "GatewayConfig",
    "Reloaded",
    "Service",
    "SqliteOptions",
    "Store",
    "StoreFault",
    "StoreUnavailable",
    "SystemClock",
    "SystemEntropy",
    "WholeGateway",
    "configuration",
    "open_store",
    "running",
    "upstream_maker",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeGateway:
    """A running gateway, and a way to knock at its doors."""

    service: Service
    http: aiohttp.ClientSession
    paths: Mapping[str, str]

    def host(self, mount: str = "reports", token: str | None = None) -> McpHost:
        """A host that has said nothing yet."""
        return McpHost(self.http, self.url(mount), token)

    async def greeted(self, revision: str = "2025-11-25", mount: str = "reports", token: str | None = None) -> McpHost:
        """A host with an open session."""
        host = self.host(mount, token)
        await host.initialize(revision)
        return host

    def modern(self, mount: str = "reports", token: str | None = None, **more: Any) -> ModernHost:
        """A host of the modern era."""
        return ModernHost(self.http, self.url(mount), token, **more)

    def url(self, mount: str = "reports") -> str:
        """Where hosts find a mount."""
        address, port = self.service.address
        return f"http://{address}:{port}{self.paths[mount]}"

    async def metrics(self) -> str:
        """What a scrape shows."""
        return (await self._operators("/metrics"))[1]

    async def count(self, family: str, **labels: str) -> float:
        """The sum of the samples of a family that carry these labels."""
        total = 0.0
        for line in (await self.metrics()).splitlines():
            name, _, value = line.rpartition(" ")
            if name.split("{")[0] == family and all(f'{key}="{label}"' in name for key, label in labels.items()):
                total += float(value)
        return total

    async def ready(self) -> int:
        """The status of /readyz."""
        return (await self._operators("/readyz"))[0]

    async def drain(self) -> None:
        """What SIGINT does, short of the end."""
        await self.service.drain(delay=timedelta(), hurry=asyncio.Event())

    async def _operators(self, path: str) -> tuple[int, str]:
        address, port = self.service.admin_address
        async with self.http.get(f"http://{address}:{port}{path}") as response:
            return response.status, await response.text()


def configuration(servers: Mapping[str, str], *, folder: Path | None = None, **sections: Any) -> GatewayConfig:
    """A configuration for servers by name, on free ports; in memory unless a folder is given.

    Sections are written as in files, and laid over what is here. A server is spoken to in 2025-11-25, as the scripted
    one wants to be, and is asked nothing of the gateway's own accord, unless its own section says otherwise. Nobody is
    too fast unless `limits` has rates, and every host is told to ask for its tasks every two seconds, and may
    ask much more often.
    """
    store = {"backend": "memory"}
    if folder is not None:
        store = {"backend": "sqlite", "sqlite": {"path": str(folder / "taskgate.db")}}
    written = {
        "version": 1,
        "auth": {"mode": "none"},
        "server": {"listen": "127.0.0.1:0", "drain": {"delay": "0s", "timeout": "2s"}},
        "admin": {"listen": "127.0.0.1:0"},
        "upstreams": {name: {"path": f"/{name}/mcp", "url": url} for name, url in servers.items()},
        "tasks": {"poll_interval": {"adaptive": False, "jitter": 0}, "early_poll": {"reject_above": 1000}},
        "limits": {"rate": []},
        "store": store,
    }
    for name, section in sections.items():
        present = written.get(name)
        written[name] = {**present, **section} if isinstance(present, dict) else section
    usual = {"protocol_version": "2025-11-25", "health": None}
    written["upstreams"] = {name: usual | section for name, section in written["upstreams"].items()}
    return GatewayConfig.model_validate(written)


@asynccontextmanager
async def running(
    config: GatewayConfig, environment: Environment | None = None, *, data_directory: Path | None = None
) -> AsyncIterator[WholeGateway]:
    """A gateway for the length of a block."""
    for upstream in config.upstreams.values():
        for secret in (upstream.credentials.value, upstream.credentials.client_secret):
            if secret is not None:
                noted(secret)
        for value in upstream.env.values():
            if len(value) >= SHORTEST:
                noted(value)
    service = Service(config, data_directory=data_directory, environment=environment)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http:
        await service.start()
        try:
            paths = {name: section.path for name, section in config.upstreams.items()}
            yield WholeGateway(service=service, http=http, paths=paths)
        finally:
            async with asyncio.timeout(20):
                await service.close()
