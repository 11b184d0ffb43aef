"""Several whole gateways in this process that share a real store, as replicas do, in front of one scripted server.

Hosts walk from one to another: `at` is the same host as it would come to another gateway.
"""

from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import Any

from helpers.mcp_host import McpHost
from helpers.modern_host import ModernHost
from helpers.waiting import bounded, until
from helpers.whole_gateway import (
    Clock,
    Environment,
    RedisOptions,
    SystemClock,
    WholeGateway,
    configuration,
    running,
)

HEARTBEAT = timedelta(seconds=0.2)
LEASE = timedelta(seconds=2)


def store_section(options: RedisOptions) -> dict[str, Any]:
    """The section `store` that leads to a server."""
    redis = {
        "url": f"redis://{options.host}:{options.port}/{options.database}",
        "key_prefix": options.key_prefix,
        "password": options.password,
    }
    lease = {"ttl": f"{LEASE.total_seconds():g}s", "heartbeat": f"{HEARTBEAT.total_seconds() * 1000:g}ms"}
    return {"backend": "redis", "redis": {key: value for key, value in redis.items() if value}, "lease": lease}


def key_file(folder: Path, name: str = "context.key") -> Path:
    """A key that all gateways have."""
    file = folder / name
    if not file.exists():
        file.write_bytes(urlsafe_b64encode(token_bytes(32)).rstrip(b"=") + b"\n")
        file.chmod(0o600)
    return file


@asynccontextmanager
async def several(
    count: int, servers: Mapping[str, str], options: RedisOptions, folder: Path, **sections: Any
) -> AsyncIterator[list[WholeGateway]]:
    """So many gateways that know of each other, for the length of a block; `clocks` are theirs, one for each."""
    clocks: Iterable[Clock] = sections.pop("clocks", [SystemClock() for _ in range(count)])
    auth = sections.pop("auth", {"mode": "none"})
    auth = {**auth, "context": {**auth.get("context", {}), "key_file": str(key_file(folder))}}
    audit = {"enabled": False}
    store = store_section(options)
    config = configuration(servers, **{"auth": auth, "audit": audit, "store": store, **sections})
    async with AsyncExitStack() as stack:
        around = [Environment(clock=clock) for clock in clocks]
        gateways = [await stack.enter_async_context(running(config, each)) for each in around]
        for each in gateways:
            await until(partial(processes, each), lambda found: found == count)
        yield gateways


async def processes(gateway: WholeGateway) -> int:
    """How many live, as far as this one knows."""
    found: int = (await gateway.readiness())["replicas"]
    return found


def at(host: McpHost, gateway: WholeGateway, mount: str = "reports") -> McpHost:
    """The same host, as it comes to another gateway: nothing is remembered but its session."""
    there = McpHost(gateway.http, gateway.url(mount), host.token)
    there.session, there.revision = host.session, host.revision
    return there


def modern_at(host: ModernHost, gateway: WholeGateway, mount: str = "reports") -> ModernHost:
    """The same of a host of the modern era."""
    return ModernHost(gateway.http, gateway.url(mount), host.token, capabilities=host.capabilities, tasks=False)


async def gone(gateway: WholeGateway) -> None:
    """It ends at once, without a word to anybody."""
    async with bounded():
        await gateway.close()
