"""The stores under test, and how an empty one of each is opened."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from helpers.redis_stores import open_redis_store
from helpers.shared_store import SharedServer
from taskgate.stores.base import Store
from taskgate.stores.open import SqliteOptions, open_store
from taskgate.stores.redis.options import RedisOptions

NAMES = ("memory", "sqlite", "valkey", "redis")
SHARED = ("valkey", "redis")


@dataclass(frozen=True, slots=True)
class Backend:
    """A kind of store; `server` is where it keeps its records, if it shares them."""

    name: str
    server: SharedServer | None = None

    async def open(self, folder: Path, options: RedisOptions | None = None) -> Store:
        """An empty store; what it keeps in files is in the folder. With `options` it has what is kept there."""
        if self.server is not None:
            return await open_redis_store(options or self.server.options())
        if self.name == "memory":
            return await open_store("memory", None)
        return await open_store(
            "sqlite",
            SqliteOptions(
                path=folder / "taskgate.db",
                synchronous="NORMAL",
                busy_timeout=timedelta(seconds=5),
                max_size=64 * 1024 * 1024,
            ),
        )

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[Store]:
        """A store for the length of a block."""
        store = await self.open(folder)
        try:
            yield store
        finally:
            await store.close()
