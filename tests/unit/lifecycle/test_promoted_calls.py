"""Calls that were under way before they became calls of tasks: a runner promises for them what it does for others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from helpers.records import HOLDER, after, keep, new_lease, new_record
from helpers.waiting import bounded, eventually
from taskgate.admission.rules import QuestionBounds
from taskgate.domain.events import CallSucceeded, CancelRequested, Progressed
from taskgate.domain.record import Faulted, TaskRecord, TaskStatus
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.runner import Runner
from taskgate.lifecycle.task_listener import TaskListeners
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.stores.base import Store
from taskgate.stores.open import open_store
from taskgate.upstream import failures
from taskgate.upstream.calls import CallListener
from unit.admission.live_rules import live
from unit.lifecycle.recorded_events import RecordedEvents
from unit.lifecycle.test_inputs import Asked


class Call:
    """A call that left already, and the place that it goes over."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.listener: CallListener | None = None
        self.told: list[str] = []
        self.upstream: Any = self
        self.held = 0

    def attach_listener(self, listener: CallListener) -> None:
        self.listener = listener

    async def response(self) -> Any:
        try:
            return await self.answer
        except asyncio.CancelledError:
            self.told.append("cancelled")
            raise

    def close(self) -> None:
        self.told.append("closed")

    def outcome(self, response: Any) -> CallSucceeded:
        return CallSucceeded(result=response, tool_error=False)

    def acquire(self) -> None:
        self.held += 1

    def release(self) -> None:
        self.held -= 1


class House:
    """A runner over a store in memory."""

    def __init__(self, store: Store) -> None:
        self.clock, self.store = ManualClock(), store
        changes = Transitions(store=store, event_sink=RecordedEvents(), clock=self.clock)
        streams = SimpleNamespace(remote=None)
        dialect, rules = LegacyDownstream("1"), live(questions=QuestionBounds(timedelta(hours=1), 8))
        listeners = TaskListeners(transitions=changes, streams=streams, dialect=dialect, live=rules)  # type: ignore[arg-type]
        self.runner = Runner(
            holder=HOLDER,
            store=store,
            transitions=changes,
            retrievals=Retrievals(transitions=changes, event_sink=RecordedEvents(), clock=self.clock),
            sessions=object(),  # type: ignore[arg-type]
            listeners=listeners,
            event_sink=RecordedEvents(),
            clock=self.clock,
        )

    async def adopt(self, call: Call, **changes: Any) -> TaskRecord:
        """A task that the call is of, from now on."""
        record = new_record(dispatched=True, lease=new_lease(), **changes)
        await keep(self.store, record)
        self.runner.adopt(record, call, call)  # type: ignore[arg-type]
        return record

    async def ended(self, record: TaskRecord) -> TaskRecord:
        """The record after all that is to happen to it."""
        async with bounded():
            await self.runner.idle()
        found = await self.store.load(record.owner, record.id, now=self.clock.now(), bodies=True)
        assert found is not None
        return found


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House(await open_store("memory", None))
    house.runner.open()
    yield house
    await house.runner.stop()


@pytest.fixture
async def call() -> Call:
    return Call()


def reason(record: TaskRecord) -> str:
    assert isinstance(record.outcome, Faulted), record
    assert record.status is TaskStatus.FAILED
    return record.outcome.reason.value


async def test_its_response_ends_the_task_and_its_place_is_free(house: House, call: Call) -> None:
    record = await house.adopt(call)
    assert call.held == 1
    assert call.listener is not None
    call.answer.set_result("{}")
    assert (await house.ended(record)).status is TaskStatus.COMPLETED
    await eventually(lambda: call.held == 0)
    assert call.told == ["closed"]


async def test_it_is_heard_until_it_is_over(house: House, call: Call) -> None:
    record = await house.adopt(call)
    listener: Any = call.listener
    call.answer.set_result("{}")
    await house.ended(record)
    question: Any = Asked()
    listener.asked(question)
    assert question.replies == ["refused"]


@pytest.mark.parametrize(("failure", "expected"), [(failures.closed, "closed"), (RuntimeError, "internal")])
async def test_its_failure_ends_the_task(
    house: House, call: Call, failure: Callable[[], Exception], expected: str
) -> None:
    record = await house.adopt(call)
    call.answer.set_exception(failure())
    assert reason(await house.ended(record)) == expected


async def test_it_is_given_up_when_the_time_of_its_task_is_over(house: House, call: Call) -> None:
    record = await house.adopt(call, ttl=timedelta(milliseconds=1))
    assert reason(await house.ended(record)) == "timeout"
    assert call.told == ["cancelled", "closed"]


@pytest.mark.parametrize("turns", [0, 1], ids=["at once", "later"])
async def test_it_is_given_up_when_somebody_cancels_its_task(house: House, call: Call, turns: int) -> None:
    record = await house.adopt(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    assert await house.store.swap(after(record, CancelRequested()), expected=record.revision)
    assert (await house.ended(record)).status is TaskStatus.CANCELLED
    assert call.told == ["cancelled", "closed"]


async def test_it_is_not_waited_for_where_its_task_is_cancelled_before_its_turn(house: House, call: Call) -> None:
    other = Call()
    earlier = await house.adopt(other)
    await asyncio.sleep(0)
    # The runner hears of this task, and then of the next before that one's call has its first turn.
    assert await house.store.swap(after(earlier, Progressed(message="half")), expected=earlier.revision)
    record = await house.adopt(call)
    assert await house.store.swap(after(record, CancelRequested()), expected=record.revision)
    other.answer.set_result("{}")
    assert (await house.ended(record)).status is TaskStatus.CANCELLED
    assert call.told == ["closed"]


async def test_it_is_cut_off_when_the_gateway_ends(house: House, call: Call) -> None:
    record = await house.adopt(call)
    await asyncio.sleep(0)
    await house.runner.stop()
    assert reason(await house.ended(record)) == "shutdown"
    assert call.told == ["cancelled", "closed"]


async def test_it_is_cut_off_where_the_gateway_has_ended_before(house: House, call: Call) -> None:
    await house.runner.stop()
    record = await house.adopt(call)
    assert reason(await house.ended(record)) == "shutdown"
    assert call.told == ["closed"]
