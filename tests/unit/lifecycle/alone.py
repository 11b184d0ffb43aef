"""A process that holds tasks of a store in memory, and has nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from helpers.manual_clock import ManualClock
from helpers.shared_memory import LeasesInMemory
from taskgate.clock import SharedClock
from taskgate.lifecycle.leases import Leasing
from taskgate.stores.memory import MemoryStore
from taskgate.stores.shared import LeaseStore
from unit.lifecycle.recorded_events import RecordedEvents
from unit.lifecycle.several_runners import RULES


class Alone:
    """A process with nothing but a store."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore()
        self.emitted = RecordedEvents()
        self.leases = LeasesInMemory(self.store, self.clock)
        self.opened = 0
        self.leasing = Leasing(
            holder="process-1",
            leases=self.leases,
            apart=self.apart,
            rules=RULES,
            clock=SharedClock(self.clock),
            event_sink=self.emitted,
        )

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[LeaseStore]:
        self.opened += 1
        yield self.leases
