"""How often to ask for a task: the interval that an answer about it advises, as a pure decision.

Knows neither what was told before (`admission/polls`) nor what becomes of who asks more often.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from typing import Final

GROWTH: Final = 0.01
"""How much of its age is added to a task's interval: what takes long already will hardly end in this very second."""

_TWO_MILLISECONDS: Final = timedelta(milliseconds=2)
_HAIR: Final = 1e-6
"""Of a millisecond: fractions that cannot be written in binary must not make it one less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """What the operator wants of hosts that poll.

    `jitter` is the part of an interval by which it may be longer or shorter, from 0 to below 1. `target` is the
    utilization of a server above which intervals grow, above 0. A poll is early that comes before `tolerance` of the
    interval is over; who polls more than `reject_above` times as often as advised, or as `base` says where more is
    advised, is refused in the end.
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


def advise(polling: Polling, *, utilization: float, age: timedelta, last: timedelta | None, chance: float) -> timedelta:
    """The interval to advise now, in whole milliseconds and never outside of `least` to `most`.

    It grows with the square of a server's use above the target, and slowly with the age of the task. `chance`, from 0
    to below 1, spreads what many are told at once. It is never shorter than half of `last`, what the task was advised
    before. Where it is not adaptive, it is always the base.
    """
    if not polling.adaptive:
        return polling.base
    # In seconds, and by comparing: it is told with every answer, and the rest takes several times as long.
    wanted, least, most = polling.seconds
    if utilization > polling.target:
        wanted *= (utilization / polling.target) ** 2
    if (old := age.total_seconds()) > 0.0:
        wanted += old * GROWTH
    spread = _within(wanted, least, most) * (1.0 + polling.jitter * (2.0 * chance - 1.0))
    told = int(_within(spread, least, most) * 1000 + _HAIR)
    if last is not None and (half := ceil(last / _TWO_MILLISECONDS)) > told:
        told = min(half, int(most * 1000 + _HAIR))
    return timedelta(0, 0, told * 1000)


def _within(seconds: float, least: float, most: float) -> float:
    return least if seconds < least else most if seconds > most else seconds
