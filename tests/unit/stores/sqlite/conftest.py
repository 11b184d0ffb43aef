"""A file and the store in it, which a test can damage, and open again as the next process does."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import bounded
from taskgate.stores.sqlite.file import OpenFile, SqliteOptions, open_file
from taskgate.stores.sqlite.store import SqliteStore


class Place:
    """A file, and the store in it."""

    def __init__(self, path: Path) -> None:
        self.options = SqliteOptions(
            path=path, synchronous="NORMAL", busy_timeout=timedelta(seconds=5), max_size=64 * 1024 * 1024
        )
        self.file: OpenFile
        self.store = self.open()

    def open(self, **changes: Any) -> SqliteStore:
        self.file = open_file(replace(self.options, **changes))
        self.store = SqliteStore(self.file)
        return self.store

    async def reopen(self, **changes: Any) -> SqliteStore:
        async with bounded():
            await self.store.close()
        return self.open(**changes)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path / "taskgate.db")
    yield made
    async with bounded():
        await made.store.close()
