"""Every store in turn: a new backend adds a parameter here and no test."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from taskgate.stores.base import Store
from taskgate.stores.open import SqliteOptions, open_store

BACKENDS = ("memory", "sqlite")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of the store under test."""
    return request.param


@pytest.fixture
async def store(backend: str, tmp_path: Path) -> AsyncIterator[Store]:
    """An open, empty store."""
    options = SqliteOptions(
        path=tmp_path / "taskgate.db",
        synchronous="NORMAL",
        busy_timeout=timedelta(seconds=5),
        max_size=64 * 1024 * 1024,
    )
    opened = await open_store(backend, options if backend == "sqlite" else None)
    yield opened
    await opened.close()
