"""Log lines with a limit on repetition: `ThrottledLog`."""

import logging
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

LOG_PAUSE: Final = 60.0
"""Seconds for which the same text is not logged again."""


class ThrottledLog:
    """One text for the operator, logged at most once in `pause` seconds; for one thread."""

    def __init__(
        self, log: logging.Logger, text: str, *, level: int = logging.WARNING, pause: float = LOG_PAUSE
    ) -> None:
        self._log = log
        self._text = text
        self._level = level
        self._pause = pause
        self._latest: float | None = None
        self._left_out = 0

    def emit(self, extra: Mapping[str, Any] | None = None, error: Exception | None = None) -> None:
        """Log the text, unless it was logged recently; `error` adds a traceback.

        The field `left_out` counts the calls since the last line that logged nothing.
        """
        now = monotonic()
        if self._latest is not None and now - self._latest < self._pause:
            self._left_out += 1
            return
        fields = dict(extra or {})
        if self._left_out:
            fields["left_out"] = self._left_out
        self._latest, self._left_out = now, 0
        self._log.log(self._level, self._text, extra=fields, exc_info=error)
