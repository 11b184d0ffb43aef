"""Restart backoff of programs: `Restarts` gives the delay before the next start, by key. Pure.

`pool` reports each start and each end of a program; the key is that of its slot. A program that
could not be started, or ended by itself soon, is a failure: each one in a row doubles the delay. A
program that was useful for some time ends the row.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from taskgate.upstream.stdio.endings import Cause

LIVES: Final = 10.0
"""Seconds from its first message for which a program must have run to count as useful. One that
ended sooner will probably do so again."""

_MOST: Final = 1024
"""Keys that are stored."""


@dataclass(slots=True)
class _Past:
    """History of one key: failures in a row, loop time before which no start is allowed, cause of
    the last end."""

    failures: int
    until: float
    cause: Cause | None


class Restarts:
    """History of programs, by key. `first` is the delay in seconds after the first failure, `most`
    the longest."""

    def __init__(self, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self._pasts: dict[Hashable, _Past] = {}

    def wait(self, key: Hashable, now: float) -> float:
        """Return the seconds until the next start is allowed; 0 if it is now."""
        past = self._pasts.get(key)
        return 0.0 if past is None else max(0.0, past.until - now)

    def failures(self, key: Hashable) -> int:
        """Return the number of failures in a row."""
        past = self._pasts.get(key)
        return 0 if past is None else past.failures

    def started(self, key: Hashable) -> Cause | None:
        """Note a start. Returns why the program before ended, None if there was none or the gateway
        ended it: then it is no restart."""
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
