"""A file and the store in it, which can be opened again: what an earlier process left is what the next one finds."""

from datetime import timedelta
from pathlib import Path

from helpers.waiting import bounded
from taskgate.stores.sqlite.file import OpenFile, SqliteOptions, open_file
from taskgate.stores.sqlite.store import SqliteStore


class Place:
    """A file, and the store in it, which can be opened again."""

    def __init__(self, path: Path) -> None:
        self.options = SqliteOptions(
            path=path, synchronous="NORMAL", busy_timeout=timedelta(seconds=5), max_size=1 << 26
        )
        self.file: OpenFile
        self.store = self.open()

    def open(self) -> SqliteStore:
        self.file = open_file(self.options)
        return SqliteStore(self.file)

    async def reopen(self) -> SqliteStore:
        async with bounded():
            await self.store.close()
        self.store = self.open()
        return self.store
