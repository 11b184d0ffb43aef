"""What operators are told of the call of a task: with its record, as it was when that happened."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from helpers.failing_store import HoldingStore
from helpers.records import after, keep, new_input, new_record
from helpers.waiting import bounded, eventually
from taskgate.admission.concurrency import Permit
from taskgate.domain.events import CallSucceeded, InputRequested
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.stores.open import open_store
from taskgate.telemetry.events import (
    InputSettled,
    InputWaited,
    TaskDispatched,
    TaskFinished,
    TaskRecovered,
    TaskTransitioned,
)
from unit.lifecycle.one_runner import House, house, housed, slot

__all__ = ["house", "slot"]

SECOND = timedelta(seconds=1)


def of(house: House, *kinds: type[Any]) -> list[Any]:
    return [event for event in house.emitted.all if isinstance(event, kinds)]


def head(record: TaskRecord) -> tuple[Any, ...]:
    """What tells one revision of a record from all others."""
    return record.id, record.revision, record.status, record.dispatched


async def test_a_call_that_leaves_is_told_with_the_record_that_says_so(house: House) -> None:
    record = await house.start()
    await eventually(lambda: house.server.called)
    (event,) = of(house, TaskDispatched)
    assert (head(event.task), event.waited) == (head(await house.now(record)), timedelta())
    assert event.task.dispatched
    house.server.answer.set_result("{}")
    await house.ended(record)


async def test_so_is_one_whose_record_was_changed_while_it_waited(house: House, slot: Permit) -> None:
    house.emitted.all.clear()
    before = house.bulkhead.acquire("c")
    record = await house.start()
    slot.release()
    house.clock.advance(4 * SECOND)
    before.release()
    await eventually(lambda: house.server.called)
    (event,) = of(house, TaskDispatched)
    assert (event.task.id, event.task.dispatched, event.waited) == (record.id, True, 4 * SECOND)
    house.server.answer.set_result("{}")
    await house.ended(record)


@pytest.mark.parametrize(
    ("answer", "status", "reason", "size"),
    [
        ('{"content":[]}', TaskStatus.COMPLETED, "ok", 14),
        (UpstreamFailed(UpstreamReason.CLOSED, "gone", dispatched=True), TaskStatus.FAILED, "closed", None),
    ],
)
async def test_an_end_is_told_with_the_record_as_it_ended(
    house: House, answer: Any, status: TaskStatus, reason: str, size: int | None
) -> None:
    record = await house.start()
    await eventually(lambda: house.server.called)
    house.clock.advance(3 * SECOND)
    if isinstance(answer, Exception):
        house.server.answer.set_exception(answer)
    else:
        house.server.answer.set_result(answer)
    ended = await house.ended(record)
    (moved,) = of(house, TaskTransitioned)
    assert (head(moved.task), moved.before) == (head(ended), TaskStatus.WORKING)
    (finished,) = of(house, TaskFinished)
    assert head(finished.task) == head(ended)
    assert (finished.status, finished.reason, finished.result_bytes) == (status, reason, size)
    assert finished.age == ended.updated_at - record.created_at


async def test_what_an_earlier_run_asked_needs_no_answer_when_its_call_is_made_again(house: House) -> None:
    asked = after(new_record(dispatched=True, reruns=1), InputRequested(request=new_input()))
    house.clock.set_wall(asked.updated_at + 8 * SECOND)
    await house.recover(asked)
    await eventually(lambda: house.server.called)
    assert of(house, TaskRecovered) == [TaskRecovered(asked, "retried")]
    moved, waited, settled, left = of(house, TaskTransitioned, InputWaited, InputSettled, TaskDispatched)
    assert (moved.before, moved.task.status) == (TaskStatus.INPUT_REQUIRED, TaskStatus.WORKING)
    assert (waited.waited, settled.outcome) == (8 * SECOND, "superseded")
    assert (left.task.id, left.task.reruns) == (asked.id, 0)
    house.server.answer.set_result("{}")
    await house.ended(asked)


async def test_the_end_of_the_gateway_waits_until_it_is_kept_who_was_given_what() -> None:
    record = after(new_record(), CallSucceeded(result="{}", tool_error=False))
    store = HoldingStore(await open_store("memory", None))
    async with housed(store) as house:
        await keep(house.store, record)
        with store.holding("swap") as begun:
            house.retrievals.note(record)
            async with bounded():
                await begun.wait()
            stopping = asyncio.create_task(house.runner.stop())
            await asyncio.sleep(0)
            assert not stopping.done()
        async with bounded():
            await stopping
        assert (await house.now(record)).retrieved
