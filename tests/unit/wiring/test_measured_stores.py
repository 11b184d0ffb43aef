"""What is asked of a store that processes share is timed, and told as it ended, where hosts and leases wait for it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from taskgate.domain.record import TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import RateJudgement, RateStep
from taskgate.stores.shared import HeartbeatReply
from taskgate.telemetry.events import StoreUsed
from taskgate.wiring.measured_stores import MeasuredLeases, MeasuredRates
from unit.lifecycle.recorded_events import RecordedEvents

WHILE = timedelta(seconds=0.25)
ANSWER: Any = object()


class Slow:
    """Rates and leases that take a while, and then answer, or fail where they are told to."""

    def __init__(self, clock: ManualClock) -> None:
        self.is_there = True
        self._clock = clock

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        return self._answer()

    async def beat(self, holder: str, held: Mapping[TaskId, int], *, lease: timedelta) -> HeartbeatReply:
        return self._answer()

    async def restore(self, record: TaskRecord) -> bool:
        return self._answer()

    async def part(self, holder: str) -> None:
        self._answer()

    def _answer(self) -> Any:
        self._clock.advance(WHILE)
        if not self.is_there:
            raise StoreUnavailable("gone")
        return ANSWER


async def ask(operation: str, rates: MeasuredRates, leases: MeasuredLeases) -> Any:
    record: Any = None
    return await {
        "judge": lambda: rates.judge((), now=0.0),
        "beat": lambda: leases.beat("me", {}, lease=timedelta(seconds=1)),
        "restore": lambda: leases.restore(record),
    }[operation]()


@pytest.mark.parametrize("operation", ["judge", "beat", "restore"])
async def test_it_is_answered_as_ever_and_told_how_long_it_took_and_whether_it_worked(operation: str) -> None:
    emitted, clock = RecordedEvents(), ManualClock()
    slow = Slow(clock)
    rates, leases = (
        MeasuredRates(slow, event_sink=emitted, clock=clock),
        MeasuredLeases(slow, event_sink=emitted, clock=clock),
    )
    assert await ask(operation, rates, leases) is ANSWER
    slow.is_there = False
    with pytest.raises(StoreUnavailable):
        await ask(operation, rates, leases)
    took = WHILE.total_seconds()
    assert emitted.all == [StoreUsed(operation, took, True), StoreUsed(operation, took, False)]


async def test_that_a_process_parts_is_no_operation() -> None:
    emitted, clock = RecordedEvents(), ManualClock()
    await MeasuredLeases(Slow(clock), event_sink=emitted, clock=clock).part("me")
    assert emitted.all == []
