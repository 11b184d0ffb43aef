"""Calls of an earlier process: what was never sent runs in its turn, and what may have run only where it may again."""

from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import after, new_input, new_record
from helpers.waiting import eventually
from taskgate.admission.concurrency import Permit
from taskgate.domain.events import InputAnswered, InputRequested
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.errors import QueueFull, StoreUnavailable, UpstreamFailed, UpstreamReason
from taskgate.telemetry.events import TaskRecovered
from unit.lifecycle.one_runner import House, fault, house, slot

__all__ = ["house", "slot"]

NOT_REACHED = UpstreamFailed(UpstreamReason.UNREACHABLE, "The server is away", dispatched=False)


async def test_what_is_left_of_an_earlier_process_waits_for_its_turn_however_many_do(
    house: House, slot: Permit
) -> None:
    records = [await house.recover(new_record()) for _ in range(5)]
    assert house.bulkhead.queued == 5
    house.server.answer.set_result("{}")
    slot.release()
    for record in records:
        assert (await house.ended(record)).status is TaskStatus.COMPLETED
    assert len(house.server.called) == 5


async def test_what_may_have_run_is_not_run_again_unless_the_operator_has_it_so(house: House) -> None:
    record = await house.recover(new_record(dispatched=True))
    assert fault(await house.ended(record))["data"] == {"origin": "gateway", "reason": "call_lost", "dispatched": True}
    assert house.server.called == []
    assert house.emitted.all[-1] == TaskRecovered(record, "failed")


async def test_what_may_run_again_does_so_once(house: House) -> None:
    house.server.answer.set_result("{}")
    record = await house.recover(new_record(dispatched=True, reruns=1, status_message="3/10: fetching"))
    assert TaskRecovered(record, "retried") in house.emitted.all
    ended = await house.ended(record)
    assert (ended.status, ended.reruns, house.server.called) == (TaskStatus.COMPLETED, 0, ["build_report"])


async def test_what_is_older_than_its_host_was_granted_is_taken_over_too(house: House) -> None:
    house.server.answer.set_result("{}")
    house.clock.advance(timedelta(minutes=61))
    record = await house.recover(new_record(expires_at=EPOCH + timedelta(hours=24)))
    ended = await house.ended(record)
    assert (ended.status, ended.ttl) == (TaskStatus.COMPLETED, timedelta(minutes=90))
    assert house.server.withins == [timedelta(hours=24) - timedelta(minutes=61)]


async def test_what_asked_its_host_something_runs_again_though_the_host_answers_meanwhile(
    house: House, slot: Permit
) -> None:
    record = after(new_record(dispatched=True, reruns=1), InputRequested(request=new_input()))
    await house.recover(record)
    told = await house.now(record)
    assert told.status_message == "Queued (0 ahead)"
    answered = after(told, InputAnswered(key="input-1", response="{}"))
    assert await house.store.swap(answered, expected=told.revision)
    slot.release()
    await eventually(lambda: house.server.called)
    running = await house.now(record)
    assert (running.status, running.inputs, running.answers) == (TaskStatus.WORKING, (), {})
    house.server.answer.set_result("{}")
    assert (await house.ended(record)).status is TaskStatus.COMPLETED


async def test_what_would_run_again_and_does_not_come_to_it_may_still_have_run_before(
    house: House, slot: Permit
) -> None:
    house.bulkhead.adjust(house.bounds(max_wait=timedelta(milliseconds=1)))
    record = await house.recover(new_record(dispatched=True, reruns=1))
    data = fault(await house.ended(record))["data"]
    assert (data["reason"], data["dispatched"]) == ("queue", True)


@pytest.mark.parametrize("failure", [NOT_REACHED, QueueFull("Full", retry_after=timedelta(seconds=1))])
@pytest.mark.parametrize(("before", "key"), [(True, "k"), (False, None)])
async def test_a_key_is_given_back_by_what_was_not_sent_unless_it_may_have_run_before(
    house: House, failure: Exception, before: bool, key: str | None
) -> None:
    house.server.answer.set_exception(failure)
    # No time is left to wait for a server that was not reached.
    times = {"ttl": timedelta(milliseconds=100), "expires_at": EPOCH + timedelta(hours=1)}
    record = new_record(dispatched=before, reruns=before, idempotency_digest="k", **times)
    ended = await house.ended(await house.recover(record))
    assert (fault(ended)["data"]["dispatched"], ended.idempotency_digest) == (before, key)


async def test_a_place_that_cannot_be_written_keeps_no_call_from_its_turn(
    house: House, slot: Permit, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap, tries = house.store.swap, 0

    async def fails_once(record: TaskRecord, *, expected: int) -> bool:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreUnavailable("away")
        return await swap(record, expected=expected)

    monkeypatch.setattr(house.store, "swap", fails_once)
    record = await house.recover(new_record())
    slot.release()
    house.server.answer.set_result("{}")
    assert (await house.ended(record)).status is TaskStatus.COMPLETED
