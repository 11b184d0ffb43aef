"""Opening the store that is configured: the only place that names implementations.

What must not live here: anything a store does once it is open.
"""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

from taskgate.clock import SharedClock
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import Store
from taskgate.stores.memory import MemoryStore
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.shared import SharedBackend
from taskgate.stores.sqlite.file import OpenFile, SqliteOptions, open_file
from taskgate.stores.sqlite.store import SqliteStore

__all__ = ["RedisOptions", "SqliteOptions", "open_shared", "open_store"]


async def open_store(backend: Literal["memory", "sqlite"], options: SqliteOptions | None) -> Store:
    """The store, open, on the running loop; whatever blocks is done off it. `options` are for sqlite alone.

    Raises StoreUnavailable, with a text for the operator, when the file is refused or cannot be opened.
    When this is cancelled, what was opened is closed again as soon as it is open.
    """
    if backend == "memory":
        return MemoryStore()
    assert options is not None, "a store in a file needs options"
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="taskgate-store-opener")
    opening = thread.submit(open_file, options)
    # The thread ends with the one thing it was given.
    thread.shutdown(wait=False)
    try:
        return SqliteStore(await asyncio.wrap_future(opening))
    except asyncio.CancelledError:
        # A thread cannot be stopped. It closes what it has opened itself: the loop may be gone by then.
        opening.add_done_callback(_let_go)
        raise


async def open_shared(options: RedisOptions, clock: SharedClock | None = None) -> SharedBackend:
    """The store that several gateways share, on the running loop; closing `store` closes all of it.

    `clock` is aligned with its server's each time before that is begun to be used, now or once it is there.

    Where the server is not there, it is opened all the same: whatever is asked raises StoreUnavailable until it is.
    Raises StoreUnavailable, with a text for the operator, when the server refuses us, when it would not keep what it is
    given, or when what speaks to it is not installed.
    """
    try:
        from taskgate.stores.redis.open import open_redis  # noqa: PLC0415 - only with the extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("redis", "hiredis"):
            raise
        raise StoreUnavailable("A shared store needs more packages: pip install 'taskgate[redis]'") from error
    return await open_redis(options, clock)


def _let_go(opening: "Future[OpenFile]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
