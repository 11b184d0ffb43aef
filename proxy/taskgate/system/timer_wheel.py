"""Timeouts of one usual length behind one timer of the event loop: `TimerWheel`.

Nearly all of them are cancelled before they expire. A loop timer for each would cost a call more
than everything else that limits its time.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Protocol

Cancel = Callable[[], object]
"""Cancels a pending callback; does nothing if it has run."""


class Timed(Protocol):
    """An object with one timer at a time. The wheel has it until the timer expires or is stopped."""

    @property
    def on_alarm(self) -> Callable[[], object]:
        """The function that is called when the time is up. Must not raise."""
        ...


class _Alarm:
    """A timer that is no object of its owner's."""

    __slots__ = ("on_alarm",)

    on_alarm: Callable[[], object]


class TimerWheel:
    """Timers that are cheap for `usual` seconds, and correct for any other time.

    For one thread. `close` must be called at the end.
    """

    def __init__(self, usual: float) -> None:
        self._usual = usual
        # The loop time at which each is due. In the order in which they are due, because all have the
        # same length.
        self._pending: dict[Timed, float] = {}
        # The timers of other lengths that `start` has set.
        self._others: dict[object, asyncio.TimerHandle] = {}
        self._handle: asyncio.TimerHandle | None = None
        self.known_loop: asyncio.AbstractEventLoop | None = None
        """The loop that `loop` has returned: to ask for the running one is a system call in Python 3.11."""

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the thread, which must run at the first call."""
        loop = self.known_loop
        if loop is None:
            loop = self.known_loop = asyncio.get_running_loop()
        return loop

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Cancel:
        """Call `callback` once, `seconds` from now, unless the returned function is called before.

        It must not raise.
        """
        loop = self.known_loop or self.loop()
        if seconds != self._usual:
            return loop.call_later(seconds, callback).cancel
        alarm = _Alarm()
        alarm.on_alarm = callback
        self._pending[alarm] = due = loop.time() + seconds
        if self._handle is None:
            # An empty context, because the tick serves other timers too.
            self._handle = loop.call_at(due, self._tick, loop, context=Context())
        return partial(self._pending.pop, alarm, None)

    def start(self, timed: Timed, seconds: float, now: float | None = None) -> None:
        """Call `timed.on_alarm` once, `seconds` after the loop time `now`, unless it is stopped
        before. Without `now`, from this moment on."""
        loop = self.known_loop or self.loop()
        due = (loop.time() if now is None else now) + seconds
        if seconds != self._usual:
            self._others[timed] = loop.call_at(due, self._expire, timed)
            return
        self._pending[timed] = due
        if self._handle is None:
            self._handle = loop.call_at(due, self._tick, loop, context=Context())

    def stop(self, timed: Timed) -> None:
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
                timed, due = next(iter(self._pending.items()))
                if due > now:
                    break
                del self._pending[timed]
                timed.on_alarm()
        finally:
            # Also after a callback that raised, which must not end the timers of others.
            first = next(iter(self._pending.values()), None)
            self._handle = None if first is None else loop.call_at(first, self._tick, loop)
