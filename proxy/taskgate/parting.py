"""How waits of a shutdown end: by themselves, when time is up, or when somebody is in a hurry.

What must not live here: the order of a shutdown (`app`).
"""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final

from taskgate.assembly import House
from taskgate.downstream.listener import PublicListener

LAST_WORDS: Final = timedelta(seconds=2)
"""What a shutdown always leaves for answers that are being written."""


async def part(listener: PublicListener, house: House, left: timedelta) -> None:
    """End the streams that nobody else would end, and wait for answers; what takes longer is answered as cut off."""
    house.subscriptions.finish()
    cutting = asyncio.get_running_loop().call_later(left.total_seconds(), _cut_off, house)
    try:
        await listener.close(left + LAST_WORDS)
    finally:
        cutting.cancel()
        # Nobody can come back any more for the calls that wait for that.
        house.calls.stop()


def _cut_off(house: House) -> None:
    house.relaying.stop()
    house.calls.stop()


async def unless(hurry: asyncio.Event, work: Coroutine[Any, Any, None], *, within: timedelta | None = None) -> None:
    """Wait for `work`, at most `within`; when hurry is called for, or time is up, it is cancelled."""
    working, hurrying = asyncio.ensure_future(work), asyncio.ensure_future(hurry.wait())
    patience = None if within is None else within.total_seconds()
    await asyncio.wait((working, hurrying), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    for task in (working, hurrying):
        task.cancel()
    await asyncio.wait((working, hurrying))
    if not working.cancelled():
        working.result()
