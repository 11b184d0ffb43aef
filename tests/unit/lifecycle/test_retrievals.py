"""Outcomes that were given out: told each time, for the first time once, and nobody waits for the record."""

import asyncio
from datetime import timedelta

import pytest

from helpers.failing_store import FailingStore, HoldingStore
from helpers.manual_clock import ManualClock
from helpers.records import after, keep, new_record
from helpers.waiting import bounded, eventually
from taskgate.domain.events import CallFaulted, CallSucceeded, CancelRequested, TaskEvent
from taskgate.domain.machine import advance
from taskgate.domain.record import FaultReason, Succeeded, TaskId, TaskRecord, evolve
from taskgate.lifecycle.retrievals import AT_ONCE, REMEMBERED, Retrievals
from taskgate.lifecycle.transitions import Transitions
from taskgate.stores.open import open_store
from taskgate.telemetry.events import TaskRetrieved
from taskgate.telemetry.request_context import RequestContext, current, in_request
from unit.lifecycle.recorded_events import RecordedEvents

SECOND = timedelta(seconds=1)
DONE = CallSucceeded(result='{"content":[]}', tool_error=False)
FAULT = CallFaulted(error='{"code":-1}', reason=FaultReason.CLOSED, message="no")


class Desk:
    """Retrievals over a store that can fail and dawdle."""

    def __init__(self, store: FailingStore) -> None:
        self.failing, self.clock, self.emitted = store, ManualClock(), RecordedEvents()
        self.store = HoldingStore(store)  # type: ignore[arg-type]
        transitions = Transitions(store=self.store, event_sink=RecordedEvents(), clock=self.clock)  # type: ignore[arg-type]
        self.retrievals = Retrievals(transitions=transitions, event_sink=self.emitted, clock=self.clock)

    async def ended(self, event: TaskEvent = DONE) -> TaskRecord:
        """A task that has ended now, as it is read for its owner."""
        record = advance(new_record(created_at=self.clock.now()), event, self.clock.now())
        await keep(self.store, record)  # type: ignore[arg-type]
        return await self.now(record)

    async def now(self, record: TaskRecord) -> TaskRecord:
        found = await self.store.load(record.owner, record.id, now=self.clock.now(), bodies=True)
        assert isinstance(found, TaskRecord)
        return found

    async def written(self) -> None:
        """Wait until nothing is written any more."""
        await eventually(lambda: not self.retrievals.background.running)

    @property
    def delays(self) -> list[timedelta | None]:
        return [event.delay for event in self.emitted.all if isinstance(event, TaskRetrieved)]


@pytest.fixture
async def desk() -> Desk:
    return Desk(FailingStore(await open_store("memory", None)))


@pytest.mark.parametrize("event", [DONE, FAULT])
async def test_the_first_time_is_told_with_its_delay_and_kept_with_the_record(desk: Desk, event: TaskEvent) -> None:
    record = await desk.ended(event)
    desk.clock.advance(3 * SECOND)
    desk.retrievals.note(record)
    assert desk.emitted.all == [TaskRetrieved(record, 3 * SECOND)]
    await desk.written()
    kept = await desk.now(record)
    assert (kept.retrieved, kept.outcome, kept.updated_at) == (True, record.outcome, record.updated_at)


async def test_every_other_time_is_told_without_one(desk: Desk) -> None:
    record = await desk.ended()
    desk.retrievals.note(record)
    await desk.written()
    again = await desk.now(record)
    desk.retrievals.note(again)
    await desk.written()
    assert desk.delays == [timedelta(), None]
    assert (await desk.now(record)).revision == again.revision


async def test_who_asks_again_before_it_is_written_is_not_the_first(desk: Desk) -> None:
    record = await desk.ended()
    with desk.store.holding("swap"):
        desk.retrievals.note(record)
        desk.retrievals.note(record)
    await desk.written()
    assert desk.delays == [timedelta(), None]
    assert (await desk.now(record)).revision == record.revision + 1


@pytest.mark.parametrize("record", [new_record(), after(new_record(), CancelRequested())], ids=["working", "cancelled"])
async def test_where_there_is_no_outcome_nothing_was_given(desk: Desk, record: TaskRecord) -> None:
    desk.retrievals.note(record)
    assert (desk.emitted.all, desk.retrievals.background.running) == ([], ())


async def test_a_clock_that_went_back_makes_no_delay_shorter_than_nothing(desk: Desk) -> None:
    record = await desk.ended()
    desk.clock.set_wall(record.updated_at - 9 * SECOND)
    desk.retrievals.note(record)
    await desk.written()
    assert desk.delays == [timedelta()]


async def test_the_outcome_is_not_written_again(desk: Desk) -> None:
    """It may be large, and what is kept of an owner is counted when it is written."""
    record = await desk.ended()
    swapped: list[TaskRecord] = []
    swap = desk.failing.swap

    async def watched(record: TaskRecord, *, expected: int) -> bool:
        swapped.append(record)
        return await swap(record, expected=expected)

    desk.failing.swap = watched  # type: ignore[method-assign]
    desk.retrievals.note(record)
    await desk.written()
    (marked,) = swapped
    assert (marked.outcome, marked.retrieved) == (None, True)
    assert isinstance((await desk.now(record)).outcome, Succeeded)


async def test_a_store_that_fails_harms_nobody_and_is_asked_again_the_next_time(desk: Desk) -> None:
    record = await desk.ended()
    desk.failing.failing = {"swap"}
    desk.retrievals.note(record)
    await desk.written()
    assert not (await desk.now(record)).retrieved
    desk.failing.failing = set()
    desk.retrievals.note(await desk.now(record))
    await desk.written()
    assert (await desk.now(record)).retrieved
    assert desk.delays == [timedelta(), None]


async def test_no_more_are_written_at_once_than_a_store_can_be_asked_for(desk: Desk) -> None:
    records = [await desk.ended() for _ in range(AT_ONCE + 1)]
    with desk.store.holding("swap") as begun:
        for record in records:
            desk.retrievals.note(record)
        async with bounded():
            await begun.wait()
        assert len(desk.retrievals.background.running) == AT_ONCE
    await desk.written()
    assert [(await desk.now(record)).retrieved for record in records] == [True] * AT_ONCE + [False]
    desk.retrievals.note(records[-1])
    await desk.written()
    assert (await desk.now(records[-1])).retrieved
    assert desk.delays == [timedelta()] * (AT_ONCE + 1) + [None]


async def test_of_very_many_that_could_not_be_written_the_oldest_may_be_told_as_first_again(desk: Desk) -> None:
    ended = await desk.ended()
    records = [evolve(ended, id=TaskId(f"task-{number}")) for number in range(REMEMBERED + 1)]
    desk.failing.failing = {"swap"}
    for record in [*records, *reversed(records)]:
        desk.retrievals.note(record)
    await desk.written()
    assert desk.delays == [timedelta()] * (REMEMBERED + 1) + [None] * REMEMBERED + [timedelta()]


async def test_it_is_told_in_the_visit_of_who_was_given_it_and_written_in_none(desk: Desk) -> None:
    record = await desk.ended()
    told_in: list[RequestContext | None] = []
    written_in: list[RequestContext | None] = []
    swap = desk.failing.swap

    async def watched(record: TaskRecord, *, expected: int) -> bool:
        written_in.append(current())
        return await swap(record, expected=expected)

    desk.failing.swap = watched  # type: ignore[method-assign]
    desk.emitted.emit = lambda _: told_in.append(current())  # type: ignore[method-assign]
    request_context = RequestContext("v", "address", "POST", "/mcp")
    with in_request(request_context):
        desk.retrievals.note(record)
    await desk.written()
    assert (told_in, written_in) == ([request_context], [None])


async def test_what_is_still_to_be_written_at_the_end_is_given_up(desk: Desk) -> None:
    record = await desk.ended()
    with desk.store.holding("swap") as begun:
        desk.retrievals.note(record)
        async with bounded():
            await begun.wait()
            await desk.retrievals.background.close()
    await asyncio.sleep(0)
    assert not (await desk.now(record)).retrieved
