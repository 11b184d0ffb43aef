"""Signs of life of a call that takes its time: hosts bound silence, and some know nothing but progress.

What must not live here: what a sign of life is (whoever hears the call shows one).
"""

from collections.abc import Callable

from taskgate.system.alarms import Alarms, Cancellable


class Pulse:
    """Calls `beat` after every `interval` seconds until it is stopped, which it must be."""

    __slots__ = ("_alarm", "_alarms", "_beat", "_interval")

    def __init__(self, alarms: Alarms, interval: float, beat: Callable[[], None]) -> None:
        self._alarms = alarms
        self._interval = interval
        self._beat = beat
        self._alarm: Cancellable | None = alarms.after(interval, self._ring)

    def stop(self) -> None:
        """The call is over, or nobody waits for it any more."""
        if self._alarm is not None:
            # Let go of, too: the alarm holds this, and a ring of such is found by the collector alone.
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        self._beat()
        self._alarm = self._alarms.after(self._interval, self._ring)
