"""Opening the store that is configured: the only place that names implementations.

What must not live here: anything a store does once it is open.
"""

import asyncio
from typing import Literal

from taskgate.stores.base import Store
from taskgate.stores.memory import MemoryStore
from taskgate.stores.sqlite import SqliteStore
from taskgate.stores.sqlite_file import SqliteOptions, open_file

__all__ = ["SqliteOptions", "open_store"]


async def open_store(backend: Literal["memory", "sqlite"], options: SqliteOptions | None) -> Store:
    """The store, open, on the running loop; whatever blocks is done off it. `options` are for sqlite alone.

    Raises StoreUnavailable, with a text for the operator, when the file is refused or cannot be opened.
    """
    if backend == "memory":
        return MemoryStore()
    assert options is not None, "a store in a file needs options"
    return SqliteStore(await asyncio.to_thread(open_file, options))
