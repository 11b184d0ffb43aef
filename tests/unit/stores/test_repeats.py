"""Who comes with a name that is on its way waits for it, and for nothing else."""

import asyncio

from helpers.waiting import bounded
from taskgate.stores.sqlite.store import PendingKeys


async def test_a_name_that_is_not_on_its_way_is_not_waited_for() -> None:
    repeats = PendingKeys()
    repeats.begin(None)
    repeats.begin(b"other")
    async with bounded():
        await repeats.wait(b"name")
    repeats.end(None)


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
