"""A gateway in this process, on free ports, in front of any server that a test gives it.

The suites in `tests/interaction` reach the gateway through here alone. In go a configuration (sections as a file has
them), a clock, entropy, a store and a reading of memory (`Environment`); out come the answers of both listeners, with
the metrics page, the lines of the audit log, log lines and files. So the inside can be made anew below them.

The door, which is all of the package that this folder and the other helpers of those suites import:

- `taskgate.config` for a configuration, `taskgate.wiring.app` and `.build` for a gateway that runs it;
- `taskgate.clock` for the two protocols that a simulation implements, and the machine's own;
- `taskgate.stores.base`, `.open` and `taskgate.errors` for stores to hand in, and for wrappers of them that fail;
- `taskgate.admission.memory_pressure`, of which `Environment.pressure` is one; `taskgate` for the version.

`tests/house/test_interaction.py` holds them to it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp

from helpers import told
from helpers.host.host import NEWEST, Host
from helpers.loop_pace import LoopClock
from helpers.secrets import SHORTEST, noted
from helpers.virtual_time import is_virtual
from helpers.waiting import bounded, until
from taskgate import __version__
from taskgate.admission.memory_pressure import MemoryPressure
from taskgate.clock import Clock, SystemClock
from taskgate.config import GatewayConfig
from taskgate.errors import StoreFault, StoreUnavailable
from taskgate.stores.base import Store
from taskgate.stores.open import RedisOptions, open_store
from taskgate.wiring.app import Service
from taskgate.wiring.build import Environment

__all__ = [
    "Clock",
    "Environment",
    "Gateway",
    "MemoryPressure",
    "RedisOptions",
    "Reloaded",
    "Store",
    "StoreFault",
    "StoreUnavailable",
    "SystemClock",
    "__version__",
    "open_store",
    "serve",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What came of another configuration, as `/-/reload` says it."""

    result: str
    needs_restart: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A running gateway, and a way to knock at its doors."""

    service: Service
    http: aiohttp.ClientSession
    paths: Mapping[str, str]

    # --- hosts

    def host(self, mount: str = "reports", token: str | None = None, **more: Any) -> Host:
        """A host that has said nothing yet; `more` is as `Host` takes it."""
        return Host(self.http, self.url(mount), token, **more)

    def modern(self, mount: str = "reports", token: str | None = None, **more: Any) -> Host:
        """One of the modern era."""
        return self.host(mount, token, era="modern", **more)

    async def greeted(
        self, revision: str = NEWEST, mount: str = "reports", token: str | None = None, **more: Any
    ) -> Host:
        """A host that may ask: it has an open session, where its era has any."""
        host = self.host(mount, token, **more)
        await host.open(revision)
        return host

    def again(self, host: Host, mount: str = "reports") -> Host:
        """The same host as it comes here from another gateway: nothing is remembered but its session."""
        return host.again(self.url(mount), self.http)

    @property
    def address(self) -> tuple[str, int]:
        """Where hosts connect."""
        return self.service.address

    @property
    def origin(self) -> str:
        """The same as it stands in an address."""
        address, port = self.service.address
        return f"http://{address}:{port}"

    def url(self, mount: str = "reports") -> str:
        """Where hosts find a mount."""
        return f"{self.origin}{self.paths[mount]}"

    def with_paths(self, **paths: str) -> "Gateway":
        """The same gateway, which is known to have more mounts."""
        return replace(self, paths={**self.paths, **paths})

    # --- operators

    @property
    def operators_origin(self) -> str:
        """Where operators connect, as it stands in an address."""
        address, port = self.service.admin_address
        return f"http://{address}:{port}"

    @property
    def banner(self) -> list[str]:
        """What a terminal is told at the start."""
        return list(self.service.startup_report().lines())

    async def operators(self, path: str, verb: str = "GET", **headers: str) -> tuple[int, str]:
        """Status and body of a request to the operators' listener."""
        url = f"{self.operators_origin}{path}"
        async with bounded(), self.http.request(verb, url, headers=headers) as response:
            return response.status, await response.text()

    async def operators_answer(
        self, path: str, verb: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, Mapping[str, str], str]:
        """As `operators`, for a request with a body, and with the headers of the answer."""
        url = f"{self.operators_origin}{path}"
        async with bounded(), self.http.request(verb, url, data=body, headers=headers) as response:
            return response.status, response.headers, await response.text()

    async def ready(self) -> int:
        """The status of /readyz."""
        return (await self.operators("/readyz"))[0]

    async def readiness(self) -> dict[str, Any]:
        """What `/readyz?verbose` says."""
        found: dict[str, Any] = json.loads((await self.operators("/readyz?verbose"))[1])
        return found

    async def upstream(self, name: str = "reports") -> dict[str, Any]:
        """How a server does, as that says it: `up`, `circuit`, `in_use`, `limit`, `queued`."""
        found: dict[str, Any] = (await self.readiness())["upstreams"][name]
        return found

    async def upstream_is(self, name: str = "reports", **wanted: Any) -> None:
        """Wait until a server does as wanted."""
        await until(lambda: self.upstream(name), lambda found: found | wanted == found)

    async def metrics(self) -> str:
        """What a scrape shows."""
        return (await self.operators("/metrics"))[1]

    async def count(self, family: str, **labels: str) -> float:
        """The sum of the samples of a family that carry these labels."""
        return sum(
            value
            for line in (await self.metrics()).splitlines()
            if all(f'{key}="{label}"' in line for key, label in labels.items())
            for name, value in (_sample(line),)
            if name == family
        )

    async def counts(self, family: str, *labels: str, **only: str) -> dict[Any, float]:
        """The samples of a family that are not 0, by the values of one label, or of several.

        With `only`, those of samples that carry these labels.
        """
        found: dict[Any, float] = {}
        for line in (await self.metrics()).splitlines():
            name, value = _sample(line)
            if name == family and value and all(f'{key}="{label}"' in line for key, label in only.items()):
                values = tuple(line.partition(f'{label}="')[2].partition('"')[0] for label in labels)
                key = values[0] if len(labels) == 1 else values
                found[key] = found.get(key, 0) + value
        return found

    async def counted(self, family: str, times: float = 1, **labels: str) -> None:
        """Wait until a family has counted that often."""
        await until(lambda: self.count(family, **labels), lambda found: found >= times)

    async def shows(self, family: str, value: float, **labels: str) -> None:
        """Wait until a family shows exactly that."""
        await until(lambda: self.count(family, **labels), lambda found: found == value)

    async def reload(self, config: GatewayConfig) -> Reloaded:
        """Have another configuration take effect."""
        async with bounded():
            return Reloaded(**asdict(await self.service.reload(config)))

    async def reread(self) -> Reloaded:
        """Have the source of the configuration read again, as /-/reload does."""
        found = await self.service.reread()
        assert found is not None, "there is something to read"
        return Reloaded(**asdict(found))

    # --- its end

    async def drain(self, hurry: asyncio.Event | None = None) -> None:
        """What SIGINT does, short of the end; `hurry` is the second one."""
        await self.service.drain(delay=timedelta(), hurry=hurry or asyncio.Event())

    async def close(self) -> None:
        """End it at once, without a word to anybody."""
        async with bounded():
            await self.service.close()


def _sample(line: str) -> tuple[str, float]:
    """Name and value of a line of the metrics page; no name where it is none."""
    name, _, value = line.rpartition(" ")
    return ("", 0.0) if line.startswith("#") else (name.split("{")[0], float(value))


@asynccontextmanager
async def serve(
    config: GatewayConfig,
    environment: Environment | None = None,
    *,
    data_directory: Path | None = None,
    source: Callable[[], GatewayConfig] | None = None,
    watch: Any = None,
    explain: Callable[..., Awaitable[Mapping[str, Any]]] | None = None,
) -> AsyncIterator[Gateway]:
    """A gateway for the length of a block; `source` is what is read when its configuration is read again, `watch` a
    watch of its files, `explain` what its API explains calls with.

    What its metrics page shows at the end, and all that its audit log has in files, is judged as what else is told.
    """
    for upstream in config.upstreams.values():
        for secret in (upstream.credentials.value, upstream.credentials.client_secret):
            if secret is not None:
                noted(secret)
        for value in getattr(upstream, "headers", {}).values():
            if len(value) >= SHORTEST:
                noted(value)
        for value in upstream.env.values():
            if len(value) >= SHORTEST:
                noted(value)
    # Left out where nothing is reloaded, so that the landing before can be played as well.
    again: dict[str, Any] = {} if source is None else {"read_config": source}
    if watch is not None:
        again["watch"] = watch
    if explain is not None:
        again["explain"] = explain
    environment = environment or Environment()
    if is_virtual() and type(environment.clock) is SystemClock:
        environment = replace(environment, clock=LoopClock.of_today())
    service = Service(config, data_directory=data_directory, environment=environment, **again)
    # Every test has an end of its own; this one is not to come first where the loop is paced.
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as http:
        await service.start()
        paths = {name: section.path for name, section in config.upstreams.items()}
        gateway = Gateway(service=service, http=http, paths=paths)
        try:
            yield gateway
        finally:
            await _judged(gateway.metrics)
            await gateway.close()
            for sink in config.audit.sinks if config.audit.enabled else ():
                with suppress(OSError):
                    told.now().hear("" if sink.path is None else Path(sink.path).read_text(errors="replace"))


async def _judged(page: Callable[[], Awaitable[str]]) -> None:
    # It may have ended before, or show no metrics.
    with suppress(aiohttp.ClientError, TimeoutError):
        told.now().hear_page(await page())
