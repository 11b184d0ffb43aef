"""What the rounds of the sweeper tell of the records that they remove."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import EPOCH, ManualClock
from helpers.records import after, keep, new_input, new_record
from taskgate.domain.events import CallSucceeded, CancelRequested, Dispatched, InputRequested, ResultRetrieved
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.errors import StoreUnavailable
from taskgate.gateway.sweeper import Sweeper
from taskgate.stores.open import open_store
from taskgate.telemetry.events import InputSettled, InputWaited, TaskExpired, TaskFaulted, TaskFinished, TaskPurged
from unit.lifecycle.recorded_events import RecordedEvents

HOUR = timedelta(hours=1)
DONE = CallSucceeded(result="{}", tool_error=False)


async def purged(record: TaskRecord) -> tuple[TaskRecord, list[Any]]:
    """The head that is removed when a record has expired, and all that is told of it."""
    store, clock, emitted, nothing = await open_store("memory", None), ManualClock(), RecordedEvents(), None
    await keep(store, record)
    sweeper = Sweeper(
        store=store,
        runner=nothing,  # type: ignore[arg-type]
        waiting=nothing,  # type: ignore[arg-type]
        mounts={},
        event_sink=emitted,
        clock=clock,
        interval=HOUR,
    )
    await sweeper.purge()
    assert emitted.all == []
    clock.advance(HOUR)
    await sweeper.purge()
    (gone,) = [event.task for event in emitted.all if isinstance(event, TaskPurged)]
    return gone, emitted.all


@pytest.mark.parametrize(
    ("events", "phase"),
    [
        ((), "queued"),
        ((Dispatched(),), "working"),
        ((Dispatched(), InputRequested(request=new_input())), "input_required"),
    ],
)
async def test_an_unfinished_task_expires_in_the_phase_that_it_was_in(events: tuple[Any, ...], phase: str) -> None:
    gone, emitted = await purged(after(new_record(), *events))
    assert emitted[-4:] == [
        TaskExpired(gone, phase),
        TaskFinished(gone, TaskStatus.FAILED, "expired", HOUR, None),
        TaskFaulted(gone, "expired"),
        TaskPurged(gone),
    ]


async def test_the_questions_of_a_task_that_expires_do_so_too() -> None:
    asked = after(new_record(), Dispatched(), InputRequested(request=new_input()))
    gone, emitted = await purged(asked)
    assert asked.waiting_since is not None
    waited = EPOCH + HOUR - asked.waiting_since
    assert emitted[:-4] == [InputWaited(gone, waited), InputSettled(gone, "input-1", "elicitation", "expired")]


@pytest.mark.parametrize(
    ("events", "retrieved"),
    [((DONE,), False), ((DONE, ResultRetrieved()), True), ((CancelRequested(),), False)],
)
async def test_a_task_that_had_ended_tells_whether_anybody_was_given_what_it_came_to(
    events: tuple[Any, ...], retrieved: bool
) -> None:
    gone, emitted = await purged(after(new_record(), *events))
    assert emitted == [TaskPurged(gone)]
    assert gone.retrieved is retrieved


class _Recoveries:
    """The recoveries of a runner: those of `failing` fail once, the others take some turns of the loop."""

    holder = "next"

    def __init__(self, failing: dict[str, Exception]) -> None:
        self.failing = failing
        self.recovered: list[str] = []

    async def recover(self, record: TaskRecord, _: object) -> None:
        if record.id in self.failing:
            raise self.failing.pop(record.id)
        for _turn in range(5):
            await asyncio.sleep(0)
        self.recovered.append(record.id)


async def recovering(failing: dict[int, Exception]) -> tuple[Sweeper, _Recoveries, list[str]]:
    """A sweeper that finds three tasks, of which some fail; the runner, and the ids."""
    store, nothing = await open_store("memory", None), None
    records = [new_record(), new_record(), new_record()]
    await keep(store, *records)
    runner = _Recoveries({records[number].id: failure for number, failure in failing.items()})
    sweeper = Sweeper(
        store=store,
        runner=runner,  # type: ignore[arg-type]
        waiting=nothing,  # type: ignore[arg-type]
        mounts={},
        event_sink=RecordedEvents(),
        clock=ManualClock(),
        interval=HOUR,
    )
    return sweeper, runner, [record.id for record in records]


async def test_a_task_whose_recovery_failed_is_recovered_by_the_next_call_and_the_others_once() -> None:
    sweeper, runner, (first, second, third) = await recovering({1: StoreUnavailable("the store is not there")})
    with pytest.raises(StoreUnavailable):
        await sweeper.recover()
    assert runner.recovered == [first, third], "all end before the failure is raised"
    assert await sweeper.recover() == 1
    assert runner.recovered == [first, third, second]
    assert await sweeper.recover() == 0


async def test_a_fault_in_a_recovery_is_raised_though_the_store_failed_in_another() -> None:
    sweeper, _, _ = await recovering({0: StoreUnavailable("the store is not there"), 1: KeyError("a fault")})
    with pytest.raises(KeyError):
        await sweeper.recover()
    assert await sweeper.recover() == 1
