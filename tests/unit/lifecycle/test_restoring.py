"""What a process puts back that a store which others share forgot: whole, ends as well, and for how long."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from helpers.records import after, new_lease
from taskgate.domain.events import Progressed
from taskgate.domain.record import Succeeded, TaskRecord, TaskStatus, evolve
from taskgate.lifecycle.recovery import MAX_ENDED
from taskgate.telemetry.events import LeaseLost
from unit.lifecycle.gated import Replica
from unit.lifecycle.several_runners import RULES, World


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Three processes that have been there for a while."""
    world = World(Random(0))
    monkeypatch.setattr(asyncio, "sleep", world.gates.sleep)
    for _ in range(3):
        await world.tick()
    yield world
    await world.close()


def told(replica: Replica, kind: type[Any]) -> list[Any]:
    return [event for event in replica.emitted.all if isinstance(event, kind)]


async def running(world: World, **changes: Any) -> TaskRecord:
    """A task whose call has left, of the first replica."""
    record = world.create(world.replicas[0], **changes)
    await world.rest()
    assert world.head(record).dispatched
    return record


async def signs(world: World, replica: Replica, number: int) -> None:
    """So many signs of life in one moment."""
    for _ in range(number):
        world.beat(replica)
        await world.rest()


async def test_a_task_that_the_store_forgot_is_put_back_whole(world: World) -> None:
    record = await running(world)
    before = world.head(record)
    world.go_back()
    assert record.id not in world.store.stored
    await world.tick()
    kept = world.store.stored[record.id]
    assert (kept.head.revision, kept.head.dispatched, kept.params) == (before.revision, True, record.call.params)
    world.answer()
    await world.rest()
    assert world.head(record).status is TaskStatus.COMPLETED


async def test_an_end_that_finds_the_task_forgotten_puts_it_back_first(world: World) -> None:
    record = await running(world)
    world.go_back()
    world.answer()
    await world.rest()
    assert world.head(record).status is TaskStatus.COMPLETED


@pytest.mark.parametrize("beats", [0, 1, 2])
async def test_an_end_is_put_back_that_was_forgotten_until_it_was_stored_for_two_heartbeats(
    world: World, beats: int
) -> None:
    """However many signs of life found it meanwhile: two are given in each heartbeat."""
    first = world.replicas[0]
    record = await running(world)
    world.save()
    world.answer()
    await world.rest()
    for _ in range(beats):
        await signs(world, first, 5)
        world.clock.advance(RULES.heartbeat)
    await signs(world, first, 5)
    world.go_back()
    await signs(world, first, 1)
    kept = world.store.stored[record.id]
    assert (kept.head.status is TaskStatus.COMPLETED) is (beats < 2)
    assert (kept.outcome == Succeeded(result='{"content":[]}', tool_error=False)) is (beats < 2)


async def test_an_end_that_was_put_back_is_kept_as_long_as_a_new_one(world: World) -> None:
    first = world.replicas[0]
    record = await running(world)
    world.answer()
    await world.rest()
    for _ in range(5):
        world.clock.advance(RULES.heartbeat)
        world.go_back()
        await signs(world, first, 2)
        assert world.head(record).status is TaskStatus.COMPLETED


async def test_an_end_in_whose_place_the_store_has_another_is_given_up_and_that_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    first = world.replicas[0]
    record = await running(world)
    world.save()
    kept = world.store.saved[record.id]
    kept.head = evolve(kept.head, status=TaskStatus.CANCELLED)
    world.answer()
    await world.rest()
    world.go_back()
    # It is what this test is about that an end is another one then.
    world.ended.clear()
    for _ in range(4):
        await signs(world, first, 1)
    assert world.head(record).status is TaskStatus.CANCELLED
    assert [each.message for each in caplog.records if each.name == "taskgate.leases"] == [
        "lost tasks were not restored to the store: other replicas have them"
    ]


async def test_of_ends_no_more_bytes_are_kept_than_may_be(world: World) -> None:
    record = await running(world)
    world.answer(MAX_ENDED * "x")
    await world.rest()
    world.go_back()
    await world.tick()
    assert record.id not in world.store.stored


async def test_nothing_is_put_back_that_has_expired(world: World) -> None:
    record = await running(world)
    world.go_back()
    world.clock.advance(record.ttl)
    await world.tick()
    assert record.id not in world.store.stored


async def test_what_is_not_to_be_put_back_is_anothers(world: World) -> None:
    """The store went back to what another process has taken over since."""
    first, second, _ = world.replicas
    record = await running(world)
    world.save()
    await world.tick()
    head = world.head(record)
    assert await world.store.swap(after(head, Progressed(message="1/2")), expected=head.revision)
    first.leasing.on_stored(world.head(record))
    world.go_back()
    kept = world.store.stored[record.id]
    kept.head = after(kept.head)
    object.__setattr__(kept.head, "lease", new_lease(holder=second.name, until=world.clock.now() + RULES.length * 9))
    for _ in range(2):
        world.beat(first)
        await world.rest()
    assert told(first, LeaseLost) == [LeaseLost("task", "reports", record.id)]
    assert world.server.open == []
