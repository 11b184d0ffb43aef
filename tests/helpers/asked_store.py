"""What gateways ask of a store's server, each command as it takes a round trip; what a script calls is none."""

import asyncio
from typing import Any, Final, Self

import redis

from helpers.shared_store import SharedServer
from taskgate.stores.redis import leases, rates
from taskgate.stores.redis.client import Script
from taskgate.stores.redis.records import rows, store

_SCRIPTS: Final = {
    value.sha: f"{module.__name__.rpartition('.')[2]}.{name.strip('_')}".lower()
    for module in (leases, rates, rows, store)
    for name, value in vars(module).items()
    if isinstance(value, Script)
}
ROUNDS: Final = {
    "PING",
    "XREAD",
    "XREVRANGE",
    "leases.beat",
    "rows.lapsed",
    "rows.purge",
    "rows.count",
    "store.touch_sessions",
}
"""What is asked now and then, whether hosts ask anything or not."""


class AskedStore:
    """Listens to a server for the length of a block."""

    def __init__(self, server: SharedServer) -> None:
        self._marking = redis.Redis(port=server.port, socket_timeout=5)
        # What it says of itself when it connects is none of theirs.
        self._marking.ping()
        self._client = redis.Redis(port=server.port, socket_timeout=5)
        self._said = self._client.monitor()
        self._marks = 0

    async def taken(self) -> list[str]:
        """What was asked for the sake of hosts since the last call, scripts by their names."""
        return [name for name in await asyncio.to_thread(self._take) if name not in ROUNDS]

    def _take(self) -> list[str]:
        self._marks += 1
        mark = f"mark-{self._marks}"
        self._marking.echo(mark)
        found = []
        while mark not in (said := self._said.next_command())["command"]:
            if said["client_type"] != "lua":
                found.append(_name(said))
        return found

    def __enter__(self) -> Self:
        self._said.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._said.__exit__(*error)
        self._client.close()
        self._marking.close()


def _name(said: dict[str, Any]) -> str:
    words = said["command"].split()
    command: str = words[0].upper()
    return _SCRIPTS.get(words[1], command) if command == "EVALSHA" else command
