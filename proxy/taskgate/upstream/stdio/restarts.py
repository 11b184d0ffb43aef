"""Restart backoff of programs: `Restarts` gives the delay before the next start, by key. Pure.

Used by `pool`. A program that ends soon after its start doubles the delay.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from taskgate.upstream.stdio.endings import Cause

LIVES: Final = 10.0
"""Seconds for which a program must have been useful; one that ended sooner will probably do so
again."""

_MOST: Final = 1024
"""Keys that are stored."""


@dataclass(slots=True)
class _Past:
    """History of one key: failures in a row, time of the next start, cause of the last end."""

    failures: int
    until: float
    cause: Cause | None


class Restarts:
    """History of programs, by key. `first` is the delay in seconds after the first failure."""

    def __init__(self, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self._pasts: dict[Hashable, _Past] = {}

    def wait(self, key: Hashable, now: float) -> float:
        """Return the seconds until the next start."""
        past = self._pasts.get(key)
        return 0.0 if past is None else max(0.0, past.until - now)

    def failures(self, key: Hashable) -> int:
        """Return the number of failures in a row."""
        past = self._pasts.get(key)
        return 0 if past is None else past.failures

    def started(self, key: Hashable) -> Cause | None:
        """Report a start; returns why the program before ended, if by itself."""
        past = self._pasts.get(key)
        if past is None:
            return None
        cause, past.cause = past.cause, None
        return cause

    def failed(self, key: Hashable, now: float, cause: Cause | None = None) -> None:
        """Report a program that could not be started, or ended by itself too soon."""
        past = self._pasts.pop(key, None) or _Past(0, now, None)
        past.failures += 1
        past.cause = cause or past.cause
        past.until = now + self._pause(past.failures)
        self._keep(key, past)

    def ended(self, key: Hashable, cause: Cause) -> None:
        """Report a program that ended by itself after being useful: the next start is not delayed."""
        self._pasts.pop(key, None)
        self._keep(key, _Past(0, float("-inf"), cause))

    def served(self, key: Hashable) -> None:
        """Report a useful program that is no longer needed: earlier failures are forgotten."""
        self._pasts.pop(key, None)

    def _pause(self, failures: int) -> float:
        # More doublings exceed any delay.
        doublings = min(failures - 1, 64)
        return float(min(self._first * 2**doublings, self._most))

    def _keep(self, key: Hashable, past: _Past) -> None:
        self._pasts[key] = past
        if len(self._pasts) > _MOST:
            # The oldest has waited longest.
            del self._pasts[next(iter(self._pasts))]
