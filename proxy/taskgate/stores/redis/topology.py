"""Where the server is that may be written to: it changes when another takes over.

All keys of a deployment lie in one slot, so that there is one such server in a cluster, too. What must not live here:
connections that outlive a question, and what is asked of that server (`wire`, `connection`).
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from redis import asyncio as redis
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, ConnectionError, RedisError


class ServerAddress(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


Dial = Callable[[ServerAddress, bool], redis.Connection]
"""A connection to a server, not yet open; whether with the credentials."""

_NODES: Final = 64
"""How many nodes of a cluster are remembered: one of them has to be there when others took over."""


class Topology(Protocol):
    """Finds the server; what was found is remembered until somebody says that it is there no more."""

    async def find(self) -> ServerAddress:
        """Where it is. Raises what the library raises where nobody can tell."""
        ...

    def leave(self, place: ServerAddress) -> None:
        """It is not there any more, as far as somebody saw; nothing where another place was found since."""
        ...

    def move(self, place: ServerAddress) -> None:
        """It is there now: who was there before says so."""
        ...


class StandaloneTopology:
    """One server that is always in its place."""

    def __init__(self, place: ServerAddress) -> None:
        self._place = place

    async def find(self) -> ServerAddress:
        """See Topology.find."""
        return self._place

    def leave(self, place: ServerAddress) -> None:
        """See Topology.leave."""

    def move(self, place: ServerAddress) -> None:
        """See Topology.move."""


class _DiscoveredTopology:
    """What is known by asking somebody: one question at a time, however many want to know."""

    def __init__(self, dial: Dial, within: float) -> None:
        self._dial = dial
        self._within = within
        self._lock = asyncio.Lock()
        self._found: ServerAddress | None = None

    async def find(self) -> ServerAddress:
        """See Topology.find."""
        if self._found is None:
            async with self._lock:
                if self._found is None:
                    self._found = await self._look()
        return self._found

    def leave(self, place: ServerAddress) -> None:
        """See Topology.leave."""
        if self._found == place:
            self._found = None

    def move(self, place: ServerAddress) -> None:
        """See Topology.move."""
        self._found = place

    async def _look(self) -> ServerAddress:
        raise NotImplementedError

    async def _ask(self, place: ServerAddress, *question: str, known: bool = True) -> Any:
        """What a server answers; `known` gives it the credentials at once, and otherwise when it asks for them."""
        try:
            return await self._exchange(self._dial(place, known), question)
        except AuthenticationError:
            if known:
                raise
            return await self._exchange(self._dial(place, True), question)

    async def _exchange(self, connection: redis.Connection, question: Sequence[str]) -> Any:
        try:
            async with asyncio.timeout(self._within):
                await connection.connect()  # type: ignore[no-untyped-call]
                await connection.send_command(*question)
                return await connection.read_response()
        finally:
            await connection.disconnect(nowait=True)


class SentinelTopology(_DiscoveredTopology):
    """The primary that the sentinels name."""

    def __init__(self, sentinels: Sequence[ServerAddress], service: str, dial: Dial, within: float) -> None:
        super().__init__(dial, within)
        self._sentinels = list(sentinels)
        self._service = service

    async def _look(self) -> ServerAddress:
        failed: Exception = ConnectionError("no sentinel is configured")
        for sentinel in tuple(self._sentinels):
            try:
                named = await self._ask(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service, known=False)
            except (RedisError, OSError, TimeoutError) as error:
                failed = error
                continue
            if named is None:
                failed = ConnectionError(f"the sentinel knows no primary of {self._service}")
                continue
            # Who answered is asked first the next time.
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)
            return ServerAddress(named[0].decode(), int(named[1]))
        raise failed


class ClusterTopology(_DiscoveredTopology):
    """The node of a cluster that has the slot of a key."""

    def __init__(self, first: ServerAddress, key: str, dial: Dial, within: float) -> None:
        super().__init__(dial, within)
        self._first = first
        self._slot = key_slot(key.encode())
        self._nodes: list[ServerAddress] = []

    def leave(self, place: ServerAddress) -> None:
        """See Topology.leave. It is asked last the next time."""
        super().leave(place)
        with suppress(ValueError):
            self._nodes.remove(place)
            self._nodes.append(place)

    async def _look(self) -> ServerAddress:
        failed: Exception = ConnectionError("the slot is nobody's")
        for node in (*self._nodes, *(() if self._first in self._nodes else (self._first,))):
            try:
                ranges = await self._ask(node, "CLUSTER", "SLOTS")
            except (RedisError, OSError, TimeoutError) as error:
                failed = error
                continue
            if (found := self._remember(ranges, node)) is not None:
                return found
        raise failed

    def _remember(self, ranges: Sequence[Any], asked: ServerAddress) -> ServerAddress | None:
        """Who has the slot. A node that does not know a name for itself is where it was asked."""
        found: ServerAddress | None = None
        nodes = [asked]
        for first, last, *servers in ranges:
            places = [ServerAddress(server[0].decode() if server[0] else asked.host, server[1]) for server in servers]
            if first <= self._slot <= last:
                found = places[0]
            nodes += places
        self._nodes = list(dict.fromkeys(nodes))[:_NODES]
        return found
