"""Several gateways in this process that share a real store, as replicas do, in front of one scripted server.

A host goes from one to another by `Gateway.again`.
"""

from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import Any

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Clock, Environment, Gateway, RedisOptions, SystemClock, serve
from helpers.waiting import until

HEARTBEAT = timedelta(seconds=0.2)
LEASE = timedelta(seconds=2)


def store_section(options: RedisOptions, **lease: str) -> dict[str, Any]:
    """The section `store` that leads to a server; a lease of two seconds, unless another is given."""
    redis = {
        "url": f"redis://{options.host}:{options.port}/{options.database}",
        "key_prefix": options.key_prefix,
        "password": options.password,
    }
    usual = {"ttl": f"{LEASE.total_seconds():g}s", "heartbeat": f"{HEARTBEAT.total_seconds() * 1000:g}ms"}
    redis = {key: value for key, value in redis.items() if value}
    return {"backend": "redis", "redis": redis, "lease": usual | lease}


def key_file(folder: Path, name: str = "context.key") -> Path:
    """A key that all gateways have."""
    file = folder / name
    if not file.exists():
        file.write_bytes(urlsafe_b64encode(token_bytes(32)).rstrip(b"=") + b"\n")
        file.chmod(0o600)
    return file


@asynccontextmanager
async def serve_replicas(
    count: int, servers: Mapping[str, str], options: RedisOptions, folder: Path, **sections: Any
) -> AsyncIterator[list[Gateway]]:
    """So many gateways that know of each other, for the length of a block; `clocks` are theirs, one for each."""
    clocks: Iterable[Clock] = sections.pop("clocks", [SystemClock() for _ in range(count)])
    auth = sections.pop("auth", {"mode": "none"})
    auth = {**auth, "context": {**auth.get("context", {}), "key_file": str(key_file(folder))}}
    audit = {"enabled": False}
    store = store_section(options)
    config = configuration(servers, **{"auth": auth, "audit": audit, "store": store, **sections})
    async with AsyncExitStack() as stack:
        around = [Environment(clock=clock) for clock in clocks]
        gateways = [await stack.enter_async_context(serve(config, each)) for each in around]
        for each in gateways:
            await until(partial(count_replicas, each), lambda found: found == count)
        yield gateways


async def count_replicas(gateway: Gateway) -> int:
    """How many live, as far as this one knows."""
    found: int = (await gateway.readiness())["replicas"]
    return found
