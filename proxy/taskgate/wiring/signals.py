"""Signals that end the gateway: the first asks for a drain, the second ends it, and a process that hangs is ended hard.

What must not live here: what a drain does (`app`). What holds: a signal is heard while the event loop is blocked, and
the process is over in time, whatever hangs: threads, the loop, or what it waits for.
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
"""Seconds between a second signal and the hard end."""
GRACE: Final = timedelta(seconds=10)
"""What a shutdown may take beyond the delay and the timeout of its drain, before the hard end."""

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


class EndSignals:
    """Hears SIGTERM and SIGINT for the running loop, in the main thread.

    `stop` is set by the first of them, or by `end`; `hurry` by the next one.
    """

    def __init__(self, longest: timedelta) -> None:
        """`longest` is what a drain may take, with all its waits."""
        self._longest = longest
        self._loop = asyncio.get_running_loop()
        self.stop, self.hurry = asyncio.Event(), asyncio.Event()
        self.first: int | None = None
        """The first signal that was heard."""
        self._is_bounded = False

    def listen(self) -> None:
        """Hear them from now on, until the loop is closed."""
        for number in _ENDING:
            # This one wakes the loop up. The other runs between two steps of Python, also in a loop that is blocked.
            self._loop.add_signal_handler(number, lambda: None)
            signal.signal(number, self._hear)

    def end(self) -> None:
        """Ask for the drain without a signal: the usual one, sent as well, cuts nothing short."""
        self._bound()
        self.stop.set()

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self.first is None:
            self.first = number
            self._bound()
            self._tell(self.stop.set)
        else:
            _end_hard_after(HURRY)
            self._tell(self.hurry.set)

    def _bound(self) -> None:
        if not self._is_bounded:
            self._is_bounded = True
            _end_hard_after((self._longest + GRACE).total_seconds())

    def _tell(self, said: Callable[[], object]) -> None:
        # A loop that is closed already has ended what there was.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(said)


def _end_hard_after(seconds: float) -> None:
    """End the process then, with status 1, and say where it hangs; a later call replaces an earlier one."""
    # A thread below Python does it, which no lock of ours can hold up. What it says are names of functions.
    with suppress(AttributeError, OSError, RuntimeError, ValueError):
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)
