"""The end of a gateway: `EndSignals` asks for it, `drain` lets work end, `Closers` closes the rest.

`cli` handles SIGTERM and SIGINT with `EndSignals`: the first asks for a drain, the second for a
hurry, and a process that hangs is killed. `Service.drain` calls `drain`, and `Service.close` then
closes everything else with `Closers`. `hurry` is an event that is set when the operator wants an
end at once. `wait_or_abort` ends a wait for it.
"""

import asyncio
import faulthandler
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from types import FrameType
from typing import Any, Final, NamedTuple

from taskgate.clock import Clock
from taskgate.config import GatewayConfig
from taskgate.listener.listener import PublicListener
from taskgate.wiring.build import Runtime

HURRY: Final = 0.7
"""Seconds between a second signal and the kill."""
GRACE: Final = timedelta(seconds=10)
"""Time of a shutdown in addition to the delay and the timeout of its drain, before the kill."""
LAST_WORDS: Final = timedelta(seconds=2)
"""Time that the listener has for answers that are being written, also if no time is left."""
LAST_MOMENT: Final = timedelta(milliseconds=150)
"""Time that `wait_or_abort` waits for cancelled work to end once `hurry` is set, and that each close
function gets then."""
LAST_CONNECTIONS: Final = timedelta(milliseconds=20)
"""Time to accept connections that the system had begun to set up: a few network round trips."""
LAST_ARRIVALS: Final = timedelta(seconds=1)
"""Time for requests that were on their way when the listening socket was closed, with other
replicas."""

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


# --- the signals ------------------------------------------------------------------------------------------------------


class EndSignals:
    """The handler of SIGTERM and SIGINT for the running loop, in the main thread.

    `stop` is set by the first signal or by `end`, `hurry` by the next signal.
    """

    def __init__(self, longest: timedelta) -> None:
        """`longest` is the longest time of a drain, with all its waits."""
        self._longest = longest
        self._loop = asyncio.get_running_loop()
        self.stop, self.hurry = asyncio.Event(), asyncio.Event()
        self.first: int | None = None
        """The number of the first signal; None while none has come."""
        self._is_limited = False

    def listen(self) -> None:
        """Handle the signals from now on, until the loop is closed."""
        for number in _ENDING:
            # The first call wakes the loop up. The second handler runs between two bytecodes, also
            # in a blocked loop.
            self._loop.add_signal_handler(number, lambda: None)
            signal.signal(number, self._on_signal)

    def end(self) -> None:
        """Ask for a drain without a signal, for an operator. The next signal counts as the first."""
        self._limit_time()
        self.stop.set()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal, between two bytecodes of whatever runs."""
        if self.first is None:
            self.first = number
            self._limit_time()
            self._call_in_loop(self.stop.set)
        else:
            _kill_after(HURRY)
            self._call_in_loop(self.hurry.set)

    def _limit_time(self) -> None:
        """Have the process killed if the drain takes too long."""
        if not self._is_limited:
            self._is_limited = True
            _kill_after((self._longest + GRACE).total_seconds())

    def _call_in_loop(self, callback: Callable[[], object]) -> None:
        # A closed loop has nothing to end.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)


def _kill_after(seconds: float) -> None:
    """Kill the process after that time, with status 1 and a traceback. A later call replaces an
    earlier one.
    """
    # A thread outside of the interpreter does it, so no lock can delay it. It prints names of
    # functions.
    with suppress(AttributeError, OSError, RuntimeError, ValueError):
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)


# --- the drain --------------------------------------------------------------------------------------------------------


class Drained(NamedTuple):
    """The tasks of this process in a drain, as numbers.

    - `ended`: their calls ended by themselves within the timeout
    - `failed`: their calls were cancelled, and the tasks ended as shut down
    - `left`: another process resumes their calls
    """

    ended: int
    failed: int
    left: int


async def drain(
    config: GatewayConfig,
    *,
    runtime: Runtime,
    listener: PublicListener,
    clock: Clock,
    delay: timedelta,
    hurry: asyncio.Event,
) -> Drained:
    """Serve for `delay` as before, then take no new work, and let running work end.

    The steps of a gateway alone differ from those of one with a shared store, which has other
    replicas. Alone, it waits until tasks and requests have ended and results were fetched, and only
    then closes the listening socket. With others, the socket closes first (`_stop_new_work`), and
    the tasks of this process are the only wait.
    """
    rules, is_alone = config.server.drain, runtime.cluster.leasing is None
    await _stop_new_work(listener, runtime, delay, rules.timeout, hurry)
    deadline = clock.elapsed() + rules.timeout.total_seconds()
    if rules.running_tasks == "wait":
        waited = _settled(runtime) if is_alone else runtime.runner.idle()
        await wait_or_abort(hurry, waited, within=rules.timeout)
    ended = runtime.unfetched.count
    await wait_or_abort(hurry, runtime.sweeper.close(), moment=LAST_MOMENT)
    await wait_or_abort(hurry, runtime.runner.stop(), moment=LAST_MOMENT)
    if is_alone:
        # No replica ends them: their hosts return to the next process.
        runtime.result_waiter.leave(frozenset(runtime.runner.left), rules.timeout)
        left = timedelta(seconds=max(deadline - clock.elapsed(), 0.0))
        await wait_or_abort(hurry, _settled(runtime), within=left)
        await _close_socket(listener)
    left = timedelta(seconds=max(deadline - clock.elapsed(), 0.0))
    await wait_or_abort(hurry, _close_listener(listener, runtime, left))
    # A task that was being created when the runner stopped may have started since.
    await wait_or_abort(hurry, runtime.runner.stop(), moment=LAST_MOMENT)
    return Drained(ended=ended, failed=runtime.unfetched.count - ended, left=len(runtime.runner.left))


async def _stop_new_work(
    listener: PublicListener, runtime: Runtime, delay: timedelta, retry_after: timedelta, hurry: asyncio.Event
) -> None:
    """Serve for `delay` as before, then take no new work.

    Alone, the gateway refuses what starts something, and tells its host to retry after
    `retry_after`. It still serves requests about existing tasks and sessions, also on new
    connections.

    With a shared store nothing is refused. From the start of `delay`, each answer closes its
    connection, so that the host opens one to another replica. After it the listening socket closes.
    A second later, modern subscriptions, idle connections and GET streams end.

    In both cases hosts without tasks get a handle for each call that may be handed off.
    """
    # The store can be shared; whether another replica runs now is not looked up.
    shares_store = runtime.cluster.leasing is not None
    if shares_store:
        listener.retire()
    await wait_or_abort(hurry, asyncio.sleep(delay.total_seconds()))
    if shares_store:
        await _close_socket(listener)
        await wait_or_abort(hurry, asyncio.sleep(LAST_ARRIVALS.total_seconds()))
        runtime.subscriptions.finish()
        listener.wind_down()
    else:
        runtime.gateway.drain(retry_after)
    # A task outlives this process, and a call that blocks does not. Another replica serves waits, if there is one.
    runtime.result_waiter.move_watches(calls_alone=not shares_store)
    runtime.calls.hand_off()


async def _close_socket(listener: PublicListener) -> None:
    """Close the listening socket, without losing connections that are being made.

    New ones are turned away first; those under way have LAST_CONNECTIONS to be accepted.
    """
    listener.turn_away()
    await asyncio.sleep(LAST_CONNECTIONS.total_seconds())
    listener.stop_accepting()


async def _settled(runtime: Runtime) -> None:
    """Wait until no task and no request to a server runs, and the results of tasks were fetched.

    The wait for fetches is limited by itself, the others are not: callers use `wait_or_abort`.
    """
    await runtime.runner.idle()
    await runtime.upstreams.requests.wait_idle()
    await runtime.unfetched.fetched()


async def _close_listener(listener: PublicListener, runtime: Runtime, left: timedelta) -> None:
    """End modern subscriptions, close the listener, and wait for the requests under way.

    Returns when the listener has no connection left; `left` and LAST_WORDS later it aborts them. After
    `left` the calls that still wait for their server end with an error, which their hosts have
    LAST_WORDS to receive.
    """

    def cut_off() -> None:
        runtime.calls.stop()
        runtime.retries.stop()

    runtime.subscriptions.finish()
    cutting = asyncio.get_running_loop().call_later(left.total_seconds(), cut_off)
    try:
        await listener.close(left + LAST_WORDS)
    finally:
        cutting.cancel()
        # Held calls wait for input responses, which no host can send any more.
        runtime.retries.stop()


# --- waits with a time limit ------------------------------------------------------------------------------------------


async def wait_or_abort(
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
    try:
        if working.done() and not working.cancelled():
            working.result()
    finally:
        del task, working


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
        await wait_or_abort(self.hurry, close(), moment=LAST_MOMENT)
