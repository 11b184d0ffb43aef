"""Two gateways whose clocks are wrong, for tests of what that may mean."""

from datetime import timedelta

import pytest

from helpers.waiting import eventually
from helpers.wandering_clock import WanderingClock
from helpers.whole_gateway import WholeGateway

HOUR = timedelta(hours=1)


class Pair:
    """Two gateways; `one` is where things begin, and `other` where they are asked for."""

    def __init__(self, gateways: list[WholeGateway], clocks: list[WanderingClock], *, jump: bool) -> None:
        self.one, self.other = gateways
        self._clocks = clocks
        self._jump = jump

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
        for gateway in (self.one, self.other):
            house = gateway.service._runtime
            assert house is not None
            leasing = house.company.leasing
            assert leasing is not None
            await eventually(lambda leasing=leasing: leasing.may_take_over)
            await house.sweeper.take_over(leasing)
            await house.sweeper.purge()
            await house.sweeper.tidy()


@pytest.fixture(params=[(1, -1), (-1, 1), (0, 0)], ids=["ahead, behind", "behind, ahead", "jumping"])
def hours(request: pytest.FixtureRequest) -> tuple[int, int]:
    """By how much the clocks of the two are wrong in the beginning; if they are right then, they jump."""
    both: tuple[int, int] = request.param
    return both


@pytest.fixture
async def clocks(hours: tuple[int, int]) -> list[WanderingClock]:
    """Those of the two."""
    return [WanderingClock(by * HOUR) for by in hours]
