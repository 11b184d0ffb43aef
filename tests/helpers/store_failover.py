"""Several servers of which one takes over from another: with a sentinel, or in a cluster."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from helpers.ports import free_port
from helpers.store_server import Kind, SharedServer
from taskgate.stores.redis.options import RedisOptions

_Several = TypeVar("_Several", bound=AbstractAsyncContextManager[Any])


class Watched:
    """A primary and its replicas, with one sentinel that makes a replica the primary soon after the primary is gone."""

    SERVICE = "taskgate-test"

    def __init__(self, folder: Path, kind: Kind = "valkey", *, replicas: int = 1, password: str | None = None) -> None:
        self.password = password
        self.primary = SharedServer(folder, kind, password=password)
        self.replicas = [
            SharedServer(folder, kind, replica_of=self.primary, password=password) for _ in range(replicas)
        ]
        monitored = [
            f"monitor {self.SERVICE} 127.0.0.1 {self.primary.port} 1",
            f"down-after-milliseconds {self.SERVICE} 500",
            f"failover-timeout {self.SERVICE} 3000",
        ]
        if password is not None:
            monitored.append(f"auth-pass {self.SERVICE} {password}")
        self.sentinel = SharedServer(folder, kind, sentinel=True, settings={"sentinel": monitored})

    def options(self, **changes: Any) -> RedisOptions:
        """How whatever is the primary is reached."""
        sentinels = (("127.0.0.1", free_port()), ("127.0.0.1", self.sentinel.port))
        reached = {"mode": "sentinel", "host": "", "port": 0, "service": self.SERVICE, "sentinels": sentinels}
        return self.primary.options(**{**reached, **changes})

    async def promoted(self) -> SharedServer:
        """Wait until a replica is the primary, and return it."""

        def found() -> bool:
            return bool(self._new_primary())

        await asyncio.to_thread(self.sentinel.until, found)
        return self._new_primary()[0]

    def _new_primary(self) -> list[SharedServer]:
        named = self.sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.SERVICE)
        port = int(named[1])
        return [one for one in self.replicas if one.port == port and one.info("replication")["role"] == "master"]

    async def __aenter__(self) -> Self:
        return await _entered(self, self._start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in (self.sentinel, *self.replicas, self.primary):
            await asyncio.to_thread(server.kill)

    def _start(self) -> None:
        self.primary.start()
        for server in self.replicas:
            server.start()
        self.primary.until(lambda: self.primary.has_replicas(len(self.replicas)))
        self.sentinel.start()
        self.sentinel.until(lambda: self._known() == len(self.replicas))

    def _known(self) -> int:
        listed: list[Any] = self.sentinel.ask("SENTINEL", "REPLICAS", self.SERVICE)
        return len(listed)


class Clustered:
    """A cluster of three primaries, and a replica for each of the first `replicas` of them."""

    def __init__(self, folder: Path, kind: Kind = "valkey", *, replicas: int = 3, password: str | None = None) -> None:
        self.primaries = [_node(folder, kind, password) for _ in range(3)]
        self.replicas = [_node(folder, kind, password) for _ in range(replicas)]

    def options(self, **changes: Any) -> RedisOptions:
        """How the cluster is reached: by its first node."""
        return self.primaries[0].options(mode="cluster", **changes)

    def holder(self, key: str) -> tuple[SharedServer, SharedServer]:
        """The primary that has a key's slot, as it was at the start, and that one's replica."""
        slot = self.primaries[0].ask("CLUSTER", "KEYSLOT", key)
        index = slot * 3 // 16384
        return self.primaries[index], self.replicas[index]

    async def __aenter__(self) -> Self:
        return await _entered(self, self._start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in (*self.replicas, *self.primaries):
            await asyncio.to_thread(server.kill)

    def _start(self) -> None:
        nodes = [*self.primaries, *self.replicas]
        for node in nodes:
            node.start()
        for index, node in enumerate(self.primaries):
            node.ask("CLUSTER", "ADDSLOTSRANGE", -(-index * 16384 // 3), -(-(index + 1) * 16384 // 3) - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        for node in nodes[1:]:
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus)
        for node in nodes:
            node.until(lambda node=node: len(_known_nodes(node)) == len(nodes))  # type: ignore[misc]
        for primary, replica in zip(self.primaries, self.replicas, strict=False):
            replica.ask("CLUSTER", "REPLICATE", primary.ask("CLUSTER", "MYID"))
        for node in nodes:
            node.until(lambda node=node: _is_well(node))  # type: ignore[misc]
        for primary, _ in zip(self.primaries, self.replicas, strict=False):
            primary.until(lambda node=primary: node.has_replicas(1))  # type: ignore[misc]
        # Every node has to have heard who replicates whom before one of them may tell it to somebody else.
        for node in nodes:
            node.until(lambda node=node: _replicating(node) == len(self.replicas))  # type: ignore[misc]


async def _entered(several: _Several, start: Callable[[], None]) -> _Several:
    """Those that were started by a start that fails are not left behind."""
    try:
        await asyncio.to_thread(start)
    except BaseException:
        await several.__aexit__(None, None, None)
        raise
    return several


class _Node(SharedServer):
    bus: int = 0


def _node(folder: Path, kind: Kind, password: str | None) -> _Node:
    bus = free_port()
    settings = {
        "cluster-enabled": "yes",
        "cluster-port": str(bus),
        "cluster-node-timeout": "1000",
        "cluster-replica-validity-factor": "0",
        "cluster-config-file": "nodes.conf",
    }
    node = _Node(folder, kind, settings=settings, password=password)
    node.bus = bus
    return node


def _known_nodes(node: SharedServer) -> list[list[str]]:
    """The flags of the nodes that a node knows for good."""
    lines = node.ask("CLUSTER", "NODES").decode().splitlines()
    flags = [line.split()[2].split(",") for line in lines]
    return [one for one in flags if "handshake" not in one]


def _replicating(node: SharedServer) -> int:
    return sum("slave" in one for one in _known_nodes(node))


def _is_well(node: SharedServer) -> bool:
    return b"cluster_state:ok" in node.ask("CLUSTER", "INFO")
