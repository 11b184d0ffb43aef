"""When a task of a server is looked at: as often as its server wants, and with patience while it does not answer.

Knows no session and no clock; seconds alone, as they are handed in. What must not live here: what a look shows.
"""

from typing import Final

from taskgate.upstream.pauses import share

FIRST: Final = 0.1
"""Seconds from the moment that a task is there until it is looked at: what its server wants is between two looks."""

USUAL: Final = 1.0
LEAST: Final = 0.1
MOST: Final = 300.0
"""Seconds between two looks: where the server does not say, and however little, or much, it says."""

LATER: Final = 0.1
"""The share of a pause by which it may be longer: looks at tasks that were made together do not stay together."""

PAUSE_MOST: Final = 30.0
DEAF_FOR: Final = 120.0
"""Seconds, at most, before a look that failed is made again, and for which looks may fail in a row."""


class Looks:
    """The looks at one task. `seed` tells tasks apart."""

    __slots__ = ("_failures", "_made", "_seed", "_since")

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._made = 0
        self._failures = 0
        self._since = 0.0

    def after(self, interval: float | None) -> float:
        """Seconds until the next look, where the server answered the last one; `interval` is what it wants, if any."""
        self._made += 1
        self._failures = 0
        wanted = _bounded(interval)
        if self._made == 1:
            return min(FIRST, wanted)
        return self._spread(wanted)

    def after_failure(self, interval: float | None, now: float, *, was_made: bool = True) -> float | None:
        """As `after`, where the server did not answer it; None where that has gone on for too long.

        `was_made` False tells that the server was not asked at all, so that it cannot have been deaf.
        """
        if not self._failures or not was_made:
            self._since = now
        elif now - self._since >= DEAF_FOR:
            return None
        self._failures += 1
        self._made += 1
        return self._spread(min(_bounded(interval) * 2**self._failures, max(PAUSE_MOST, _bounded(interval))))

    def _spread(self, pause: float) -> float:
        # `share` is from a half to one.
        return pause * (1 + LATER * (2 * share(self._seed, self._made) - 1))


def _bounded(interval: float | None) -> float:
    return USUAL if interval is None else min(max(interval, LEAST), MOST)
