"""Room for another program of a server: `first_to_go` chooses the idle program to evict. Pure.

At most `processes` programs run. When a request needs one more, `pool` asks here which program to
end for it, and `due` from when. Programs count by owner: the caller, or with shared programs all
callers that declare the same. An owner without a program takes the place of one who has several,
rather than of one who has one. Of many programs, some are reserved, so that no owner gets all.
"""

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from taskgate.upstream.stdio.slots import ProgramSlot

QUIET: Final = 1.0
"""Seconds without a message after which a program that sessions hold may be evicted: a shorter
silence may be a pause between two requests."""
STARVING: Final = 5.0
"""Seconds of waiting after which any moment without a request suffices, and other owners are no
longer protected."""
SETTLING: Final = 0.5
"""Seconds after its start, and after its first message, in which a program that sessions hold is
not evicted. The request that it was started for follows."""
_ONE_RESERVED_OF: Final = 8
"""One of so many programs is reserved for owners that have none."""


class RoomWaiter(NamedTuple):
    """A request that waits for room since the loop time `since`. `pool` sets `told` when it should
    check again."""

    owner: Hashable
    since: float
    told: "asyncio.Future[None]"


def most_of_one(most: int) -> int:
    """Return how many of `most` programs one owner may have; the rest is reserved for other
    owners."""
    return most - most // _ONE_RESERVED_OF


def spreads_up_to(most: int) -> int:
    """Return up to how many programs another is started although one that is in use could be
    shared.

    For shared programs only, where one could serve all; more spread the load. The rest of `most`,
    at least one, is reserved for owners that have no program.
    """
    return min(most_of_one(most), most - 1)


def first_to_go(
    slots: Iterable[ProgramSlot], waiter: RoomWaiter, now: float, *, may_have_more: bool
) -> ProgramSlot | None:
    """Return the idle program to evict for the waiter, as soon as it is `due`; None if there is
    none.

    Order: 1. programs that no session holds, 2. programs of the owner that has most, 3. the longest
    idle. A program that a session holds is protected if its owner has no more programs than the
    waiter's owner, unless the waiter starves. If the waiter's owner may not have more
    (`may_have_more`), only a program of its own is evicted.
    """
    slots = tuple(slots)
    owned = Counter(slot.owner for slot in slots)

    def may_go(slot: ProgramSlot) -> bool:
        if slot.owner == waiter.owner:
            return True
        is_protected = slot.holders > 0 and owned[slot.owner] <= owned[waiter.owner] and now - waiter.since < STARVING
        return may_have_more and not is_protected

    idle = [
        (slot.holders > 0, -owned[slot.owner], since, slot)
        for slot in slots
        if (since := slot.idle_since()) is not None
    ]
    return min((each for each in idle if may_go(each[3])), key=lambda each: each[:3], default=_NOBODY)[3]


def due(slot: ProgramSlot, waiter: RoomWaiter) -> float:
    """Return the loop time from which an idle program may be evicted for the waiter; minus infinity
    if no session holds it."""
    since, line = slot.idle_since(), slot.line
    if not slot.holders or since is None or line is None:
        return float("-inf")
    # Before its first message, `used` is the time of its start, or of its last taker.
    settles_from = line.used if line.spoke is None else line.spoke
    return max(settles_from + SETTLING, min(since + QUIET, waiter.since + STARVING))


_NOBODY: Final = (False, 0, 0.0, None)
"""The choice if there is no program to evict."""
