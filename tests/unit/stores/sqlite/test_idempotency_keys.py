"""Inserts with an idempotency key that another insert is writing: they wait for its outcome."""

import asyncio

from helpers.records import keep, new_record
from helpers.waiting import bounded
from taskgate.domain.record import TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.stores.sqlite.state import PendingKeys
from unit.stores.sqlite.conftest import Place


async def test_a_name_that_is_not_on_its_way_is_not_waited_for() -> None:
    repeats = PendingKeys()
    repeats.begin(b"other")
    async with bounded():
        await repeats.wait(b"name")


async def test_all_who_wait_for_a_name_go_on_when_it_arrives_and_wait_for_the_next() -> None:
    repeats, passed = PendingKeys(), list[int]()

    async def come(number: int) -> None:
        await repeats.wait(b"name")
        passed.append(number)
        if number == 0:
            repeats.begin(b"name")

    repeats.begin(b"name")
    async with bounded(), asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(come(number))
        await asyncio.sleep(0)
        assert passed == []
        repeats.end(b"name")
        while passed != [0]:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert passed == [0]
        repeats.end(b"name")
    assert passed == [0, 1, 2]


async def test_one_who_stops_waiting_keeps_nobody_else_from_it() -> None:
    repeats = PendingKeys()
    repeats.begin(b"name")
    gone, stays = (asyncio.create_task(repeats.wait(b"name")) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    repeats.end(b"name")
    async with bounded():
        await stays


# --- in a store -------------------------------------------------------------------------------------------------------


async def test_the_second_of_a_name_is_told_of_the_first_once_that_is_in_the_file(place: Place) -> None:
    first, second = new_record(idempotency_digest="key"), new_record(idempotency_digest="key")

    async def come(record: TaskRecord) -> tuple[str, list[tuple[str]]]:
        stands = await place.store.insert(record, caps=())
        return stands, place.file.far.execute("SELECT id FROM tasks").fetchall()

    async with bounded():
        ends = await asyncio.gather(come(first), come(second))
    assert ends == [(first.id, [(first.id,)])] * 2


async def test_the_second_of_a_name_is_kept_where_the_first_could_not_be(place: Place) -> None:
    taken = new_record()
    await keep(place.store, taken)
    first, *others = (
        new_record(id=taken.id, idempotency_digest="key"),
        new_record(idempotency_digest="key"),
        new_record(idempotency_digest="key"),
    )
    async with bounded():
        ends = await asyncio.gather(
            *(place.store.insert(record, caps=()) for record in (first, *others)), return_exceptions=True
        )
    assert isinstance(ends[0], StoreUnavailable)
    assert ends[1] == ends[2]
    assert ends[1] in {record.id for record in others}
    assert place.file.far.execute("SELECT count(*) FROM tasks").fetchone() == (2,)


async def test_one_of_a_name_who_stops_waiting_keeps_it_from_nobody(place: Place) -> None:
    records = [new_record(idempotency_digest="key") for _ in range(4)]
    async with bounded():
        inserts = [asyncio.create_task(place.store.insert(record, caps=())) for record in records]
        await asyncio.sleep(0)
        for gone in inserts[:2]:
            gone.cancel()
        ends = await asyncio.gather(*inserts, return_exceptions=True)
    # Whoever came first is in the file, though nobody waited for that any more.
    assert ends[2:] == [records[0].id] * 2


async def test_who_waits_for_a_name_when_the_store_closes_is_not_left_waiting(place: Place) -> None:
    records = [new_record(idempotency_digest="key") for _ in range(2)]
    async with bounded():
        inserts = [asyncio.create_task(place.store.insert(record, caps=())) for record in records]
        await asyncio.sleep(0)
        await place.store.close()
        ends = await asyncio.gather(*inserts, return_exceptions=True)
    assert ends[0] == records[0].id
    assert ends[1] == records[0].id or isinstance(ends[1], StoreUnavailable)
