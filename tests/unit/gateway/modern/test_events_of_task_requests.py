"""What operators are told of what hosts do with their tasks: look at outcomes, answer, cancel."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from helpers.failing_store import HoldingStore
from helpers.records import after, new_call, new_peer, new_record
from helpers.waiting import eventually
from taskgate.domain.events import CancelRequested, Dispatched
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.errors import InvalidParams
from taskgate.protocol.host_requests import GetTask
from taskgate.stores.open import open_store
from taskgate.telemetry.events import (
    InputSettled,
    InputWaited,
    SuspicionRaised,
    TaskCancelRequested,
    TaskFinished,
    TaskRetrieved,
    TaskTransitioned,
)
from unit.gateway.modern import listening
from unit.gateway.modern.task_desk import ACCEPT, DECLINE, DONE, FAULT, CountingStore, World
from unit.lifecycle.recorded_events import RecordedEvents

SECOND = timedelta(seconds=1)
UNASKED = SuspicionRaised("input_key_unknown", "reports")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(CountingStore(await open_store("memory", None)))
    yield world
    await eventually(lambda: not world.retrievals.background.running)


def of(emitted: RecordedEvents, *kinds: type[Any]) -> list[Any]:
    return [event for event in emitted.all if isinstance(event, kinds)]


async def retrieved(world: World, record: TaskRecord) -> bool:
    await eventually(lambda: not world.retrievals.background.running)
    return (await world.now(record)).retrieved


# --- outcomes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [DONE, FAULT])
async def test_a_look_at_an_outcome_is_told_and_kept_and_the_second_is_only_told(world: World, event: Any) -> None:
    record = await world.keep(after(new_record(), Dispatched(), event))
    world.clock.advance(5 * SECOND)
    first = await world.get(record.id)
    assert await retrieved(world, record)
    assert await world.get(record.id) == first
    told = of(world.emitted, TaskRetrieved)
    assert [(reported.task.id, reported.delay) for reported in told] == [(record.id, 5 * SECOND), (record.id, None)]


async def test_a_look_at_what_goes_on_or_was_cancelled_is_none_at_an_outcome(world: World) -> None:
    for record in (new_record(), after(new_record(), CancelRequested())):
        await world.keep(record)
        await world.get(record.id)
        assert not await retrieved(world, record)
    assert of(world.emitted, TaskRetrieved) == []


async def test_a_look_of_a_host_that_declares_no_tasks_at_one_of_the_other_era_counts_as_well(world: World) -> None:
    record = await world.keep(after(new_record(call=new_call(peer=new_peer())), DONE))
    await world.of_legacy(GetTask(7, record.id))
    assert await retrieved(world, record)


async def test_an_answer_does_not_wait_for_that_to_be_written(world: World) -> None:
    record = await world.keep(after(new_record(), DONE))
    with world.store.holding("swap"):
        assert (await world.get(record.id))["status"] == "completed"
        assert not (await world.now(record)).retrieved
    assert await retrieved(world, record)


@pytest.fixture
async def listened() -> AsyncIterator[listening.World]:
    world = listening.World(HoldingStore(await open_store("memory", None)))
    yield world
    await world.close()


async def test_a_host_that_listens_is_given_the_outcome_when_it_is_told_of_the_end(listened: listening.World) -> None:
    world = listened
    record = after(new_record(), Dispatched())
    await world.keep(record)
    listener = world.listen(tasks=(record.id,))
    await listening.told_all(world, listener, 1)
    assert of(world.emitted, TaskRetrieved) == []
    await world.change(record, listening.DONE)
    await eventually(lambda: len(listener.told) == 2)
    (event,) = of(world.emitted, TaskRetrieved)
    assert (event.task.id, event.delay) == (record.id, timedelta())
    await eventually(lambda: not world.retrievals.background.running)
    kept = await world.store.load(record.owner, record.id, now=world.clock.now())
    assert kept.retrieved
    # That it was is no news.
    assert listener.told == [(record.id, "working"), (record.id, "completed")]


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "outcome"), [(ACCEPT, "answered"), (DECLINE, "declined")])
async def test_an_answer_settles_its_question_and_ends_the_wait(world: World, answer: str, outcome: str) -> None:
    record = await world.asking()
    world.clock.advance(7 * SECOND)
    await world.update(record.id, input_1=answer)
    now = await world.now(record)
    assert record.waiting_since is not None
    assert of(world.emitted, InputSettled, InputWaited) == [
        InputWaited(now, world.clock.now() - record.waiting_since),
        InputSettled(now, "input-1", "elicitation", outcome),
    ]


async def test_an_answer_to_what_was_never_asked_is_suspicious_and_is_taken_like_any_other(world: World) -> None:
    record = await world.asking()
    await world.update(record.id, input_1=ACCEPT, input_2=ACCEPT, other=ACCEPT)
    assert of(world.emitted, SuspicionRaised) == [UNASKED]
    assert (await world.now(record)).answers == {"input-1": ACCEPT}


async def test_an_answer_that_is_late_or_a_second_one_is_not_suspicious(world: World) -> None:
    record = await world.asking()
    for _ in range(2):
        await world.update(record.id, input_1=ACCEPT)
    assert of(world.emitted, SuspicionRaised) == []


async def test_what_is_suspicious_is_so_though_another_answer_does_not_fit(world: World) -> None:
    record = await world.asking()
    with pytest.raises(InvalidParams):
        await world.update(record.id, input_1='{"result":{}}', input_9=ACCEPT)
    assert of(world.emitted, SuspicionRaised) == [UNASKED]


# --- cancels ---------------------------------------------------------------------------------------------------------


async def test_a_cancel_is_told_with_the_record_as_it_was_asked_for_and_as_it_ended(world: World) -> None:
    record = await world.asking()
    world.clock.advance(7 * SECOND)
    await world.cancel(record.id)
    ended, age = await world.now(record), world.clock.now() - record.created_at
    asked, moved, waited, settled, finished = of(
        world.emitted, TaskCancelRequested, TaskTransitioned, InputWaited, InputSettled, TaskFinished
    )
    assert (asked.task.status, asked.outcome) == (TaskStatus.INPUT_REQUIRED, "propagated")
    assert moved == TaskTransitioned(ended, TaskStatus.INPUT_REQUIRED)
    assert (waited.task, settled.task, settled.outcome) == (ended, ended, "superseded")
    assert finished == TaskFinished(ended, TaskStatus.CANCELLED, "client", age, None)


async def test_a_cancel_of_what_has_ended_is_told_and_nothing_else(world: World) -> None:
    record = await world.keep(after(new_record(), DONE))
    await world.cancel(record.id)
    assert of(world.emitted, TaskCancelRequested, TaskTransitioned, TaskFinished) == [
        TaskCancelRequested(await world.now(record), "already_terminal")
    ]
