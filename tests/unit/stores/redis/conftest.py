"""A store over either server, and its connection."""

from collections.abc import AsyncIterator

import pytest

from helpers.redis_stores import LosingConnection, connect, store_over
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.redis.records.store import RedisStore


@pytest.fixture
async def connection(shared_options: RedisOptions) -> LosingConnection:
    return connect(shared_options)


@pytest.fixture
async def store(connection: LosingConnection, shared_options: RedisOptions) -> AsyncIterator[RedisStore]:
    opened = await store_over(connection, shared_options)
    yield opened
    await opened.close()
