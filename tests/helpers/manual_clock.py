"""Time and chance as the test says."""

from datetime import UTC, datetime, timedelta
from random import Random

EPOCH = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
"""When a ManualClock starts. Not on a full second, so that dropped fractions show."""


class ManualClock:
    """A Clock that stands still until it is told otherwise."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._now = start
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def wall(self) -> datetime:
        return self._now

    def wall_seconds(self) -> float:
        return self.wall().timestamp()

    def elapsed(self) -> float:
        return self._elapsed

    def advance(self, by: timedelta) -> datetime:
        """Let time pass, on the wall and on the stopwatch; returns the new time of day."""
        assert by >= timedelta(0), "time passes forward; a wall clock that jumps is set_wall"
        self._elapsed += by.total_seconds()
        return self.set_wall(self._now + by)

    def set_wall(self, now: datetime) -> datetime:
        """Set the time of day, forward or back, as an operator may; the stopwatch does not notice."""
        self._now = now
        return now


class SeededEntropy:
    """An Entropy that says the same again for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)

    def token(self, count: int) -> bytes:
        return self._random.randbytes(count)
