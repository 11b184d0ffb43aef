"""Which program makes room for whoever waits, and when; and how many one owner may have, as arithmetic.

An owner is a caller; where callers share programs, all of those who declare the same. What must not live here: what
ends a program, and what tells those who wait (`pool`). What holds: one who has no program takes the place of one who
has several rather than theirs who have one; and of many programs no owner has all.
"""

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from taskgate.upstream.stdio.slots import ProgramSlot

QUIET: Final = 1.0
"""Seconds without a word after which a program that is held may make room: between two requests it is not idle."""
STARVING: Final = 5.0
"""Seconds of waiting for room after which a moment without a request has to do, and places are no longer owed."""
SETTLING: Final = 0.5
"""Seconds after its start, and after its first word, for which a program that is held stays all the same: what it was
started for follows."""
_KEPT_BACK: Final = 8
"""Of so many programs one is for those who have none."""


class RoomWaiter(NamedTuple):
    """Somebody who waits for room, since a time of the loop, and how they are told that there may be some."""

    owner: Hashable
    since: float
    told: "asyncio.Future[None]"


def most_of_one(most: int) -> int:
    """How many programs one owner may have, of at most so many."""
    return most - most // _KEPT_BACK


def spreads_up_to(most: int) -> int:
    """How many programs run at last, of at most so many, where those who share one have another started.

    What is above that is for those who have none: some of many, the last of few.
    """
    return min(most_of_one(most), most - 1)


def first_to_go(
    slots: Iterable[ProgramSlot], wants: RoomWaiter, now: float, *, may_have_more: bool
) -> ProgramSlot | None:
    """The idle program that makes room, now or soon; None where there is none.

    One that nobody holds goes first, then one of whoever has most, then the one that is idle for longest. It is taken
    from nobody who has no more than the one who wants it, unless that one starves; and where that one may not have
    more, from itself alone.
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
    """The loop's time from which on an idle program may be ended for somebody."""
    since, line = slot.idle_since(), slot.line
    if not slot.holders or since is None or line is None:
        return float("-inf")
    began = line.used if line.spoke is None else line.spoke
    return max(began + SETTLING, min(since + QUIET, wants.since + STARVING))


_NOBODY: Final = (False, 0, 0.0, None)
