"""Task stores over a real server, opened as a gateway opens them, as far as tasks and sessions go."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import Any

from taskgate.errors import StoreUnavailable
from taskgate.stores.redis.client import RedisClient, Script, Value
from taskgate.stores.redis.connector import RedisConnector
from taskgate.stores.redis.options import KeyNames, RedisOptions
from taskgate.stores.redis.records.change_subscriber import ChangeSubscriber
from taskgate.stores.redis.records.store import RedisStore

_numbers = count(1)


class LosingConnection(RedisClient):
    """One that loses the answers to the next `lost` scripts, which run; or, with `unsent`, they do not even run.

    `asked` is how many scripts and commands it was given.
    """

    lost = 0
    unsent = False
    asked = 0
    _left: tuple[Script, Sequence[str], Sequence[Value]]

    async def run(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Value], *, durable: bool = False
    ) -> Any:
        self.asked += 1
        if not self.lost:
            return await super().run(script, keys, arguments, durable=durable)
        self.lost -= 1
        self._left = script, keys, arguments
        if not self.unsent:
            await super().run(script, keys, arguments, durable=durable)
        raise StoreUnavailable("The answer was lost")

    async def do(self, *command: Value, durable: bool = False) -> Any:
        self.asked += 1
        return await super().do(*command, durable=durable)

    async def run_unsent(self) -> None:
        """Run the last one that was not run, late."""
        await super().run(*self._left)


async def open_redis_store(options: RedisOptions) -> RedisStore:
    """One of several stores over what is kept there, and it hears of every change."""
    return await store_over(connect(options), options)


def connect(options: RedisOptions) -> LosingConnection:
    """A connection as a store has one."""
    return LosingConnection(RedisConnector(options), limit=options.max_connections, wait=options.pool_timeout)


async def store_over(connection: RedisClient, options: RedisOptions, *, within: timedelta | None = None) -> RedisStore:
    """A store over that connection, which it closes; `within` is for records that are made by the server's time."""
    keys = KeyNames(options.key_prefix)
    origin, health = f"process-{next(_numbers)}", connection.health
    changes = ChangeSubscriber(
        connection.pubsub,
        keys.of("news"),
        origin=origin,
        on_refused=health.mark_down,
        wait_until_usable=health.wait_until_up,
    )
    store = RedisStore(
        connection,
        keys,
        changes=changes,
        on_close=connection.close,
        within=within,
    )
    assert await changes.wait_until_subscribed(timeout=timedelta(seconds=5))
    return store


@asynccontextmanager
async def several(options: RedisOptions, number: int = 2) -> AsyncIterator[list[RedisStore]]:
    """As many stores as processes would have over one deployment."""
    stores = [await open_redis_store(options) for _ in range(number)]
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()
