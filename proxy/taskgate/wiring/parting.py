"""The steps of a shutdown that concern hosts, and waits with a time limit: `unless`, `Closers`.

`Service.drain` calls the steps in this order; a gateway with a shared store has other replicas:

- `take_no_more`: new work goes to other replicas, or is refused if there are none;
- `settled`: running tasks and requests end, and their results are fetched. Not called with other
  replicas, where `Service` waits for the running tasks alone;
- `close_door`: no more connections. With other replicas, `take_no_more` has already called it;
- `part`: the streams and the public listener close.

`Service.close` then closes everything else with `Closers`. `hurry` is an event that is set when the
operator wants an end at once, for example with a second signal. `unless` ends a wait for it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final

from taskgate.listener.listener import PublicListener
from taskgate.wiring.build import Runtime

LAST_WORDS: Final = timedelta(seconds=2)
"""Time that `part` adds for answers that are being written, also if no time is left."""
LAST_MOMENT: Final = timedelta(milliseconds=150)
"""Time that `unless` waits for cancelled work to end once `hurry` is set, and that each close
function gets then."""
LAST_CONNECTIONS: Final = timedelta(milliseconds=20)
"""Time to accept connections that the system had begun to set up: a few network round trips."""
LAST_ARRIVALS: Final = timedelta(seconds=1)
"""Time for requests that were on their way when the listening socket was closed, with other
replicas."""


async def take_no_more(
    listener: PublicListener, runtime: Runtime, delay: timedelta, retry_after: timedelta, hurry: asyncio.Event
) -> None:
    """Serve for `delay` as before, then take no new work.

    Alone, the gateway refuses what starts something, and tells its host to retry after
    `retry_after`. It still serves requests about existing tasks and sessions, also on new
    connections.

    With a shared store nothing is refused. From the start of `delay`, each answer closes its
    connection, so that the host opens one to another replica. After it the listening socket closes.
    A second later, modern subscriptions, idle connections and GET streams end.
    """
    # The store can be shared; whether another replica runs now is not looked up.
    shares_store = runtime.cluster.leasing is not None
    if shares_store:
        listener.retire()
    await unless(hurry, asyncio.sleep(delay.total_seconds()))
    if shares_store:
        await close_door(listener)
        await unless(hurry, asyncio.sleep(LAST_ARRIVALS.total_seconds()))
        runtime.subscriptions.finish()
        listener.wind_down()
    else:
        runtime.gateway.drain(retry_after)


async def close_door(listener: PublicListener) -> None:
    """Close the listening socket, without losing connections that are being made.

    New ones are turned away first; those under way have LAST_CONNECTIONS to be accepted.
    """
    listener.turn_away()
    await asyncio.sleep(LAST_CONNECTIONS.total_seconds())
    listener.stop_accepting()


async def settled(runtime: Runtime) -> None:
    """Wait until no task and no request to a server runs, and the results of tasks were fetched.

    The wait for fetches is limited by itself, the others are not: callers use `unless`.
    """
    await runtime.runner.idle()
    await runtime.mounting.requests.wait_idle()
    await runtime.unfetched.fetched()


async def part(listener: PublicListener, runtime: Runtime, left: timedelta) -> None:
    """End modern subscriptions, close the listener, and wait for the requests under way.

    Returns when the listener has no connection left; `left` and LAST_WORDS later it aborts them. After
    `left` the calls that still wait for their server end with an error, which their hosts have
    LAST_WORDS to receive.
    """
    runtime.subscriptions.finish()
    cutting = asyncio.get_running_loop().call_later(left.total_seconds(), _cut_off, runtime)
    try:
        await listener.close(left + LAST_WORDS)
    finally:
        cutting.cancel()
        # Held calls wait for input responses, which no host can send any more.
        runtime.calls.stop()


def _cut_off(runtime: Runtime) -> None:
    """End all running calls with an error: plain calls of the legacy era, then modern ones."""
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

    Work that has not ended then is cancelled, and its end awaited. If `hurry` is set when the work
    is cancelled, that wait is LAST_MOMENT long, and work that still runs is abandoned. Otherwise it
    has no limit, and setting `hurry` later does not shorten it. Returns normally in each case;
    raises what `work` raises, unless it was cancelled or abandoned.
    """
    working, hurrying = asyncio.ensure_future(work), asyncio.ensure_future(hurry.wait())
    limit = None if within is None else within.total_seconds()
    try:
        await asyncio.wait((working, hurrying), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
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

    Each runs to its end. Once `hurry` is set, one that hangs is cancelled after LAST_MOMENT, soon
    abandoned, and the next one called. `Service.close` may replace `hurry` by its caller's event.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hurry = asyncio.Event()

    def add(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Add a close function."""
        self.push_async_callback(self._close, close)

    async def _close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await unless(self.hurry, close(), moment=LAST_MOMENT)
