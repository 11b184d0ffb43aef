"""Gateways that are killed, or restarted one after the other, at the same addresses."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import Replica
from helpers.gateway.replicas import key_file, store_section
from helpers.shared_store import SharedServer


def at_own_address(drain: str) -> dict[str, Any]:
    """The section `server` of replicas that have one file."""
    return {"listen": "${LISTEN}", "drain": {"delay": "0s", "timeout": drain}}


@asynccontextmanager
async def single(folder: Path, url: str, **sections: Any) -> AsyncIterator[Replica]:
    """A gateway over SQLite for the length of a block."""
    file = write_configuration(folder, url, **{"server": at_own_address("5s"), **sections})
    gateway = Replica(folder, file)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


@asynccontextmanager
async def replicas(
    folder: Path, url: str, store: SharedServer, *, drain: str = "5s", **sections: Any
) -> AsyncIterator[Sequence[Replica]]:
    """Three gateways over one Valkey for the length of a block."""
    shared = {
        "server": at_own_address(drain),
        "auth": {"mode": "none", "context": {"key_file": str(key_file(folder))}},
        "audit": {"enabled": False},
        "store": store_section(store.options(), ttl="3s", heartbeat="500ms"),
    }
    file = write_configuration(folder, url, **{**shared, **sections})
    async with AsyncExitStack() as stack:
        gateways = []
        for name in ("one", "two", "three"):
            (own := folder / name).mkdir()
            gateways.append(gateway := Replica(own, file))
            stack.push_async_callback(gateway.stop)
            await gateway.start()
        yield gateways
