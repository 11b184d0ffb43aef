"""Poll schedule for a task that a server made of a call: `Looks` gives the pause before each poll.

Polls follow the interval that the server asks for, and back off while they fail. Pure arithmetic on
seconds: the task followers of both eras (`legacy.following`, `modern.followed`) send the polls.
They call `after` or `after_failure` after each one.
"""

from typing import Final

from taskgate.upstream.pauses import share

FIRST: Final = 0.1
"""Seconds from the creation of a task to its first poll; the server's interval is for those between
polls."""

USUAL: Final = 1.0
LEAST: Final = 0.1
MOST: Final = 300.0
"""Seconds between two polls: the default, and the bounds of what a server may ask for."""

LATER: Final = 0.1
"""The share by which a pause may be longer: polls of tasks that were made together drift apart."""

PAUSE_MOST: Final = 30.0
DEAF_FOR: Final = 120.0
"""PAUSE_MOST: seconds up to which the pause grows while polls fail.

DEAF_FOR: seconds for which polls may fail in a row.
"""


class Looks:
    """The schedule of one task. `seed` is its id, by which pauses differ between tasks."""

    __slots__ = ("_failures", "_made", "_seed", "_since")

    def __init__(self, seed: str) -> None:
        self._seed = seed
        # Polls so far; failures in a row, and the time of the first of them.
        self._made = 0
        self._failures = 0
        self._since = 0.0

    def after(self, interval: float | None) -> float:
        """Return the seconds until the next poll after an answered one, or after the task was made.

        `interval` is the interval in seconds that the server asks for, if any.
        """
        self._made += 1
        self._failures = 0
        wanted = _bounded(interval)
        if self._made == 1:
            return min(FIRST, wanted)
        return self._spread(wanted)

    def after_failure(self, interval: float | None, now: float, *, was_made: bool = True) -> float | None:
        """Return the seconds until the next poll after a failed one; None to give up.

        That is when polls have failed for DEAF_FOR. `was_made` False: the poll was not sent, so
        that time starts anew.
        """
        if not self._failures or not was_made:
            self._since = now
        elif now - self._since >= DEAF_FOR:
            return None
        self._failures += 1
        self._made += 1
        return self._spread(min(_bounded(interval) * 2**self._failures, max(PAUSE_MOST, _bounded(interval))))

    def _spread(self, pause: float) -> float:
        # `share` is between a half and one.
        return pause * (1 + LATER * (2 * share(self._seed, self._made) - 1))


def _bounded(interval: float | None) -> float:
    """Return the interval between polls: the server's wish within bounds, or the default."""
    return USUAL if interval is None else min(max(interval, LEAST), MOST)
