"""The heartbeats of this process in a shared store: `Heartbeat`, on a thread of its own.

The thread has its own event loop and its own connection. So the leases survive a moment in which
the main loop is blocked. `Leasing` starts and stops it, and provides `beat`. That function sends one
heartbeat over the given store, and passes the reply to the main loop.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from logging import getLogger
from typing import Final

from taskgate.stores.shared import LeaseStore, LeaseStoreFactory

RETRY: Final = timedelta(seconds=1)
"""The delay before a failed heartbeat is repeated."""

log = getLogger("taskgate.leases")


class Heartbeat:
    """A thread that calls `beat` every `every`, and sooner after a failure.

    `apart` opens the thread's own lease store. `beat` runs on the thread; it returns False if the
    store failed.
    """

    def __init__(
        self, apart: LeaseStoreFactory, beat: Callable[[LeaseStore], Awaitable[bool]], *, every: timedelta
    ) -> None:
        self._apart = apart
        self._beat = beat
        self._every = every
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name="taskgate-heartbeat", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Stop the thread and wait for its end. A heartbeat under way is cancelled."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(_cancel_all, loop)
            await asyncio.to_thread(thread.join)
            loop.close()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(self._beat_with_reconnects())

    async def _beat_with_reconnects(self) -> None:
        while True:
            try:
                async with self._apart() as leases:
                    await self._beat_on(leases)
            except Exception:
                # Without heartbeats other replicas take over all tasks of this one, so retry after
                # any error.
                log.exception("Unexpected error while renewing leases; trying again")
                await asyncio.sleep(RETRY.total_seconds())

    async def _beat_on(self, leases: LeaseStore) -> None:
        while True:
            succeeded = await self._beat(leases)
            await asyncio.sleep((self._every if succeeded else min(self._every, RETRY)).total_seconds())


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
