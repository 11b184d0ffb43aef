"""Eviction of idle programs: `first_to_go` chooses the one that makes room. Pure.

An owner is a caller, or with shared programs all callers with the same declaration. A caller
without a program takes the place of one who has several, rather than of one who has one. No owner
gets all of many programs. `pool` ends the program and wakes the waiter.
"""

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from taskgate.upstream.stdio.slots import ProgramSlot

QUIET: Final = 1.0
"""Seconds without a message after which a program in use may be evicted: between two requests it is
not idle."""
STARVING: Final = 5.0
"""Seconds of waiting after which any moment without a request suffices, and fairness no longer
protects others."""
SETTLING: Final = 0.5
"""Seconds after its start, and after its first message, for which a program in use stays: the
request that it was started for follows."""
_KEPT_BACK: Final = 8
"""Of so many programs one is reserved for callers without one."""


class RoomWaiter(NamedTuple):
    """A request that waits for room since a loop time; `told` is set when it should check again."""

    owner: Hashable
    since: float
    told: "asyncio.Future[None]"


def most_of_one(most: int) -> int:
    """Return how many of `most` programs one owner may have."""
    return most - most // _KEPT_BACK


def spreads_up_to(most: int) -> int:
    """Return the number of programs up to which shared ones are spread.

    The rest is reserved for callers without one: some of many, the last one of few.
    """
    return min(most_of_one(most), most - 1)


def first_to_go(
    slots: Iterable[ProgramSlot], wants: RoomWaiter, now: float, *, may_have_more: bool
) -> ProgramSlot | None:
    """Return the idle program to evict, now or soon; None if there is none.

    Order: 1. programs that no session holds, 2. programs of the owner that has most, 3. the longest
    idle. A program is not taken from an owner that has no more than the waiter, unless the waiter
    starves. A waiter that may not have more can only replace its own.
    """
    slots = tuple(slots)
    owned = Counter(slot.owner for slot in slots)

    def may_go(slot: ProgramSlot) -> bool:
        if slot.owner == wants.owner:
            return True
        owed = slot.holders > 0 and owned[slot.owner] <= owned[wants.owner] and now - wants.since < STARVING
        return may_have_more and not owed

    idle = [
        (slot.holders > 0, -owned[slot.owner], since, slot)
        for slot in slots
        if (since := slot.idle_since()) is not None
    ]
    return min((each for each in idle if may_go(each[3])), key=lambda each: each[:3], default=_NOBODY)[3]


def due(slot: ProgramSlot, wants: RoomWaiter) -> float:
    """Return the loop time from which an idle program may be evicted for the waiter."""
    since, line = slot.idle_since(), slot.line
    if not slot.holders or since is None or line is None:
        return float("-inf")
    began = line.used if line.spoke is None else line.spoke
    return max(began + SETTLING, min(since + QUIET, wants.since + STARVING))


_NOBODY: Final = (False, 0, 0.0, None)
