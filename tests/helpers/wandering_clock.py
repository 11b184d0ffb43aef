"""The clock of a machine whose time of day is wrong, and by how much can change at any time."""

from datetime import datetime, timedelta

from taskgate.clock import SystemClock


class WanderingClock(SystemClock):
    """The machine's, `by` ahead of it on the wall; behind it where that is negative. The stopwatch does not notice."""

    def __init__(self, by: timedelta = timedelta()) -> None:
        self.by = by

    def now(self) -> datetime:
        return super().now() + self.by

    def wall(self) -> datetime:
        return self.now()

    def wall_seconds(self) -> float:
        return self.wall().timestamp()
