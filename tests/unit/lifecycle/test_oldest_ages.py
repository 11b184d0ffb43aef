"""The age of the oldest task of each server that has not ended, as metrics show it."""

from datetime import timedelta

from helpers.records import EPOCH, OWNER, new_record
from taskgate.admission.concurrency import Permit
from unit.lifecycle.one_runner import House, house, slot

__all__ = ["house", "slot"]

MINUTE = timedelta(minutes=1)


async def test_each_server_has_the_age_of_its_oldest_task(house: House) -> None:
    now = house.clock.now()
    assert house.runner.oldest_ages() == {}
    await house.start(created_at=now - 3 * MINUTE)
    await house.start(created_at=now - 5 * MINUTE)
    await house.start(created_at=now - MINUTE, owner=OWNER._replace(mount="books"))
    assert house.runner.oldest_ages() == {("reports",): 300.0, ("books",): 60.0}
    house.clock.advance(MINUTE)
    assert house.runner.oldest_ages() == {("reports",): 360.0, ("books",): 120.0}
    house.server.answer.set_result("{}")
    await house.runner.idle()
    assert house.runner.oldest_ages() == {}


async def test_a_task_that_waits_in_the_queue_counts_from_its_creation(house: House, slot: Permit) -> None:
    record = await house.start(created_at=house.clock.now() - MINUTE)
    assert house.runner.oldest_ages() == {(record.owner.mount,): 60.0}
    assert house.runner.calls_running() == {}


async def test_a_task_that_seems_to_come_from_later_has_no_negative_age(house: House) -> None:
    await house.start(created_at=house.clock.now() + MINUTE)
    assert set(house.runner.oldest_ages().values()) == {0.0}


async def test_a_task_of_an_earlier_process_has_the_age_since_its_creation(house: House) -> None:
    record = new_record(created_at=EPOCH - MINUTE)
    await house.recover(record)
    [age] = house.runner.oldest_ages().values()
    assert age == (house.clock.now() - record.created_at).total_seconds()
