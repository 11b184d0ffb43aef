"""Timeouts of one usual length behind one timer of the event loop: `TimerWheel`.

Nearly all of them are cancelled before they expire. A loop timer for each would cost a call more
than everything else that limits its time. Long ones of other lengths share a timer for each second.
The call of a task has such a one: what is left of its lifetime.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Final, Protocol

LONG: Final = 60.0
"""Seconds from which on a timer of another than the usual length may be late by up to one second."""

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


class _Slot(set[Timed]):
    """Timers that are due together, behind one timer of the loop: all of a second, or a short one."""

    __slots__ = ("due", "handle")

    due: float
    handle: asyncio.TimerHandle


class TimerWheel:
    """Timers that are cheap for `usual` seconds and for LONG ones, and correct for any other time.

    For one thread. `close` must be called at the end.
    """

    def __init__(self, usual: float) -> None:
        self._usual = usual
        # The loop time at which each is due. In the order in which they are due, because all have the
        # same length.
        self._pending: dict[Timed, float] = {}
        # The slots of the timers of other lengths that `start` has set; by their due times, too.
        self._others: dict[Timed, _Slot] = {}
        self._slots: dict[float, _Slot] = {}
        # The slot that was used last. It stays when its last timer is stopped: the next one is often due
        # in the same second.
        self._newest: _Slot | None = None
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
            if seconds >= LONG:
                due = due // 1 + 1.0
            slot = self._newest
            if slot is None or slot.due != due:
                slot = self._slot_at(due, loop)
            slot.add(timed)
            self._others[timed] = slot
            return
        self._pending[timed] = due
        if self._handle is None:
            self._handle = loop.call_at(due, self._tick, loop, context=Context())

    def stop(self, timed: Timed) -> None:
        """Stop the timer of `timed`, if it has one."""
        if self._pending.pop(timed, None) is None and (slot := self._others.pop(timed, None)) is not None:
            slot.discard(timed)
            if not slot and slot is not self._newest:
                self._drop(slot)

    def close(self) -> None:
        """Drop all timers that an object has."""
        self._pending.clear()
        self._others.clear()
        self._newest = None
        for slot in tuple(self._slots.values()):
            self._drop(slot)
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _slot_at(self, due: float, loop: asyncio.AbstractEventLoop) -> _Slot:
        """Return the slot of that time, which is the newest one from now on."""
        before = self._newest
        if before is not None and not before:
            self._drop(before)
        slot = self._slots.get(due)
        if slot is None:
            slot = self._slots[due] = _Slot()
            slot.due = due
            slot.handle = loop.call_at(due, self._expire, slot, loop, context=Context())
        self._newest = slot
        return slot

    def _drop(self, slot: _Slot) -> None:
        """Drop an empty slot, or one that is due."""
        slot.handle.cancel()
        self._slots.pop(slot.due, None)

    def _expire(self, slot: _Slot, loop: asyncio.AbstractEventLoop) -> None:
        self._drop(slot)
        if self._newest is slot:
            self._newest = None
        try:
            while slot:
                timed = slot.pop()
                del self._others[timed]
                timed.on_alarm()
        finally:
            # Also after a callback that raised, which must not end the timers of others.
            if slot:
                loop.call_soon(self._expire, slot, loop)

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
