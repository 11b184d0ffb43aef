"""The opener of the configured store: `open_store` for one process, `open_shared` for several
gateways.

Only this module names the implementations.
"""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

from taskgate.clock import SharedClock
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import Store
from taskgate.stores.memory import MemoryStore
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.references import ReferenceOf, plain_reference
from taskgate.stores.shared import SharedBackend
from taskgate.stores.sqlite.file import OpenFile, SqliteOptions, open_file
from taskgate.stores.sqlite.inspection import expect_usable as expect_file
from taskgate.stores.sqlite.store import SqliteStore

__all__ = ["RedisOptions", "SqliteOptions", "expect_server", "expect_usable", "open_shared", "open_store"]


async def open_store(
    backend: Literal["memory", "sqlite"], options: SqliteOptions | None, reference_of: ReferenceOf = plain_reference
) -> Store:
    """Open a store for the running loop; blocking work runs on a thread. `options` are for sqlite
    only. Operators find a task by what `reference_of` returns.

    Raises StoreUnavailable, with a text for the operator, if the file is refused or cannot be
    opened. If this is cancelled, the file is closed as soon as it is open.
    """
    if backend == "memory":
        return MemoryStore(reference_of)
    assert options is not None, "a store in a file needs options"
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="taskgate-store-opener")
    opening = thread.submit(open_file, options, reference_of)
    # The thread ends after this one job.
    thread.shutdown(wait=False)
    try:
        return SqliteStore(await asyncio.wrap_future(opening))
    except asyncio.CancelledError:
        # A thread cannot be stopped. It closes the file itself, because the loop may be closed by
        # then.
        opening.add_done_callback(_close_opened)
        raise


async def open_shared(
    options: RedisOptions, clock: SharedClock | None = None, reference_of: ReferenceOf = plain_reference
) -> SharedBackend:
    """Open the store that several gateways share, for the running loop; closing `store` closes all
    of it. `reference_of` is as in `open_store`, and the same in all gateways.

    Each time before the server is used after a start or an outage, `clock` is aligned with the
    server's clock.

    An unreachable server is no error: every operation raises StoreUnavailable until the server
    answers. Raises StoreUnavailable, with a text for the operator, if the client library
    is not installed. It also does so if the server refuses the gateway or might drop stored data.
    """
    try:
        from taskgate.stores.redis.open import open_redis  # noqa: PLC0415 - only with the extra
    except ModuleNotFoundError as error:
        raise _missing_packages(error) from error
    return await open_redis(options, clock, reference_of)


def expect_usable(options: SqliteOptions | RedisOptions | None, *, is_running: bool) -> None:
    """Check what can be checked of a store without opening it: its file, or its TLS files. Blocks.

    With `is_running` a gateway may hold the file. Raises StoreUnavailable, as opening would.
    """
    if isinstance(options, SqliteOptions):
        expect_file(options.path, is_running=is_running)
    elif isinstance(options, RedisOptions):
        try:
            from taskgate.stores.redis.open import expect_tls_files  # noqa: PLC0415 - only with the extra
        except ModuleNotFoundError as error:
            raise _missing_packages(error) from error
        expect_tls_files(options)


async def expect_server(options: RedisOptions) -> None:
    """Ask the server of a shared store whether it is up and fit. Raises StoreUnavailable if not."""
    try:
        from taskgate.stores.redis import open as shared  # noqa: PLC0415 - only with the extra
    except ModuleNotFoundError as error:
        raise _missing_packages(error) from error
    await shared.expect_server(options)


def _missing_packages(error: ModuleNotFoundError) -> Exception:
    """Return the error for a missing package: StoreUnavailable if it is one of the extra."""
    if error.name is None or error.name.partition(".")[0] not in ("redis", "hiredis"):
        return error
    return StoreUnavailable("A shared store needs more packages: pip install 'taskgate[redis]'")


def _close_opened(opening: "Future[OpenFile]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
