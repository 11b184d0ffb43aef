"""The choice of the event loop: `loop_factory`, with timers that wait for what has arrived.

A process may pause: it is stopped, its machine is moved, or one step of it takes long. Then timers are
due, and the sockets have what peers sent meanwhile. The loop of uvloop runs the timers before it
reads that. The loop of asyncio reads first, but a timer that cancels a task still comes before the task's
next step. So `patient` has a timer that is late wait once more, for a moment of reading. A timer that is
less than LATE behind runs at once: under load that is usual.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final

LATE: Final = 1.0
"""Seconds after which a timer is late: the loop stood still."""
READING: Final = 0.1
"""Seconds that a late timer waits for what has arrived."""


class LoopUnavailable(Exception):
    """The event loop is not installed. The text is for the operator."""


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the maker of an event loop: `asyncio`, `uvloop`, or `auto`.

    `auto` means uvloop where it is installed, else asyncio. Raises LoopUnavailable.
    """
    if name == "asyncio":
        return patient(asyncio.SelectorEventLoop)
    try:
        import uvloop  # noqa: PLC0415 - only with the extra
    except ImportError:
        if name == "auto":
            return patient(asyncio.SelectorEventLoop)
        raise LoopUnavailable("uvloop is not installed: pip install 'taskgate[uvloop]'") from None
    return patient(uvloop.Loop)


def name_of(loop: asyncio.AbstractEventLoop) -> str:
    """Return `asyncio` or `uvloop`."""
    return next(kind.__module__.partition(".")[0] for kind in type(loop).__mro__ if kind.__module__ != __name__)


class _Timer:
    """A timer of the loop; `start` starts it for a loop time or, with `later`, for seconds from now."""

    __slots__ = ("_args", "_callback", "_handle", "_is_late", "_loop", "_when")

    def __init__(self, loop: Any, when: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._loop = loop
        self._when = when
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._handle: Any = None
        self._is_late = False

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        handle, self._handle = self._handle, None
        self._callback, self._args = None, ()
        if handle is not None:
            handle.cancel()

    def cancelled(self) -> bool:
        return self._callback is None

    def start(self, handle: Any) -> "_Timer":
        self._handle = handle
        return self

    def run(self, context: Context | None) -> None:
        if self._callback is None:
            return
        if not self._is_late and self._loop.time() - self._when > LATE:
            self._is_late = True
            self._handle = self._loop.start_timer(READING, self, context)
            return
        callback, args = self._callback, self._args
        self._handle, self._args = None, ()
        callback(*args)


def patient(base: type[Any]) -> Callable[[], Any]:
    """Return the class of a loop as `base`, whose late timers wait once for what has arrived."""
    is_of_asyncio = issubclass(base, asyncio.BaseEventLoop)

    class PatientLoop(base):  # type: ignore[misc]
        def call_later(
            self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
        ) -> _Timer:
            timer = _Timer(self, self.time() + delay, callback, args)
            return timer.start(self.start_timer(delay, timer, context))

        def call_at(
            self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
        ) -> _Timer:
            timer = _Timer(self, when, callback, args)
            return timer.start(self.start_timer(when - self.time(), timer, context))

        def start_timer(self, delay: float, timer: _Timer, context: Context | None) -> Any:
            # Each of the two loops makes one of these methods of the other.
            if is_of_asyncio:
                return super().call_at(self.time() + delay, timer.run, context, context=context)
            return super().call_later(delay, timer.run, context, context=context)

    return PatientLoop
