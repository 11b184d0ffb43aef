"""Limits on repetition: `Throttle`, and `ThrottledLog` for log lines."""

import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final

LOG_PAUSE: Final = 60.0
"""Seconds for which the same text is not logged again."""


class Throttle:
    """A limit of one report in `pause` seconds. `elapsed` returns monotonic seconds."""

    def __init__(self, pause: float, elapsed: Callable[[], float] = monotonic) -> None:
        self._pause = pause
        self._elapsed = elapsed
        self._latest: float | None = None
        self._left_out = 0

    def take(self) -> int | None:
        """Return how many reports were left out since the last one; None to leave this one out too."""
        now = self._elapsed()
        if self._latest is not None and now - self._latest < self._pause:
            self._left_out += 1
            return None
        left_out, self._latest, self._left_out = self._left_out, now, 0
        return left_out


class ThrottledLog:
    """One text for the operator, logged at most once in `pause` seconds; for one thread."""

    def __init__(
        self, log: logging.Logger, text: str, *, level: int = logging.WARNING, pause: float = LOG_PAUSE
    ) -> None:
        self._log = log
        self._text = text
        self._level = level
        self._throttle = Throttle(pause)

    def emit(self, extra: Mapping[str, Any] | None = None, error: Exception | None = None) -> None:
        """Log the text, unless it was logged recently; `error` adds a traceback.

        The field `left_out` counts the calls since the last line that logged nothing.
        """
        left_out = self._throttle.take()
        if left_out is None:
            return
        fields = {**(extra or {}), **({"left_out": left_out} if left_out else {})}
        self._log.log(self._level, self._text, extra=fields, exc_info=error)
