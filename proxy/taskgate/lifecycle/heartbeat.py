"""Signs of life from a thread of their own, so that a loop that stalls for a moment loses nothing that it holds.

What must not live here: what a sign of life says, whether one may be given, and what comes of it (`leasing`).
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
"""How soon a sign of life is tried again that did not arrive."""

log = getLogger("taskgate.leases")


class Heartbeat:
    """Calls `beat` again and again, on a thread with an event loop and a connection that nobody else has.

    `beat` tells whether the store heard it.
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
        """Begin."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name="taskgate-heartbeat", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """End; a sign of life that is on its way is given up."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(_cancel_all, loop)
            await asyncio.to_thread(thread.join)
            loop.close()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(self._live())

    async def _live(self) -> None:
        while True:
            try:
                async with self._apart() as leases:
                    await self._beat_on(leases)
            except Exception:
                # Without signs of life others take over all that runs here: whatever it was, try again.
                log.exception("Unexpected error while renewing leases; trying again")
                await asyncio.sleep(RETRY.total_seconds())

    async def _beat_on(self, leases: LeaseStore) -> None:
        while True:
            was_heard = await self._beat(leases)
            await asyncio.sleep((self._every if was_heard else min(self._every, RETRY)).total_seconds())


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
