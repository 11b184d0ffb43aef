"""Pauses before a retry or a poll: `share`, the jitter, `asked_pause`, and `PollSchedule` for the task of a server.

The jitter is a hash of what tells streams apart, not a random number. So the same stream always has
the same pauses. Used for streams of both eras, connections, polls and health checks.

A `PollSchedule` gives the pause before each poll of a task that a server made of a call. Polls follow
the interval that the server asks for, and back off while they fail. The task followers of both eras
send the polls. They call `after` once at the start, then `after` or `after_failure` after each poll.
No clock and no timer runs here: the caller gives the time, and waits.
"""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from typing import Final

PAUSE_FIRST: Final = 0.1
PAUSE_MOST: Final = 30.0
"""Longest pause in seconds between a stream that ended and the next; it doubles while streams are
short."""

FOR_NOW: Final = frozenset({408, 429, *range(500, 1000)}) - {501}
"""HTTP statuses that refuse a stream for now; any other means that there is no such stream."""


def share(stream: str, turn: int) -> float:
    """Return the share of a pause to take, from one half to one.

    Differs between streams and turns, so that streams which broke together do not reconnect
    together.
    """
    digest = blake2b(f"{turn} {stream}".encode(errors="backslashreplace"), digest_size=4).digest()
    return 0.5 + int.from_bytes(digest) / 2**33


def asked_pause(written: str, now: datetime) -> timedelta | None:
    """Return the pause that a value of `Retry-After` asks for, a day at most; None for an invalid one.

    A time of day is compared with `now`.
    """
    if _SECONDS(written):
        return min(timedelta(seconds=int(written[:9])), _LONGEST_ASKED)
    try:
        moment = parsedate_to_datetime(written)
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max(moment - now, timedelta()), _LONGEST_ASKED)


_SECONDS: Final = re.compile("[0-9]{1,99}").fullmatch
_LONGEST_ASKED: Final = timedelta(days=1)


FIRST: Final = 0.1
"""Seconds from the first call of `after` to the first poll. The server's interval is for the pauses
between polls."""

USUAL: Final = 1.0
LEAST: Final = 0.1
MOST: Final = 300.0
"""Seconds between two polls. USUAL: if the server asks for no interval. LEAST, MOST: the bounds of
the interval that it may ask for."""

LATER: Final = 0.1
"""Jitter: the share by which a pause may be longer. So polls of tasks that were made together drift
apart."""

POLL_PAUSE_MOST: Final = 30.0
DEAF_FOR: Final = 120.0
"""POLL_PAUSE_MOST: seconds up to which the pause grows while polls fail.

DEAF_FOR: seconds for which polls may fail in a row; then the follower gives up.
"""
_DOUBLINGS: Final = 16
"""Failures after which the pause no longer doubles; POLL_PAUSE_MOST is reached long before."""


class PollSchedule:
    """The schedule of one task. `seed` is its id, by which pauses differ between tasks."""

    __slots__ = ("_failures", "_made", "_seed", "_since")

    def __init__(self, seed: str) -> None:
        self._seed = seed
        # Pauses given so far: they vary the jitter. Failures in a row. The time from which
        # DEAF_FOR is counted: of the first failure in a row, or of the last poll not sent.
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
        # The first call: no poll was made yet.
        if self._made == 1:
            return min(FIRST, wanted)
        return self._spread(wanted)

    def after_failure(self, interval: float | None, now: float, *, was_made: bool = True) -> float | None:
        """Return the seconds until the next poll after a failed one; None to give up.

        None comes when polls have failed for DEAF_FOR. `now` is the time of the failure in seconds.
        `was_made` is False if the poll did not reach the server, for lack of a valid token. That
        says nothing about the server, so DEAF_FOR starts anew. The pause grows all the same: it
        doubles with each failure up to POLL_PAUSE_MOST, or stays at a longer interval of the server.
        """
        if not self._failures or not was_made:
            self._since = now
        elif now - self._since >= DEAF_FOR:
            return None
        self._failures += 1
        self._made += 1
        return self._spread(
            min(_bounded(interval) * 2 ** min(self._failures, _DOUBLINGS), max(POLL_PAUSE_MOST, _bounded(interval)))
        )

    def _spread(self, pause: float) -> float:
        # `share` is between a half and one.
        return pause * (1 + LATER * (2 * share(self._seed, self._made) - 1))


def _bounded(interval: float | None) -> float:
    """Return the interval between polls: the server's wish within bounds, or the default."""
    return USUAL if interval is None else min(max(interval, LEAST), MOST)
