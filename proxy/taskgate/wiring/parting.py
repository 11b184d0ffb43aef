"""The steps of a shutdown that have to do with hosts, and how its waits end: by themselves, in time, or in a hurry.

What must not live here: the order of a shutdown (`app`).
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final

from taskgate.listener.listener import PublicListener
from taskgate.wiring.build import Runtime

LAST_WORDS: Final = timedelta(seconds=2)
"""What a shutdown always leaves for answers that are being written."""
LAST_MOMENT: Final = timedelta(milliseconds=150)
"""What each step of a shutdown has that hangs once there is a hurry."""
LAST_CONNECTIONS: Final = timedelta(milliseconds=20)
"""How long connections may take that were being made when no more were to be: a few times around a network."""
LAST_ARRIVALS: Final = timedelta(seconds=1)
"""How long requests are still served that were on their way when the listener closed, where others serve the next."""


async def take_no_more(
    listener: PublicListener, runtime: Runtime, delay: timedelta, patience: timedelta, hurry: asyncio.Event
) -> None:
    """Serve for `delay` as before, then take no new work: what begins something is told to try again after `patience`.

    What asks about tasks and sessions that exist is served, on new connections too. Where others serve from the same
    store, nothing is refused: each answer tells its host to open another connection, which leads elsewhere, so that
    there is an end to what comes. Then what hosts can have elsewhere ends: connections that wait, streams that only
    tell of what happens.
    """
    has_others = runtime.company.leasing is not None
    if has_others:
        listener.retire()
    await unless(hurry, asyncio.sleep(delay.total_seconds()))
    if has_others:
        await close_door(listener)
        await unless(hurry, asyncio.sleep(LAST_ARRIVALS.total_seconds()))
        runtime.subscriptions.finish()
        listener.wind_down()
    else:
        runtime.gateway.drain(patience)


async def close_door(listener: PublicListener) -> None:
    """Take no connection any more; those that are being made are taken up."""
    listener.turn_away()
    await asyncio.sleep(LAST_CONNECTIONS.total_seconds())
    listener.stop_accepting()


async def settled(runtime: Runtime) -> None:
    """Wait until nothing runs, and what ended meanwhile was fetched, or its host had the time for that."""
    await runtime.runner.idle()
    await runtime.mounting.requests.idle()
    await runtime.unfetched.fetched()


async def part(listener: PublicListener, runtime: Runtime, left: timedelta) -> None:
    """End the streams that nobody else would end, and wait for answers; what takes longer is answered as cut off."""
    runtime.subscriptions.finish()
    cutting = asyncio.get_running_loop().call_later(left.total_seconds(), _cut_off, runtime)
    try:
        await listener.close(left + LAST_WORDS)
    finally:
        cutting.cancel()
        # Nobody can come back any more for the calls that wait for that.
        runtime.calls.stop()


def _cut_off(runtime: Runtime) -> None:
    runtime.relaying.stop()
    runtime.calls.stop()


async def unless(
    hurry: asyncio.Event,
    work: Coroutine[Any, Any, None],
    *,
    within: timedelta | None = None,
    moment: timedelta = timedelta(),
) -> None:
    """Wait for `work`, at most `within`; it is cancelled when time is up, or a `moment` after hurry is called for.

    In a hurry, work that does not heed its cancellation is left to itself.
    """
    working, hurrying = asyncio.ensure_future(work), asyncio.ensure_future(hurry.wait())
    patience = None if within is None else within.total_seconds()
    try:
        await asyncio.wait((working, hurrying), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if hurry.is_set():
            await asyncio.wait((working,), timeout=moment.total_seconds())
    finally:
        for task in (working, hurrying):
            task.cancel()
    await asyncio.wait((working, hurrying), timeout=LAST_MOMENT.total_seconds() if hurry.is_set() else None)
    if working.done() and not working.cancelled():
        working.result()


class Closers(AsyncExitStack):
    """What is closed at the end, the latest first; once there is a `hurry`, whatever hangs is passed over."""

    def __init__(self) -> None:
        super().__init__()
        self.hurry = asyncio.Event()

    def add(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close this, too."""
        self.push_async_callback(self._close, close)

    async def _close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await unless(self.hurry, close(), moment=LAST_MOMENT)
