"""Timeouts of one usual length behind one timer of the event loop: `TimerWheel`.

Nearly all of them are cancelled before they expire. A loop timer for each would cost a call more
than everything else that limits its time.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Protocol


class Cancellable(Protocol):
    """A pending callback."""

    def cancel(self) -> None:
        """Cancel the callback; no-op if it has run."""
        ...


class TimerWheel:
    """Timers that are cheap for `usual` seconds, and correct for any other time.

    For one thread. `close` must be called at the end.
    """

    def __init__(self, usual: float) -> None:
        self._usual = usual
        # In the order in which they are due, because all have the same length.
        self._pending: dict[_Timer, None] = {}
        self._handle: asyncio.TimerHandle | None = None

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Cancellable:
        """Call `callback` once, `seconds` from now, unless it is cancelled before.

        It must not raise.
        """
        loop = asyncio.get_running_loop()
        if seconds != self._usual:
            return loop.call_later(seconds, callback)
        timer = _Timer(loop.time() + seconds, callback, self._pending)
        self._pending[timer] = None
        if self._handle is None:
            # An empty context, because the tick serves other timers too.
            self._handle = loop.call_at(timer.due, self._tick, loop, context=Context())
        return timer

    def close(self) -> None:
        """Drop all timers of the usual length."""
        self._pending.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = None
        now = loop.time()
        while self._pending:
            first = next(iter(self._pending))
            if first.due > now:
                self._handle = loop.call_at(first.due, self._tick, loop)
                return
            first.cancel()
            first.callback()


class _Timer:
    """One timer; compared by identity."""

    __slots__ = ("_pending", "callback", "due")

    def __init__(self, due: float, callback: Callable[[], object], pending: "dict[_Timer, None]") -> None:
        self.due = due
        self.callback = callback
        self._pending = pending

    def cancel(self) -> None:
        """Remove the timer."""
        self._pending.pop(self, None)
