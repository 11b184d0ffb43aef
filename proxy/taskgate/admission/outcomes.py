"""What came of tasks, read from the store for whom it is sent to: a large outcome only once there is room for it."""

import asyncio
from typing import Final

from taskgate.admission.memory_pressure import MemoryPressure
from taskgate.clock import Clock
from taskgate.domain.record import TaskRecord, outcome_text
from taskgate.errors import Overloaded, StoreUnavailable
from taskgate.jsontext.large import LargeJson
from taskgate.protocol.faults import RETRY_AFTER
from taskgate.stores.base import TaskStore
from taskgate.streams.bytes_in_flight import SMALL, BytesInFlight
from taskgate.system.offload import aside

AT_ONCE: Final = 2
"""Outcomes that are read at the same time: how large one is shows only then."""


class Outcomes:
    """Reads them. What is read is to be counted at once, while the answer leaves."""

    def __init__(self, *, store: TaskStore, clock: Clock, in_flight: BytesInFlight, pressure: MemoryPressure) -> None:
        self._store = store
        self._clock = clock
        self._in_flight = in_flight
        self._pressure = pressure
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def whole(self, record: TaskRecord, caller: str) -> TaskRecord | None:
        """The record with its bodies, None where it is gone.

        Raises StoreUnavailable and, for a large one, Overloaded.
        """
        found = await self._read(record)
        outcome = None if found is None else found.outcome
        if outcome is None or (size := len(outcome_text(outcome))) <= SMALL:
            return found
        if self._pressure.level > 1:
            raise Overloaded(RETRY_AFTER)
        if self._in_flight.refusal(caller, size) is not None:
            # While it waits it is nowhere but in the store.
            found = outcome = None
            await self._in_flight.wait_for_room(caller, size)
        self._in_flight.add(caller, size)
        try:
            return await placed(found or await self._read(record))
        finally:
            self._in_flight.release(caller, size)

    async def _read(self, record: TaskRecord) -> TaskRecord | None:
        async with self._turns:
            return await self._store.load(record.owner, record.id, now=self._clock.now(), bodies=True)


async def placed(record: TaskRecord | None) -> TaskRecord | None:
    """The record, once it is known where the members of its outcome stand, which may take long to find.

    Raises StoreUnavailable where they cannot be found.
    """
    outcome = None if record is None else record.outcome
    text = None if outcome is None else outcome_text(outcome)
    if isinstance(text, LargeJson):
        try:
            await aside(lambda: text.members)
        except ValueError as error:
            raise StoreUnavailable("A stored record cannot be read") from error
    return record
