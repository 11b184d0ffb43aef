"""The freed memory that the allocator of glibc keeps: `configure`, `trim`, `reclaim` and `IdleTrim`.

Large messages come from its heap. To give their memory back after each, and to ask for it anew,
makes a message of 1 MiB up to three times as dear. So it is kept under load, and given back once
the process is idle. Other allocators ignore all of this.
"""

import ctypes
import gc
import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from taskgate.system.offload import in_thread

_LARGE_BLOCK: Final = 31 * 1024 * 1024
"""Bytes: glibc adapts its threshold to freed blocks of up to 32 MiB."""
_M_ARENA_MAX: Final = -8
"""The number of the option in glibc's malloc.h."""

IDLE_UPDATES: Final = 20
"""Updates in a row without much work, until memory is given back: 5 s at four a second."""
BUSY: Final = 0.025
"""Seconds of CPU between two updates that are much work: a tenth of the time."""
WORTHWHILE: Final = 16 * 2**20
"""Bytes above what was left after the last time, from which it is worth the work."""


def configure() -> None:
    """Make glibc keep memory for large messages, in one heap of all threads.

    glibc adapts to the largest freed block: smaller ones come from its heap from then on, and it
    keeps twice as much. The block is not written to, so it takes no memory. What is free at the end
    of another thread's heap is never given back, up to that much for each.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    bytearray(_LARGE_BLOCK)


def trim() -> None:
    """Return freed memory to the system."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def reclaim() -> float:
    """Free what only the collector of cycles finds, and return freed memory to the system; returns
    the seconds that it took.

    The collector runs by itself once many objects were made. What is refused makes none, however
    large it is.
    """
    began = time.perf_counter()
    gc.collect()
    trim()
    return time.perf_counter() - began


class IdleTrim:
    """Returns freed memory to the system once the process has been idle for some seconds.

    `update` must be called four times a second. `cpu` returns the seconds of CPU that the process
    has used. `start` starts a trim, by default in the thread for large messages, since it takes up
    to 0.1 s.
    """

    def __init__(
        self,
        *,
        cpu: Callable[[], float] = time.process_time,
        start: Callable[[], object] = lambda: in_thread(trim),
    ) -> None:
        self._cpu = cpu
        self._start = start
        self._cpu_used = 0.0
        self._idle_updates = 0
        self._left = math.inf
        self._was_started = False

    def update(self, resident: int) -> None:
        """Note the bytes in use, and start a trim if it is time for it."""
        self._left = resident if self._was_started else min(self._left, resident)
        self._was_started = False
        cpu_used = self._cpu()
        is_busy = cpu_used - self._cpu_used > BUSY
        self._cpu_used = cpu_used
        self._idle_updates = 0 if is_busy else self._idle_updates + 1
        if self._idle_updates >= IDLE_UPDATES and resident - self._left >= WORTHWHILE:
            self._idle_updates, self._was_started = 0, True
            self._start()
