"""A runner over a store in memory, and one server with one slot."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from helpers.records import HOLDER, keep, new_lease, new_record
from helpers.waiting import bounded, eventually
from taskgate.admission.callers import principal_of
from taskgate.admission.concurrency import Bulkhead, BulkheadSettings, Permit, queue_status
from taskgate.admission.rules import QuestionBounds
from taskgate.auth.context import ANONYMOUS
from taskgate.domain.events import CallSucceeded
from taskgate.domain.record import Faulted, TaskRecord, TaskStatus
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.runner import Runner
from taskgate.lifecycle.task_listener import TaskListeners
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.stores.base import Store
from taskgate.stores.open import open_store
from taskgate.upstream.calls import UpstreamCall
from unit.admission.live_rules import live
from unit.lifecycle.recorded_events import RecordedEvents


class Server:
    """A server, a place to reach it from, and an upstream that gives sessions with it: all one.

    `answer` is its answer to every call.
    """

    def __init__(self) -> None:
        self.mount: Any = self
        self.caller, self.principal = ANONYMOUS, principal_of(ANONYMOUS)
        self.upstream: Any = self
        self.called: list[str] = []
        self.given_up = 0
        self.held = 0
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.withins: list[timedelta] = []

    def session(self, *_: Any) -> "Server":
        return self

    async def call(self, call: UpstreamCall, _: Any) -> Any:
        assert call.tool is not None
        assert call.within is not None
        self.called.append(call.tool)
        self.withins.append(call.within)
        try:
            return await asyncio.shield(self.answer)
        except asyncio.CancelledError:
            self.given_up += 1
            raise

    def outcome(self, response: Any) -> CallSucceeded:
        return CallSucceeded(result=response, tool_error=False)

    def acquire(self) -> None:
        self.held += 1

    def release(self) -> None:
        self.held -= 1


class House:
    """A runner over a store in memory, and one server with one slot."""

    def __init__(self, store: Store) -> None:
        self.clock, self.store, self.emitted = ManualClock(), store, RecordedEvents()
        self.transitions = Transitions(store=store, event_sink=self.emitted, clock=self.clock)
        self.retrievals = Retrievals(transitions=self.transitions, event_sink=RecordedEvents(), clock=self.clock)
        rules = live(questions=QuestionBounds(timedelta(hours=1), 8))
        self.streams = SimpleNamespace(remote=None)
        listeners = TaskListeners(
            transitions=self.transitions, streams=self.streams, dialect=LegacyDownstream("1"), live=rules
        )  # type: ignore[arg-type]
        self.runner = Runner(
            holder=HOLDER,
            store=store,
            transitions=self.transitions,
            retrievals=self.retrievals,
            sessions=SimpleNamespace(close_upstream=lambda session: None),  # type: ignore[arg-type]
            listeners=listeners,
            event_sink=self.emitted,
            clock=self.clock,
        )
        self.server = Server()
        self.server.bulkhead = self.bulkhead = Bulkhead("reports", self.bounds(), event_sink=RecordedEvents())  # type: ignore[attr-defined]

    @staticmethod
    def bounds(max_wait: timedelta = timedelta(minutes=5)) -> BulkheadSettings:
        return BulkheadSettings(concurrency=1, queue=2, max_wait=max_wait)

    async def start(self, **changes: Any) -> TaskRecord:
        """A new task, which waits for its turn where somebody has the slot."""
        ticket = self.bulkhead.acquire("a")
        told = None if ticket.is_granted else queue_status(ticket.ahead)
        record = new_record(lease=new_lease(), status_message=told, **changes)
        await keep(self.store, record)
        self.runner.start(record, self.server, ANONYMOUS, ticket)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        return record

    async def recover(self, record: TaskRecord) -> TaskRecord:
        """Take over a record of an earlier process."""
        await keep(self.store, record)
        await self.runner.recover(record, self.server)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        return record

    async def now(self, record: TaskRecord) -> TaskRecord:
        """The record as it is."""
        found = await self.store.load(record.owner, record.id, now=self.clock.now(), bodies=True)
        assert found is not None
        return found

    async def ended(self, record: TaskRecord) -> TaskRecord:
        """The record after all that is to happen."""
        async with bounded():
            await self.runner.idle()
        return await self.now(record)


@asynccontextmanager
async def housed(store: Any) -> AsyncIterator[House]:
    """A house with that store, for the length of a block."""
    house = House(store)
    house.runner.open()
    yield house
    await house.runner.stop()
    await eventually(lambda: (house.bulkhead.in_use, house.bulkhead.queued, house.server.held) == (0, 0, 0))


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with housed(await open_store("memory", None)) as house:
        yield house


@pytest.fixture
async def slot(house: House) -> AsyncIterator[Permit]:
    """The server's one slot, which somebody has."""
    ticket = house.bulkhead.acquire("b")
    yield ticket
    ticket.release()


def fault(record: TaskRecord) -> dict[str, Any]:
    """The error of a task that failed."""
    assert isinstance(record.outcome, Faulted), record
    assert record.status is TaskStatus.FAILED
    return json.loads(record.outcome.error)  # type: ignore[no-any-return]
