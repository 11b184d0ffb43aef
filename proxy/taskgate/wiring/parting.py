"""The steps of a shutdown that concern hosts, and waits with a time limit: `unless`, `Closers`.

`Service.drain` calls `take_no_more`, `settled`, `close_door` and `part`, in an order that depends on
whether there are other replicas. `Service.close` uses `Closers`. A wait ends by itself, at its
limit, or in a hurry. `hurry` is an event that is set when the operator wants an end at once, for
example with a second signal.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final

from taskgate.listener.listener import PublicListener
from taskgate.wiring.build import Runtime

LAST_WORDS: Final = timedelta(seconds=2)
"""Time for answers that are being written, in any case."""
LAST_MOMENT: Final = timedelta(milliseconds=150)
"""Time for each step that hangs after a hurry was asked for."""
LAST_CONNECTIONS: Final = timedelta(milliseconds=20)
"""Time for connections that were being made when the listener stopped: a few network round trips."""
LAST_ARRIVALS: Final = timedelta(seconds=1)
"""Time for requests that were on their way when the listener closed, if other replicas serve the
next."""


async def take_no_more(
    listener: PublicListener, runtime: Runtime, delay: timedelta, patience: timedelta, hurry: asyncio.Event
) -> None:
    """Serve for `delay` as before, then take no new work.

    Alone, the gateway refuses what starts something, with the retry delay `patience`. It still
    serves requests about existing tasks and sessions, also on new connections.

    With other replicas nothing is refused. Each answer closes its connection, so that the host
    opens one to another replica. Then idle connections and streams with notifications end.
    """
    has_others = runtime.cluster.leasing is not None
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
    """Stop accepting connections, without losing those that are being made."""
    listener.turn_away()
    await asyncio.sleep(LAST_CONNECTIONS.total_seconds())
    listener.stop_accepting()


async def settled(runtime: Runtime) -> None:
    """Wait until no task and no request to a server runs, and the results of tasks were fetched.

    Hosts have a limited time to fetch them.
    """
    await runtime.runner.idle()
    await runtime.mounting.requests.wait_idle()
    await runtime.unfetched.fetched()


async def part(listener: PublicListener, runtime: Runtime, left: timedelta) -> None:
    """End streams of notifications, close the listener, and wait for the running requests.

    After `left` the calls that still wait for their server end with an error, which their hosts
    have LAST_WORDS to receive.
    """
    runtime.subscriptions.finish()
    cutting = asyncio.get_running_loop().call_later(left.total_seconds(), _cut_off, runtime)
    try:
        await listener.close(left + LAST_WORDS)
    finally:
        cutting.cancel()
        # The hosts of held calls cannot return any more.
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
    """Wait for `work`, at most `within`; when `hurry` is set, only `moment` longer.

    At the limit the work is cancelled, and its end awaited. In a hurry, work that does not end when
    cancelled is abandoned after LAST_MOMENT. Raises what `work` raises.
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
    """The stack of close functions; `aclose` calls them in reverse.

    Once `hurry` is set, a function that hangs is abandoned, and the next one called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hurry = asyncio.Event()

    def add(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Add a close function."""
        self.push_async_callback(self._close, close)

    async def _close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await unless(self.hurry, close(), moment=LAST_MOMENT)
