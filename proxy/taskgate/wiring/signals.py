"""The signals that end the gateway: `EndSignals`. The first asks for a drain, the second for a
hurry, and a process that hangs is killed.

`cli` calls `listen`, waits for `stop`, and passes `hurry` to `Service.drain` and `Service.close`. A
signal is handled even while the event loop is blocked. The first signal also starts the time after
which the process is killed. So it ends, whatever hangs: a thread, the loop, or an await.
"""

import asyncio
import faulthandler
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import Final

HURRY: Final = 0.7
"""Seconds between a second signal and the kill."""
GRACE: Final = timedelta(seconds=10)
"""Time of a shutdown in addition to the delay and the timeout of its drain, before the kill."""

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


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
