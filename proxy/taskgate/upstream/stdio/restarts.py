"""How long a program is not started again after it ended by itself, as arithmetic on seconds. Pure.

What must not live here: who waits for that, and what starts a program.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from taskgate.upstream.stdio.endings import Cause

LIVES: Final = 10.0
"""Seconds for which a program has to have been of use: one that ended sooner is likely to do so again."""

_MOST: Final = 1024
"""Whose program is remembered."""


@dataclass(slots=True)
class _Past:
    """What became of the programs of one key: so many in a row were of no use, and another waits until then."""

    failures: int
    until: float
    cause: Cause | None


class Restarts:
    """What became of programs, by whom they are for. `first` seconds are waited after the first that was of no use."""

    def __init__(self, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self._pasts: dict[Hashable, _Past] = {}

    def wait(self, key: Hashable, now: float) -> float:
        """Seconds until another may be started."""
        past = self._pasts.get(key)
        return 0.0 if past is None else max(0.0, past.until - now)

    def failures(self, key: Hashable) -> int:
        """How many in a row were of no use."""
        past = self._pasts.get(key)
        return 0 if past is None else past.failures

    def started(self, key: Hashable) -> Cause | None:
        """Another was started; why the one before ended, where it did so by itself."""
        past = self._pasts.get(key)
        if past is None:
            return None
        cause, past.cause = past.cause, None
        return cause

    def failed(self, key: Hashable, now: float, cause: Cause | None = None) -> None:
        """One could not be started, or ended by itself before it was of use for long enough."""
        past = self._pasts.pop(key, None) or _Past(0, now, None)
        past.failures += 1
        past.cause = cause or past.cause
        past.until = now + self._pause(past.failures)
        self._keep(key, past)

    def ended(self, key: Hashable, cause: Cause) -> None:
        """One ended by itself after it was of use for long enough: another may be started at once."""
        self._pasts.pop(key, None)
        self._keep(key, _Past(0, float("-inf"), cause))

    def served(self, key: Hashable) -> None:
        """One was of use for long enough, and is not needed any more: what others did before it counts no more."""
        self._pasts.pop(key, None)

    def _pause(self, failures: int) -> float:
        # Beyond that the number is larger than any pause.
        doublings = min(failures - 1, 64)
        return float(min(self._first * 2**doublings, self._most))

    def _keep(self, key: Hashable, past: _Past) -> None:
        self._pasts[key] = past
        if len(self._pasts) > _MOST:
            # The oldest, which has waited longest.
            del self._pasts[next(iter(self._pasts))]
