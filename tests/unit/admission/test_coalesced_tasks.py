"""A retry of a call that became a task is answered with that task, for as long as it runs."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from helpers.failing_store import HoldingStore
from helpers.records import OWNER, after, keep, new_record
from helpers.waiting import bounded
from taskgate.admission.coalescing import CoalesceKey
from taskgate.domain.record import OwnerKey
from taskgate.stores.open import open_store
from taskgate.telemetry.events import CallCoalesced
from unit.admission.coalescing_desk import DONE, WINDOW, World, call, ended, keyed, retried


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(HoldingStore(await open_store("memory", None)))
    yield world
    await world.close()
    assert world.coalescer.running == 0


# --- calls that became tasks ------------------------------------------------------------------------------------------

TASK = retried(accepts_task=True)


async def test_a_retry_is_answered_with_the_task_that_the_call_became(world: World) -> None:
    record = await world.make(TASK)
    assert (await ended(await world.ask(TASK))).id == record.id
    found = await world.coalescer.find_task(TASK)
    assert found is not None
    assert found.id == record.id
    assert len(world.runs) == 1
    assert world.emitted.all == [CallCoalesced("reports", "retry")] * 2


async def test_two_at_once_become_one_task(world: World) -> None:
    one, other = await world.ask(TASK), await world.ask(TASK)
    record = new_record()
    world.runs[0].set_result(record)
    assert [await ended(one), await ended(other)] == [record, record]


async def test_a_task_that_has_ended_or_is_gone_is_not_joined(world: World) -> None:
    record = await world.make(TASK)
    assert await world.store.swap(after(record, DONE), expected=record.revision)
    assert await world.coalescer.find_task(TASK) is None
    short = await world.make(TASK, ttl=timedelta(seconds=1))
    world.clock.advance(timedelta(seconds=1))
    again = await world.make(TASK)
    assert again.id != short.id
    assert len(world.runs) == 3


async def test_a_task_is_joined_within_the_window_alone(world: World) -> None:
    await world.make(TASK)
    world.clock.advance(WINDOW)
    assert await world.coalescer.find_task(TASK) is None
    await world.ask(TASK)
    assert len(world.runs) == 2


@pytest.mark.parametrize(
    "other",
    [
        retried(),
        retried(accepts_task=True, window=None),
        retried(accepts_task=True, call=call(key="k")),
        retried(accepts_task=True, call=call('{"year":2027}')),
        retried(accepts_task=True, owner=OwnerKey("another", OWNER.mount)),
    ],
    ids=["no task", "no window", "a key", "arguments", "context"],
)
async def test_the_task_of_another_call_is_not_joined(world: World, other: CoalesceKey) -> None:
    await world.make(TASK)
    assert await world.coalescer.find_task(other) is None
    assert world.emitted.all == []


async def test_the_task_of_a_key_is_the_stores_to_find(world: World) -> None:
    asking = keyed(accepts_task=True)
    await world.make(asking)
    await world.ask(asking)
    assert len(world.runs) == 2


async def test_who_finds_that_a_task_has_ended_joins_the_one_that_was_made_meanwhile(world: World) -> None:
    ends = await world.make(TASK)
    await world.store.swap(after(ends, DONE), expected=ends.revision)
    world.clock.advance(timedelta(seconds=1))
    with world.store.holding("load") as looking:
        late = await world.ask(TASK)
        async with bounded():
            await looking.wait()
        # Another one is faster. Its window is over, so that it need not look, and makes a task of its own.
        newer = await world.make(retried(accepts_task=True, window=timedelta()))
    assert (await ended(late)).id == newer.id
    assert len(world.runs) == 2


async def test_the_task_that_was_made_longest_ago_is_forgotten_first() -> None:
    world = World(HoldingStore(await open_store("memory", None)), most=2)
    asked = [retried(accepts_task=True, call=call(f'{{"n":{number}}}')) for number in range(3)]
    for asking in asked:
        await world.make(asking)
    assert [await world.coalescer.find_task(asking) is not None for asking in asked] == [False, True, True]
    # One that is made anew takes its own place, and no other's.
    world.clock.advance(WINDOW)
    await world.make(asked[2])
    assert (
        await world.coalescer.find_task(retried(accepts_task=True, call=call('{"n":1}'), window=2 * WINDOW)) is not None
    )
    await world.close()


async def test_a_task_is_shared_once_another_call_was_answered_with_it(world: World) -> None:
    asking = retried(accepts_task=True)
    record = await world.make(asking)
    assert not world.coalescer.is_shared(record.id)
    joined = await world.coalescer.find_task(asking)
    assert joined is not None
    assert joined.id == record.id
    assert world.coalescer.is_shared(record.id)
    assert not world.coalescer.is_shared("another")


async def test_so_is_one_that_others_waited_for_while_it_was_made(world: World) -> None:
    asking, record = retried(accepts_task=True), new_record()
    both = [await world.ask(asking), await world.ask(asking)]
    await keep(world.store, record)
    world.runs[0].set_result(record)
    assert [(await ended(each)).id for each in both] == [record.id] * 2
    assert world.coalescer.is_shared(record.id)
