"""Limits on repetition: `Throttle`, and for log lines `ThrottledLog` for one text, `KeyedLog` for one about many.

Many are callers, or upstreams with a reason.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any, Final

LOG_PAUSE: Final = 60.0
"""Seconds for which the same text is not logged again."""
KEYS: Final = 4096
"""Keys that a `KeyedLog` remembers; of more, the one with the oldest line is forgotten."""
MOST_LINES: Final = 60
"""Lines of a `KeyedLog` in LOG_PAUSE seconds, for all keys."""


class Throttle:
    """A limit of one report in `pause` seconds. `elapsed` returns monotonic seconds; None for the usual ones."""

    def __init__(self, pause: float, elapsed: Callable[[], float] | None = None) -> None:
        self._pause = pause
        self._elapsed = elapsed
        self._latest: float | None = None
        self._left_out = 0

    def take(self) -> int | None:
        """Return how many reports were left out since the last one; None to leave this one out too."""
        now = monotonic() if self._elapsed is None else self._elapsed()
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


@dataclass(slots=True)
class _KeyLines:
    """The time of the last line of a key, the events since then, and the fields of the last one."""

    at: float
    left_out: int
    fields: Mapping[str, Any]


class KeyedLog:
    """One text for the operator about many keys; for one thread.

    A key has at most one line in LOG_PAUSE seconds, all keys together MOST_LINES. An event without a
    line is counted in the field `left_out` of the next line of its key. `flush` writes that line when
    the pause is over. Events of keys that got no line, because all had too many, are counted in
    `left_out_elsewhere` of the next line of any key. Times are seconds of a monotonic clock.
    """

    def __init__(self, log: logging.Logger, text: str, *, level: int = logging.WARNING) -> None:
        self._log = log
        self._text = text
        self._level = level
        # The one with the oldest line first.
        self._keys: OrderedDict[Hashable, _KeyLines] = OrderedDict()
        self._elsewhere = 0
        self._began = 0.0
        self._lines = 0

    def emit(self, key: Hashable, fields: Mapping[str, Any], now: float) -> None:
        """Log an event of a key with these fields, or count it."""
        known = self._keys.get(key)
        if known is not None and now - known.at < LOG_PAUSE:
            known.left_out += 1
            known.fields = fields
            return
        if not self._write(fields, 0 if known is None else known.left_out, now):
            if known is None:
                self._elsewhere += 1
            else:
                known.left_out += 1
                known.fields = fields
            return
        if known is None and len(self._keys) >= KEYS:
            self._elsewhere += self._keys.popitem(last=False)[1].left_out
        self._keys[key] = _KeyLines(now, 0, fields)
        self._keys.move_to_end(key)

    def flush(self, now: float) -> float | None:
        """Write the lines of counts whose pause is over; return when to come again, None if nothing waits.

        Keys without such a count are forgotten. Events of keys that got no line have one together.
        """
        if self._elsewhere:
            if now - self._began < LOG_PAUSE:
                return min(self._began + LOG_PAUSE, self._flush_keys(now) or inf)
            self._write({}, 0, now)
        return self._flush_keys(now)

    def _flush_keys(self, now: float) -> float | None:
        while self._keys:
            key, known = next(iter(self._keys.items()))
            if now - known.at < LOG_PAUSE:
                return known.at + LOG_PAUSE
            if not known.left_out:
                del self._keys[key]
            elif self._write(known.fields, known.left_out - 1, now):
                self._keys[key] = _KeyLines(now, 0, known.fields)
                self._keys.move_to_end(key)
            else:
                return self._began + LOG_PAUSE
        return None

    def close(self) -> None:
        """Write what is counted and has no line yet, within the limit of all keys."""
        counts = [known for known in self._keys.values() if known.left_out]
        self._keys.clear()
        self._elsewhere += sum(known.left_out for known in counts[MOST_LINES:])
        for known in counts[:MOST_LINES]:
            self._put(known.fields, known.left_out - 1)
        if self._elsewhere:
            self._put({}, 0)

    def _write(self, fields: Mapping[str, Any], left_out: int, now: float) -> bool:
        """Write a line for an event, after `left_out` others; return whether there was room."""
        if now - self._began >= LOG_PAUSE:
            self._began, self._lines = now, 0
        if self._lines >= MOST_LINES:
            return False
        self._lines += 1
        self._put(fields, left_out)
        return True

    def _put(self, fields: Mapping[str, Any], left_out: int) -> None:
        counts = {"left_out": left_out, "left_out_elsewhere": self._elsewhere}
        self._elsewhere = 0
        extra = {**fields, **{name: count for name, count in counts.items() if count}}
        self._log.log(self._level, self._text, extra=extra)
