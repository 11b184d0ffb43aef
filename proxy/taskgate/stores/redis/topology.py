"""The address of the server that accepts writes, which changes at a failover: `Topology`.

There is one class for each mode: standalone, sentinel and cluster. All keys of a deployment are in
one slot, so there is one such server in a cluster too. Connections here serve one question only.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from redis import asyncio as redis
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, ConnectionError, RedisError


class ServerAddress(NamedTuple):
    """The address of a server."""

    host: str
    port: int


Dial = Callable[[ServerAddress, bool], redis.Connection]
"""Makes a connection to a server, not yet open; the flag says whether it has the credentials."""

_NODES: Final = 64
"""Cluster nodes that are remembered; one of them must be up after a failover."""


class Topology(Protocol):
    """The finder of the server, whose address it remembers until that is reported wrong."""

    async def locate(self) -> ServerAddress:
        """The address of the server. Raises the library's error if it cannot be found."""
        ...

    def forget(self, address: ServerAddress) -> None:
        """Forget the address after a failure there; does nothing if another address was found
        since.
        """
        ...

    def redirect(self, address: ServerAddress) -> None:
        """Use this address: the previous server named it."""
        ...


class StandaloneTopology:
    """One server at a fixed address."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address

    async def locate(self) -> ServerAddress:
        return self._address

    def forget(self, address: ServerAddress) -> None:
        """Nothing to forget."""

    def redirect(self, address: ServerAddress) -> None:
        """Ignored: the address is fixed."""


class _DiscoveredTopology:
    """An address that a query finds; concurrent callers share one query."""

    def __init__(self, dial: Dial, within: float) -> None:
        self._dial = dial
        self._within = within
        self._lock = asyncio.Lock()
        self._found: ServerAddress | None = None

    async def locate(self) -> ServerAddress:
        if self._found is None:
            async with self._lock:
                if self._found is None:
                    self._found = await self._query()
        return self._found

    def forget(self, address: ServerAddress) -> None:
        if self._found == address:
            self._found = None

    def redirect(self, address: ServerAddress) -> None:
        self._found = address

    async def _query(self) -> ServerAddress:
        raise NotImplementedError

    async def _ask(self, address: ServerAddress, *question: str, known: bool = True) -> Any:
        """The answer of a server.

        `known` sends it the credentials at once, otherwise only when it demands them.
        """
        try:
            return await self._exchange(self._dial(address, known), question)
        except AuthenticationError:
            if known:
                raise
            return await self._exchange(self._dial(address, True), question)

    async def _exchange(self, connection: redis.Connection, question: Sequence[str]) -> Any:
        try:
            async with asyncio.timeout(self._within):
                await connection.connect()  # type: ignore[no-untyped-call]
                await connection.send_command(*question)
                return await connection.read_response()
        finally:
            await connection.disconnect(nowait=True)


class SentinelTopology(_DiscoveredTopology):
    """The primary named by the sentinels."""

    def __init__(self, sentinels: Sequence[ServerAddress], service: str, dial: Dial, within: float) -> None:
        super().__init__(dial, within)
        self._sentinels = list(sentinels)
        self._service = service

    async def _query(self) -> ServerAddress:
        failed: Exception = ConnectionError("no sentinel is configured")
        for sentinel in tuple(self._sentinels):
            try:
                named = await self._ask(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service, known=False)
            except (RedisError, OSError, TimeoutError) as error:
                failed = error
                continue
            if named is None:
                failed = ConnectionError(f"the sentinel knows no primary for {self._service}")
                continue
            # The next query starts with the sentinel that answered.
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)
            return ServerAddress(named[0].decode(), int(named[1]))
        try:
            raise failed
        finally:
            del failed


class ClusterTopology(_DiscoveredTopology):
    """The node of a cluster that serves the slot of a key."""

    def __init__(self, first: ServerAddress, key: str, dial: Dial, within: float) -> None:
        super().__init__(dial, within)
        self._first = first
        self._slot = key_slot(key.encode())
        self._nodes: list[ServerAddress] = []

    def forget(self, address: ServerAddress) -> None:
        # The next query asks this node last.
        super().forget(address)
        with suppress(ValueError):
            self._nodes.remove(address)
            self._nodes.append(address)

    async def _query(self) -> ServerAddress:
        failed: Exception = ConnectionError("no node serves the slot")
        for node in (*self._nodes, *(() if self._first in self._nodes else (self._first,))):
            try:
                ranges = await self._ask(node, "CLUSTER", "SLOTS")
            except (RedisError, OSError, TimeoutError) as error:
                failed = error
                continue
            if (found := self._remember(ranges, node)) is not None:
                return found
        try:
            raise failed
        finally:
            del failed

    def _remember(self, ranges: Sequence[Any], asked: ServerAddress) -> ServerAddress | None:
        """The node that serves the slot.

        A node without a name of its own has the address at which it was asked.
        """
        found: ServerAddress | None = None
        nodes = [asked]
        for first, last, *servers in ranges:
            addresses = [
                ServerAddress(server[0].decode() if server[0] else asked.host, server[1]) for server in servers
            ]
            if first <= self._slot <= last:
                found = addresses[0]
            nodes += addresses
        self._nodes = list(dict.fromkeys(nodes))[:_NODES]
        return found
