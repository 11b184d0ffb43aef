"""A periodic keep-alive of a slow call: `Keepalive`.

Hosts time out on silence, and some accept only progress notifications as a sign of life. The
gateway creates one for the stream of a call, and stops it when the call is over. Its `beat` sends
what the host accepts.
"""

from collections.abc import Callable

from taskgate.system.timer_wheel import Cancellable, TimerWheel


class Keepalive:
    """Calls `beat` every `interval` seconds until it is stopped; it must be stopped."""

    __slots__ = ("_alarm", "_alarms", "_beat", "_interval")

    def __init__(self, alarms: TimerWheel, interval: float, beat: Callable[[], None]) -> None:
        self._alarms = alarms
        self._interval = interval
        self._beat = beat
        self._alarm: Cancellable | None = alarms.call_later(interval, self._on_alarm)

    def stop(self) -> None:
        """Stop it, because the call is over or the host no longer waits."""
        if self._alarm is not None:
            # Drop the alarm too: it refers to this object, and only the collector frees a cycle.
            self._alarm.cancel()
            self._alarm = None

    def _on_alarm(self) -> None:
        self._beat()
        self._alarm = self._alarms.call_later(self._interval, self._on_alarm)
