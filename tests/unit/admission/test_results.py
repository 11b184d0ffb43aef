"""What came of tasks is read for whom it is sent to, a large outcome only once there is room for it."""

import asyncio

import pytest

from helpers.manual_clock import ManualClock
from helpers.records import new_record
from helpers.waiting import bounded
from taskgate.admission.lookups import ResultReader
from taskgate.admission.memory_pressure import MemoryPressure
from taskgate.auth.context import AuthContext
from taskgate.domain.record import Succeeded, TaskRecord, evolve
from taskgate.errors import Overloaded, StoreUnavailable
from taskgate.jsontext.large import LargeJson
from taskgate.streams.bytes_in_flight import SMALL, ByteBounds, BytesInFlight

ALICE, BOB = AuthContext(key="alice"), AuthContext(key="bob")
LARGE = evolve(new_record(), outcome=Succeeded(result="x" * (SMALL + 1), tool_error=False))
LITTLE = evolve(new_record(), outcome=Succeeded(result="{}", tool_error=False))


class Reading:
    """Outcomes of a store that has one record, and counts how often it is read."""

    def __init__(self, record: TaskRecord | None) -> None:
        self.record = record
        self.reads = 0
        self.used = 0
        self.in_flight = BytesInFlight(lambda: ByteBounds(SMALL + 10, 10 * SMALL, 10 * SMALL))
        self.pressure = MemoryPressure(limit=100, resident=lambda: self.used)
        self.outcomes = ResultReader(
            store=self,  # type: ignore[arg-type]
            clock=ManualClock(),
            in_flight=self.in_flight,
            pressure=self.pressure,
        )

    async def load(self, *_: object, **__: object) -> TaskRecord | None:
        self.reads += 1
        return self.record


async def test_what_is_there_is_read_once_where_there_is_room() -> None:
    for record in (LARGE, LITTLE, None, new_record()):
        reading = Reading(record)
        assert await reading.outcomes.load(new_record(), ALICE) is record
        assert reading.reads == 1


async def test_a_large_outcome_waits_in_the_store_for_room_and_a_small_one_does_not() -> None:
    reading = Reading(LARGE)
    reading.in_flight.add(ALICE, 20)
    async with bounded():
        waits = asyncio.create_task(reading.outcomes.load(LARGE, ALICE))
        while reading.reads < 1:
            await asyncio.sleep(0)
        assert await reading.outcomes.load(LARGE, BOB) is LARGE
        reading.record = LITTLE
        assert await reading.outcomes.load(LITTLE, ALICE) is LITTLE
        assert not waits.done()
        reading.record = LARGE
        reading.in_flight.release(ALICE, 20)
        assert await waits is LARGE
    assert reading.in_flight.total == 0


async def test_a_large_outcome_is_refused_when_memory_is_at_its_end_and_a_small_one_is_not() -> None:
    reading = Reading(LARGE)
    reading.used = 95
    reading.pressure.update()
    with pytest.raises(Overloaded):
        await reading.outcomes.load(LARGE, ALICE)
    reading.record = LITTLE
    assert await reading.outcomes.load(LITTLE, ALICE) is LITTLE


def with_text(body: bytes) -> TaskRecord:
    return evolve(new_record(), outcome=Succeeded(result=LargeJson(body), tool_error=False))


async def test_a_large_outcome_is_counted_while_its_members_are_looked_for() -> None:
    reading = Reading(with_text(b'{"a":"' + b"x" * SMALL + b'"}'))
    size = SMALL + len('{"a":""}')
    async with bounded(), asyncio.TaskGroup() as group:
        both = [group.create_task(reading.outcomes.load(LARGE, ALICE)) for _ in range(2)]
        while not any(each.done() for each in both):
            # There is room for one, and the other has not begun.
            assert reading.in_flight.total in (0, size)
            await asyncio.sleep(0)
    assert [each.result() for each in both] == [reading.record] * 2
    assert reading.in_flight.total == 0


async def test_a_large_outcome_that_cannot_be_read_is_told_as_a_fault_of_the_store() -> None:
    reading = Reading(with_text(b"[" * (SMALL + 1)))
    with pytest.raises(StoreUnavailable):
        await reading.outcomes.load(LARGE, ALICE)
    assert reading.in_flight.total == 0
