"""The advised poll interval of a task: `advised_interval`, by the operator's `PollPolicy`.

The caller remembers what it advised before, and limits hosts that poll too often.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from typing import Final

GROWTH: Final = 0.01
"""Part of a task's age that is added to its interval: an old task rarely ends this second."""

_TWO_MILLISECONDS: Final = timedelta(milliseconds=2)
_ROUNDING: Final = 1e-6
"""Milliseconds added before truncation, because decimal fractions have no exact binary form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollPolicy:
    """The operator's settings for hosts that poll.

    - `base`: the interval to start from; `least`, `most`: the bounds of an advised one
    - `adaptive`: whether the interval follows the load and the age of the task
    - `jitter`: the part of an interval, from 0 to below 1, by which it may vary up and down
    - `target`: the utilization of a server, above 0, from which on intervals grow
    - `tolerance`: a poll counts as early if less than this part of the interval has passed
    - `reject_above`: how many times as often as advised a host may poll. Polls beyond that are
      refused after a burst. An advised interval above `base` counts as `base` for this.
    """

    base: timedelta
    least: timedelta
    most: timedelta
    adaptive: bool = True
    jitter: float = 0.1
    target: float = 0.7
    tolerance: float = 0.5
    reject_above: float = 10.0
    seconds: tuple[float, float, float] = field(init=False, repr=False, compare=False)
    """`base`, `least` and `most` in seconds."""

    def __post_init__(self) -> None:
        spans = (self.base, self.least, self.most)
        object.__setattr__(self, "seconds", tuple(span.total_seconds() for span in spans))


def advised_interval(
    policy: PollPolicy, *, utilization: float, age: timedelta, last: timedelta | None, chance: float
) -> timedelta:
    """The interval to advise now, in whole milliseconds, from `least` to `most`.

    It grows with the square of the server's utilization above the target, and slowly with the age
    of the task. `chance` is a random number from 0 to below 1 and spreads intervals that are
    advised at the same time. The result is at least half of `last`, the interval advised before. If
    the policy is not adaptive, it is the base.
    """
    if not policy.adaptive:
        return policy.base
    # Floats and comparisons: every answer advises an interval, and timedelta arithmetic takes several times as long.
    interval, least, most = policy.seconds
    if utilization > policy.target:
        interval *= (utilization / policy.target) ** 2
    if (seconds := age.total_seconds()) > 0.0:
        interval += seconds * GROWTH
    spread = _clamp(interval, least, most) * (1.0 + policy.jitter * (2.0 * chance - 1.0))
    advised = int(_clamp(spread, least, most) * 1000 + _ROUNDING)
    if last is not None and (half := ceil(last / _TWO_MILLISECONDS)) > advised:
        advised = min(half, int(most * 1000 + _ROUNDING))
    return timedelta(0, 0, advised * 1000)


def _clamp(seconds: float, least: float, most: float) -> float:
    return least if seconds < least else most if seconds > most else seconds
