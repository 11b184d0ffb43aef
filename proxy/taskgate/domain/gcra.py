"""How often something may happen: the generic cell rate algorithm, whose whole state is one moment in time. Pure.

What must not live here: what is counted, and whose budget it is (`domain/rates`).
"""

from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

SAME: Final = 1e-6
"""Seconds. Moments that are not further apart are one: sums of fractions end a little beside what they should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """One unit comes back `every` so many seconds, more than none, and there are never more than `burst` of them."""

    every: float
    burst: int


class RateVerdict(NamedTuple):
    """Whether units were there. `remaining` are those that are there now, whole ones; times are seconds from now.

    After `retry_after` the same would be allowed, and not before it, if nothing else is taken meanwhile: 0 where it is
    allowed now, infinite where more was asked than there ever are. After `reset_after` all units are there.
    """

    allowed: bool
    remaining: int
    retry_after: float
    reset_after: float


def gcra(tat: float | None, now: float, limit: RateLimit, cost: int = 1) -> tuple[RateVerdict, float]:
    """Take `cost` units if they are there: the verdict, and the new state; where they are not, nothing is taken.

    The state is the theoretical arrival time: the moment from which on nothing is owed. None stands for any that has
    passed. `now` and the state are seconds of one clock that does not go back. No more is owed than all units: what is
    beyond was owed to another limit. The new state lacks it, and is to be kept for that also where it is refused.
    """
    every, burst = limit.every, limit.burst
    owed = now if tat is None or tat < now else tat
    debt = owed - now
    if debt > (most := burst * every):
        owed, debt = now + most, most
    wait = debt - (burst - cost) * every if cost <= burst else inf
    if wait > SAME:
        return RateVerdict(False, _left(debt, every, burst), wait, debt), owed
    owed += cost * every
    debt = owed - now
    return RateVerdict(True, _left(debt, every, burst), 0.0, debt), owed


def _left(debt: float, every: float, burst: int) -> int:
    """How many whole units there are: never more than all, nor fewer than none."""
    left = int(burst - (debt - SAME) / every)
    return burst if left > burst else max(left, 0)
