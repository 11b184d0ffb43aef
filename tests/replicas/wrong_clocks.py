"""Two gateways whose clocks are wrong, for tests of what that may mean."""

import asyncio
from datetime import timedelta
from time import monotonic

import pytest

from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import HEARTBEAT, LEASE
from helpers.loop_pace import paced
from helpers.waiting import eventually
from helpers.wandering_clock import WanderingClock

HOUR = timedelta(hours=1)


class Pair:
    """Two gateways; `one` is where things begin, and `other` where they are asked for."""

    def __init__(self, gateways: list[Gateway], clocks: list[WanderingClock], *, jump: bool) -> None:
        self.one, self.other = gateways
        self._clocks = clocks
        self._jump = jump
        self._began = monotonic()

    def later(self) -> None:
        """Something has begun. The clocks jump now, where they are to."""
        if self._jump:
            self.jump()

    def jump(self) -> None:
        """Whichever was ahead is behind, and the other way round; both an hour from where they should be."""
        now, _ = self._clocks
        by = -HOUR if now.by > timedelta() else HOUR
        for clock, wrong in zip(self._clocks, (by, -by), strict=True):
            clock.by = wrong

    async def swept(self) -> None:
        """Both have had the time to take over, and to remove, whatever they take for lapsed, or expired."""
        # By the time of the store, which is not ours: each may take over once it has been there for a lease.
        await eventually(lambda: monotonic() - self._began > (LEASE + 2 * HEARTBEAT).total_seconds())
        # By our own: what happens every half minute, and more often. No faster: a store has two seconds to answer.
        with paced(10):
            await asyncio.sleep(35)


@pytest.fixture(params=[(1, -1), (-1, 1), (0, 0)], ids=["ahead, behind", "behind, ahead", "jumping"])
def hours(request: pytest.FixtureRequest) -> tuple[int, int]:
    """By how much the clocks of the two are wrong in the beginning; if they are right then, they jump."""
    both: tuple[int, int] = request.param
    return both


@pytest.fixture
async def clocks(hours: tuple[int, int]) -> list[WanderingClock]:
    """Those of the two."""
    return [WanderingClock(by * HOUR) for by in hours]
