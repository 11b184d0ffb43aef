"""The advised poll interval of a task: `advised_interval`, by the operator's `PollPolicy`.

The caller remembers what it advised before, and limits hosts that poll too often.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

YOUTH: Final = 0.5
"""Part of a task's age that its interval is, up to the base: a new task often ends soon."""

GROWTH: Final = 0.01
"""Part of a task's age that is added to its interval: an old task rarely ends this second."""

_MILLISECOND: Final = timedelta(milliseconds=1)
_ROUNDING: Final = 1e-6
"""Milliseconds added before truncation, because decimal fractions have no exact binary form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollPolicy:
    """The operator's settings for hosts that poll. Its times are whole milliseconds.

    - `base`: the interval of a task that is no longer new; `least`, `most`: the bounds of an advised one.
      A new task starts from `least`.
    - `grace`: the age of a task up to which a poll waits for its end
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
    grace: timedelta = timedelta()
    adaptive: bool = True
    jitter: float = 0.1
    target: float = 0.7
    tolerance: float = 0.5
    reject_above: float = 10.0
    seconds: tuple[float, float, float] = field(init=False, repr=False, compare=False)
    """`base`, `least` and `most` in seconds."""
    base_ms: int = field(init=False, repr=False, compare=False)
    """`base` in milliseconds."""

    def __post_init__(self) -> None:
        spans = (self.base, self.least, self.most)
        object.__setattr__(self, "seconds", tuple(span.total_seconds() for span in spans))
        object.__setattr__(self, "base_ms", self.base // _MILLISECOND)


def advised_interval(policy: PollPolicy, *, utilization: float, age: float, last: int | None, chance: float) -> int:
    """The interval to advise now, in whole milliseconds, from `least` to `most`.

    It is a part of the age of a new task, in seconds, up to the base. Then it grows slowly with the
    age. It also grows with the square of the server's utilization above the target. `chance` is a
    random number from 0 to below 1 and spreads intervals that are advised at the same time. The
    result is at least half of `last`, the interval advised before, in milliseconds. If the policy is
    not adaptive, it is the base.
    """
    if not policy.adaptive:
        return policy.base_ms
    # Numbers and comparisons: every answer advises an interval, and timedelta arithmetic takes several times as long.
    interval, least, most = policy.seconds
    if age * YOUTH < interval:
        interval = age * YOUTH
        if interval < least:  # noqa: PLR1730 - `max` takes seven times as long
            interval = least
    if utilization > policy.target:
        interval *= (utilization / policy.target) ** 2
    if age > 0.0:
        interval += age * GROWTH
    if interval > most:  # noqa: PLR1730 - `min` takes seven times as long
        interval = most
    interval *= 1.0 + policy.jitter * (2.0 * chance - 1.0)
    if interval < least:
        interval = least
    elif interval > most:
        interval = most
    advised = int(interval * 1000 + _ROUNDING)
    if last is not None and last > 2 * advised:
        return min((last + 1) // 2, int(most * 1000 + _ROUNDING))
    return advised
