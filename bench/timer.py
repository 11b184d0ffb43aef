"""A periodic timer of the kernel, for an event loop whose own timers are rounded to milliseconds. Linux only."""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

_libc = ctypes.CDLL(None, use_errno=True)


class _Setting(ctypes.Structure):
    """`struct itimerspec`: the period, then the first expiry, each in seconds and nanoseconds."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")]


class Ticker:
    """Calls `tick` every `period` seconds from now on, until closed; once for expiries that came too fast."""

    def __init__(self, period: float, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._loop = asyncio.get_running_loop()
        seconds, fraction = divmod(period, 1.0)
        apart = int(seconds), int(fraction * 1e9)
        self._descriptor = _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        setting = _Setting(*apart, *apart)
        if self._descriptor < 0 or _libc.timerfd_settime(self._descriptor, 0, ctypes.byref(setting), None):
            raise OSError(ctypes.get_errno(), "no timer of the kernel")
        self._loop.add_reader(self._descriptor, self._expired)

    def _expired(self) -> None:
        os.read(self._descriptor, 8)
        self._tick()

    def close(self) -> None:
        """Stop ticking."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
