"""What a process holds in a store that others share: how it keeps it, and loses it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from taskgate.domain.record import Faulted, FaultReason, TaskRecord, TaskStatus
from taskgate.lifecycle.recovery import OUTCOME_UNKNOWN
from taskgate.telemetry.events import LateAnswerDropped, LeaseLost, TaskRecovered
from unit.lifecycle.gated import Replica
from unit.lifecycle.several_runners import RULES, World

SECOND = timedelta(seconds=1)


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


def holder_of(world: World, record: TaskRecord) -> str | None:
    lease = world.head(record).lease
    return None if lease is None else lease.holder


async def running(world: World, **changes: Any) -> TaskRecord:
    """A task whose call has left, of the first replica."""
    record = world.create(world.replicas[0], **changes)
    await world.rest()
    assert world.head(record).dispatched
    return record


async def left_alone(world: World, replica: Replica) -> timedelta:
    """How long it takes until what a process runs has ended when it is heard of no more."""
    began = world.clock.now()
    replica.stopped = True
    while not all(world.head(record).status.is_terminal for record in world.acknowledged.values()):
        await world.tick()
    return world.clock.now() - began


async def test_a_process_that_vanished_is_named_by_all_others_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    first, *others = world.replicas
    first.stopped = True
    while not all(each.leasing.vanished for each in others):
        await world.tick()
    assert [list(each.leasing.vanished) for each in others] == [[first.leasing.holder]] * 2
    text = "a replica vanished: others take its tasks over"
    assert [vars(each)["replica"] for each in caplog.records if each.getMessage() == text] == [first.leasing.holder] * 2


async def test_a_call_goes_on_for_longer_than_its_lease_while_its_process_shows_that_it_lives(world: World) -> None:
    record = await running(world)
    for _ in range(10):
        await world.tick()
    world.answer()
    await world.rest()
    assert world.head(record).status is TaskStatus.COMPLETED


async def test_a_call_whose_process_is_gone_ends_within_two_leases_as_one_of_unknown_outcome(world: World) -> None:
    record = await running(world)
    assert await left_alone(world, world.replicas[0]) <= 2 * RULES.length
    head, outcome = world.head(record), world.store.stored[record.id].outcome
    assert (head.status, head.status_message) == (TaskStatus.FAILED, OUTCOME_UNKNOWN)
    assert isinstance(outcome, Faulted)
    assert outcome.reason is FaultReason.CALL_LOST
    recovered = [event for replica in world.replicas for event in told(replica, TaskRecovered)]
    assert [event.outcome for event in recovered] == ["failed"]


async def test_a_process_that_wakes_too_late_gives_its_call_up_and_says_so(world: World) -> None:
    first = world.replicas[0]
    record = await running(world)
    await left_alone(world, first)
    assert world.server.open
    first.stopped = False
    await world.tick()
    assert world.server.open == []
    assert told(first, LeaseLost) == [LeaseLost("task", "reports", record.id)]


async def test_an_answer_that_comes_after_the_lease_was_lost_is_dropped_and_counted(world: World) -> None:
    first = world.replicas[0]
    record = await running(world)
    await left_alone(world, first)
    ended = world.head(record)
    world.answer()
    first.stopped = False
    await world.rest()
    assert world.head(record) == ended
    assert (told(first, LateAnswerDropped), told(first, LeaseLost)) == (
        [LateAnswerDropped("reports")],
        [LeaseLost("task", "reports", record.id)],
    )


async def test_what_was_not_sent_is_sent_by_another_and_not_by_who_wakes_too_late(world: World) -> None:
    first = world.replicas[0]
    held = [first.place.mount.bulkhead.acquire(name) for name in ("another", "a third")]
    record = world.create(first)
    while not world.acknowledged:
        await world.step()
    first.stopped = True
    assert not world.head(record).dispatched
    while not world.server.open:
        await world.tick()
    held[0].release()
    first.stopped = False
    for _ in range(3):
        await world.tick()
    assert sum(world.server.sent.values()) == 1
    world.answer()
    await world.rest()
    assert world.head(record).status is TaskStatus.COMPLETED


async def test_a_taker_that_dies_half_way_is_followed_by_another(world: World) -> None:
    first, second, third = world.replicas
    record = await running(world)
    first.stopped = third.stopped = True
    while holder_of(world, record) != second.name:
        world.clock.advance(RULES.heartbeat)
        world.beat(second)
        world.sweep(second)
        while holder_of(world, record) != second.name and await world.step():
            pass
    assert not world.head(record).status.is_terminal
    second.stopped, third.stopped = True, False
    while not world.head(record).status.is_terminal:
        await world.tick()
    assert told(third, TaskRecovered)


async def test_a_call_whose_lease_lapsed_goes_on_where_nobody_took_it(world: World) -> None:
    """Its own process meets it first when it wakes."""
    first = world.replicas[0]
    record = await running(world)
    for replica in world.replicas:
        replica.stopped = True
    world.clock.advance(2 * RULES.length)
    first.stopped = False
    world.sweep(first)
    await world.rest()
    lease = world.head(record).lease
    assert lease is not None
    assert (lease.holder, lease.until) == (first.name, world.clock.now() + RULES.length)
    world.answer()
    await world.rest()
    assert world.head(record).status is TaskStatus.COMPLETED
    assert told(first, LeaseLost) == []


async def test_a_call_that_another_ended_is_given_up_with_the_next_sign_of_life(world: World) -> None:
    """Where the news of it were lost."""
    first, second, _ = world.replicas
    record = await running(world)
    world.cancel(second, record.id)
    await world.rest()
    assert world.server.open
    await world.tick()
    assert world.server.open == []
    assert told(first, LeaseLost) == []


async def test_nothing_is_taken_over_until_the_store_has_been_there_for_two_heartbeats(world: World) -> None:
    first, second, _ = world.replicas
    record = await running(world)
    world.is_down = True
    for _ in range(6):
        await world.tick()
    world.is_down = False
    first.stopped = True
    world.beat(second)
    await world.rest()
    assert not second.leasing.may_take_over
    world.clock.advance(2 * RULES.heartbeat - SECOND)
    world.sweep(second)
    await world.rest()
    assert not world.head(record).status.is_terminal
    world.clock.advance(SECOND)
    world.sweep(second)
    await world.rest()
    assert world.head(record).status is TaskStatus.FAILED


async def test_a_takeover_names_the_heartbeat_right_before_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    named, lapsed = list[object](), world.store.lapsed

    async def noted(**arguments: Any) -> Any:
        named.append(arguments["heard"])
        return await lapsed(**arguments)

    monkeypatch.setattr(world.store, "lapsed", noted)
    for _ in range(3):
        await world.tick()
    named.clear()
    world.sweep(world.replicas[1])
    await world.rest()
    assert named == [world.leases.lives["B"]]


async def test_nothing_is_taken_over_because_the_clock_of_the_store_was_set(world: World) -> None:
    """To whoever hears of it first all leases of others have lapsed."""
    second = world.replicas[1]
    record = await running(world)
    world.clock.set_wall(world.clock.now() + timedelta(hours=1))
    world.sweep(second)
    await world.rest()
    assert not world.head(record).status.is_terminal
    for _ in range(4):
        await world.tick()
    assert second.leasing.may_take_over
    assert not world.head(record).status.is_terminal


async def test_nothing_is_taken_over_by_the_first_that_wakes_where_all_stood_still(world: World) -> None:
    """As on a machine that stalls: whoever comes first finds that the leases of all others have lapsed."""
    second = world.replicas[1]
    record = await running(world)
    world.clock.advance(2 * RULES.length)
    world.sweep(second)
    await world.rest()
    assert not world.head(record).status.is_terminal
    for _ in range(4):
        await world.tick()
    assert second.leasing.may_take_over
    world.answer()
    await world.rest()
    assert world.head(record).status is TaskStatus.COMPLETED


@pytest.mark.parametrize("is_empty", [False, True])
async def test_nothing_is_taken_over_of_a_store_that_came_back_with_what_was_true_before(
    world: World, is_empty: bool
) -> None:
    """Between two signs of life: each of them was heard."""
    first = world.replicas[0]
    before = {} if is_empty else dict(world.leases.lives)
    await world.tick()
    assert first.leasing.may_take_over
    world.leases.lives = before
    world.beat(first)
    await world.rest()
    assert not first.leasing.may_take_over
    for _ in range(3):
        await world.tick()
    assert first.leasing.may_take_over
