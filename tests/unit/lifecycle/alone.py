"""A process that holds tasks of a store in memory, and has nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from helpers.manual_clock import ManualClock
from helpers.shared_memory import ForgetfulStore, LeasesInMemory
from taskgate.clock import SharedClock
from taskgate.lifecycle.leases import LeaseRules, Leasing
from taskgate.stores.shared import LeaseStore
from unit.lifecycle.recorded_events import RecordedEvents
from unit.lifecycle.several_runners import RULES


class Alone:
    """A process with nothing but a store."""

    def __init__(self, of_the_store: ManualClock | None = None, rules: LeaseRules = RULES) -> None:
        """`of_the_store` is the clock of the store, if it has another one."""
        self.clock = ManualClock()
        self.shared_clock = SharedClock(self.clock)
        self.store = ForgetfulStore()
        self.emitted = RecordedEvents()
        self.leases = LeasesInMemory(self.store, of_the_store or self.clock)
        self.opened = 0
        self.leasing = Leasing(
            holder="process-1",
            leases=self.leases,
            apart=self.apart,
            rules=rules,
            clock=self.shared_clock,
            event_sink=self.emitted,
        )

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[LeaseStore]:
        self.opened += 1
        yield self.leases
