"""Timeouts of one usual length behind one timer of the event loop: `TimerWheel`.

Nearly all of them are cancelled before they expire. A loop timer for each would cost a call more
than everything else that limits its time.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from functools import partial
from itertools import count
from typing import Protocol

Cancel = Callable[[], object]
"""Cancels a pending callback; does nothing if it has run."""


class Timed(Protocol):
    """An object with one timer at a time. The wheel has it until the timer expires or is stopped."""

    def on_alarm(self) -> None:
        """Handle that the time is up. Must not raise."""
        ...


class TimerWheel:
    """Timers that are cheap for `usual` seconds, and correct for any other time.

    For one thread. `close` must be called at the end.
    """

    def __init__(self, usual: float) -> None:
        self._usual = usual
        # The loop time at which each is due, and its callback. In the order in which they are due,
        # because all have the same length. A key is a number, or a `Timed`.
        self._pending: dict[object, tuple[float, Callable[[], object]]] = {}
        # The timers of other lengths that `start` has set.
        self._others: dict[object, asyncio.TimerHandle] = {}
        self._numbers = count()
        self._handle: asyncio.TimerHandle | None = None
        # Kept: to ask for the running loop is a system call in Python 3.11.
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the thread, which must run at the first call."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        return loop

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Cancel:
        """Call `callback` once, `seconds` from now, unless the returned function is called before.

        It must not raise.
        """
        loop = self._loop or self.loop()
        if seconds != self._usual:
            return loop.call_later(seconds, callback).cancel
        number, due = next(self._numbers), loop.time() + seconds
        self._pending[number] = (due, callback)
        if self._handle is None:
            # An empty context, because the tick serves other timers too.
            self._handle = loop.call_at(due, self._tick, loop, context=Context())
        return partial(self._pending.pop, number, None)

    def start(self, timed: Timed, seconds: float, now: float) -> None:
        """Call `timed.on_alarm` once, `seconds` after the loop time `now`, unless it is stopped
        before."""
        if seconds != self._usual:
            self._others[timed] = self.loop().call_at(now + seconds, self._expire, timed)
            return
        due = now + seconds
        self._pending[timed] = (due, timed.on_alarm)
        if self._handle is None:
            loop = self.loop()
            self._handle = loop.call_at(due, self._tick, loop, context=Context())

    def stop(self, timed: object) -> None:
        """Stop the timer of `timed`, if it has one."""
        if self._pending.pop(timed, None) is None and timed in self._others:
            self._others.pop(timed).cancel()

    def close(self) -> None:
        """Drop all timers of the usual length."""
        self._pending.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _expire(self, timed: Timed) -> None:
        del self._others[timed]
        timed.on_alarm()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        # `_handle` stays set meanwhile: a callback that starts a timer must not start another tick.
        now = loop.time()
        try:
            while self._pending:
                number, (due, callback) = next(iter(self._pending.items()))
                if due > now:
                    break
                del self._pending[number]
                callback()
        finally:
            # Also after a callback that raised, which must not end the timers of others.
            first = next(iter(self._pending.values()), None)
            self._handle = None if first is None else loop.call_at(first[0], self._tick, loop)
