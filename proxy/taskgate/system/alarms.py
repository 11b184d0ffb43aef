"""Waits that are nearly all of one length, and nearly never run out: one timer of the event loop for all of them.

A timer of its own costs a call more than everything else that bounds it. What must not live here: what happens when a
wait runs out.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Protocol


class Cancellable(Protocol):
    """Something that is still to happen."""

    def cancel(self) -> None:
        """It does not happen any more; nothing where it has happened."""
        ...


class Alarms:
    """Rings after a time: cheap for waits of `usual` seconds, and right for any other.

    For one thread. `close` must be called once nobody waits any more.
    """

    def __init__(self, usual: float) -> None:
        self._usual = usual
        # In the order in which they are due, since all wait for as long.
        self._waiting: dict[_Alarm, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def after(self, seconds: float, ring: Callable[[], object]) -> Cancellable:
        """Call `ring` once, `seconds` from now, unless it is cancelled before. It must not raise."""
        loop = asyncio.get_running_loop()
        if seconds != self._usual:
            return loop.call_later(seconds, ring)
        alarm = _Alarm(loop.time() + seconds, ring, self._waiting)
        self._waiting[alarm] = None
        if self._timer is None:
            # It rings for others, too: nothing that is ambient here is theirs.
            self._timer = loop.call_at(alarm.due, self._tick, loop, context=Context())
        return alarm

    def close(self) -> None:
        """Forget everybody who waits."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        while self._waiting:
            first = next(iter(self._waiting))
            if first.due > now:
                self._timer = loop.call_at(first.due, self._tick, loop)
                return
            first.cancel()
            first.ring()


class _Alarm:
    """One wait; compared by identity."""

    __slots__ = ("_waiting", "due", "ring")

    def __init__(self, due: float, ring: Callable[[], object], waiting: "dict[_Alarm, None]") -> None:
        self.due = due
        self.ring = ring
        self._waiting = waiting

    def cancel(self) -> None:
        """See Cancellable."""
        self._waiting.pop(self, None)
