"""Tasks whose calls wait for their turn at the server, and calls that have a deadline."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.records import OWNER, after, keep, new_lease, new_record
from helpers.waiting import bounded, eventually
from taskgate.admission.concurrency import POSITIONS_EVERY, BulkheadSettings, Permit
from taskgate.domain.events import CancelRequested
from taskgate.domain.record import TaskStatus
from taskgate.lifecycle.runner import Expected
from unit.lifecycle.one_runner import House, fault, house, slot

__all__ = ["house", "slot"]


async def test_a_call_leaves_when_it_is_its_turn_and_has_the_slot_until_it_is_over(house: House, slot: Permit) -> None:
    record = await house.start()
    assert not (await house.now(record)).dispatched
    slot.release()
    await eventually(lambda: house.server.called)
    running = await house.now(record)
    assert (running.dispatched, running.status_message, house.bulkhead.in_use) == (True, None, 1)
    house.server.answer.set_result("{}")
    assert (await house.ended(record)).status is TaskStatus.COMPLETED
    await eventually(lambda: house.bulkhead.in_use == 0)


async def test_a_call_that_was_stored_as_dispatched_is_sent_without_another_write(house: House) -> None:
    record = await house.start(dispatched=True)
    await eventually(lambda: house.server.called)
    assert (await house.now(record)).revision == record.revision
    house.server.answer.set_result("{}")
    assert (await house.ended(record)).status is TaskStatus.COMPLETED


async def test_its_place_is_told_while_it_waits(house: House, slot: Permit) -> None:
    first, second = await house.start(), await house.start()
    assert (await house.now(second)).status_message == "Queued (1 ahead)"
    slot.release()
    await eventually(lambda: house.server.called)

    async with bounded():
        while (await house.now(second)).status_message != "Queued (0 ahead)":
            await asyncio.sleep(POSITIONS_EVERY)
    house.server.answer.set_result("{}")
    for record in (first, second):
        assert (await house.ended(record)).status is TaskStatus.COMPLETED


async def test_one_that_is_cancelled_while_it_waits_leaves_the_queue_at_once_and_is_never_sent(
    house: House, slot: Permit
) -> None:
    record = await house.start()
    assert await house.store.swap(after(record, CancelRequested()), expected=record.revision)
    await eventually(lambda: house.bulkhead.queued == 0)
    assert (await house.ended(record)).status is TaskStatus.CANCELLED
    slot.release()
    assert house.server.called == []


async def test_one_that_waits_too_long_fails_unsent_and_says_when_it_may_be_better(house: House, slot: Permit) -> None:
    house.bulkhead.adjust(house.bounds(max_wait=timedelta(milliseconds=1)))
    ended = await house.ended(await house.start())
    error = fault(ended)
    assert (error["code"], error["data"]["reason"], error["data"]["dispatched"]) == (429, "queue", False)
    assert error["data"]["retryAfterMs"] > 0
    assert (house.server.called, house.bulkhead.queued) == ([], 0)


async def test_one_whose_time_is_over_while_it_waits_is_left_to_expire(house: House, slot: Permit) -> None:
    record = await house.start(ttl=timedelta(milliseconds=1))
    house.clock.advance(timedelta(seconds=1))
    async with bounded():
        await house.runner.idle()
    assert await house.store.load(OWNER, record.id, now=house.clock.now()) is None
    assert (house.server.called, house.bulkhead.queued) == ([], 0)


async def test_a_shutdown_ends_one_that_waits_unsent(house: House, slot: Permit) -> None:
    record = await house.start()
    await house.runner.stop()
    data = fault(await house.now(record))["data"]
    assert (data["reason"], data["dispatched"], house.server.called) == ("shutdown", False, [])


async def test_one_that_begins_to_wait_after_the_shutdown_ends_unsent_too(house: House, slot: Permit) -> None:
    await house.runner.stop()
    record = await house.start()
    assert fault(await house.ended(record))["data"]["reason"] == "shutdown"


async def test_one_that_was_stored_as_dispatched_and_not_sent_before_the_shutdown_says_so(house: House) -> None:
    await house.runner.stop()
    data = fault(await house.ended(await house.start(dispatched=True)))["data"]
    assert (data["reason"], data["dispatched"], house.server.called) == ("shutdown", False, [])


async def test_a_drain_waits_for_no_task_whose_session_could_not_be_kept_open(house: House) -> None:
    class Place:
        def acquire(self) -> None:
            raise RuntimeError("no session")

    with pytest.raises(RuntimeError, match="no session"), Expected(house.runner, Place()):  # type: ignore[arg-type]
        pass
    async with bounded():
        await house.runner.idle()


async def test_a_drain_waits_for_what_waits_for_its_turn(house: House, slot: Permit) -> None:
    await house.start()
    idle = asyncio.create_task(house.runner.idle())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not idle.done()
    house.server.answer.set_result("{}")
    slot.release()
    async with bounded():
        await idle


async def test_a_deadline_counts_from_when_the_call_leaves_and_not_while_it_waits(house: House, slot: Permit) -> None:
    record = await house.start(deadline=timedelta(seconds=10))
    await asyncio.sleep(20)
    slot.release()
    error = fault(await house.ended(record))
    assert error["message"] == "The call took longer than its deadline"
    assert (error["data"]["reason"], error["data"]["dispatched"]) == ("timeout", True)
    assert (len(house.server.called), house.server.given_up) == (1, 1)


async def test_a_deadline_that_is_longer_than_the_task_lives_bounds_nothing(house: House) -> None:
    record = await house.start(deadline=timedelta(hours=2), ttl=timedelta(hours=1))
    await eventually(lambda: house.server.withins)
    assert house.server.withins == [timedelta(hours=1)]
    house.server.answer.set_result("{}")
    assert (await house.ended(record)).status is TaskStatus.COMPLETED


async def test_a_deadline_of_a_call_that_became_a_task_on_its_way_counts_from_then(house: House) -> None:
    record = new_record(dispatched=True, lease=new_lease(), deadline=timedelta(milliseconds=1))
    await keep(house.store, record)
    silent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    underway = SimpleNamespace(response=lambda: silent, close=lambda: None, attach_listener=lambda listener: None)
    house.runner.adopt(record, underway, house.server)  # type: ignore[arg-type]
    error = fault(await house.ended(record))
    assert (error["message"], error["data"]["reason"]) == ("The call took longer than its deadline", "timeout")


async def test_a_call_beside_others_that_does_not_come_to_its_turn_ends_its_task_unsent(house: House) -> None:
    record = new_record(dispatched=True, lease=new_lease())
    await keep(house.store, record)
    house.bulkhead.adjust(BulkheadSettings(concurrency=1, queue=0, max_wait=timedelta()))
    slot = house.bulkhead.acquire("b")

    async def shared() -> Any:
        house.bulkhead.acquire("a")

    underway = SimpleNamespace(response=shared, close=lambda: None, attach_listener=lambda listener: None)
    house.runner.adopt(record, underway, house.server)  # type: ignore[arg-type]
    data = fault(await house.ended(record))["data"]
    assert (data["reason"], data["dispatched"]) == ("queue", False)
    slot.release()


async def test_a_run_that_is_stopped_has_given_its_call_up_when_the_stop_returns(house: House) -> None:
    record = await house.start()
    await eventually(lambda: house.server.called)
    async with bounded():
        await house.runner.stop_run(record.id)
    assert house.server.given_up == 1
    await house.runner.stop_run("no-task-of-this-process")
    await house.transitions.apply(await house.now(record), CancelRequested(), house.clock.now())
