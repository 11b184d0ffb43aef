"""Two processes of one deployment, as far as the store can tell them apart; on Valkey and on Redis."""

from collections.abc import AsyncIterator

import pytest

from taskgate.stores.open import open_shared
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.shared import SharedBackend


@pytest.fixture
async def one(shared_options: RedisOptions) -> AsyncIterator[SharedBackend]:
    """The first."""
    shared = await open_shared(shared_options)
    yield shared
    await shared.store.close()


@pytest.fixture
async def other(shared_options: RedisOptions) -> AsyncIterator[SharedBackend]:
    """The second."""
    shared = await open_shared(shared_options)
    yield shared
    await shared.store.close()
