"""What a replica meets when it comes back to what it held, or hears late of what became of it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import after, new_lease, new_record
from taskgate.domain.events import Progressed
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.lifecycle.task_run import TaskRun
from taskgate.stores.shared import HeartbeatReply
from taskgate.telemetry.events import LeaseLost
from unit.lifecycle.alone import Alone
from unit.lifecycle.gated import Replica
from unit.lifecycle.several_runners import RULES, World


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Three replicas that have been there for a while."""
    world = World(Random(0))
    monkeypatch.setattr(asyncio, "sleep", world.gates.sleep)
    for _ in range(3):
        await world.tick()
    yield world
    await world.close()


def lost(replica: Replica) -> int:
    return sum(isinstance(event, LeaseLost) for event in replica.emitted.all)


async def met_again(world: World, replica: Replica, record: TaskRecord) -> None:
    """Its own round takes over what it runs itself: the lease lapsed, and nobody else was there."""
    world.clock.advance(RULES.length)
    now = world.clock.now()
    (lapsed,) = await world.store.lapsed(holder=replica.name, until=now + RULES.length, now=now, limit=9)
    assert lapsed.id == record.id
    replica.begin(lambda: replica.runner.recover(lapsed, replica.place.mount))
    await world.rest()


async def test_a_call_that_its_own_process_meets_goes_on(world: World) -> None:
    first = world.replicas[0]
    record = world.create(first)
    await world.rest()
    await met_again(world, first, record)
    assert lost(first) == 0
    world.answer()
    await world.rest()
    assert (world.head(record).status, sum(world.server.sent.values())) == (TaskStatus.COMPLETED, 1)


async def test_one_that_another_had_meanwhile_is_given_up_and_ended(world: World) -> None:
    """Whoever wrote: what that may have been is not known, and the call may have been sent twice otherwise."""
    first = world.replicas[0]
    record = world.create(first)
    await world.rest()
    head = world.head(record)
    assert await world.store.swap(after(head, Progressed(message="1/2")), expected=head.revision)
    await met_again(world, first, record)
    assert (lost(first), world.server.open) == (1, [])
    assert world.head(record).status is TaskStatus.FAILED


async def test_a_call_that_runs_elsewhere_again_is_given_up_here(world: World) -> None:
    first = world.replicas[0]
    record = world.create(first, reruns=1)
    await world.rest()
    first.stopped = True
    while sum(world.server.sent.values()) < 2:
        await world.tick()
    assert len(world.server.open) == 2
    first.stopped = False
    world.beat(first)
    await world.rest()
    assert (lost(first), len(world.server.open)) == (1, 1)
    world.answer()
    await world.rest()
    assert world.head(record).status is TaskStatus.COMPLETED


async def stored(world: World, record: TaskRecord) -> None:
    """Let the replicas go on until the store has the task, and nobody was told."""
    while await world.store.load(record.owner, record.id, now=world.clock.now()) is None:
        await world.step()
    assert record.dispatched
    assert record.id not in world.acknowledged


async def test_a_call_does_not_leave_whose_task_was_taken_over_before_its_insert_was_answered(world: World) -> None:
    first = world.replicas[0]
    record = world.create(first)
    await stored(world, record)
    first.stopped = True
    while not world.head(record).status.is_terminal:
        await world.tick()
    first.stopped = False
    await world.rest()
    assert record.id in world.acknowledged
    assert (world.head(record).status, world.server.sent) == (TaskStatus.FAILED, {})


async def test_a_call_leaves_whose_insert_took_longer_to_be_answered_than_a_lease_if_nobody_took_it(
    world: World,
) -> None:
    first = world.replicas[0]
    record = world.create(first)
    await stored(world, record)
    world.clock.advance(RULES.length)
    await world.rest()
    assert sum(world.server.sent.values()) == 1
    world.beat(first)
    await world.rest()
    world.answer()
    await world.rest()
    assert world.head(record).status is TaskStatus.COMPLETED


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_call_whose_replica_stops_before_its_insert_is_answered_is_sent_by_another(
    world: World, is_stored: bool
) -> None:
    first = world.replicas[0]
    record = world.create(first)
    if is_stored:
        await stored(world, record)
    stopping = asyncio.create_task(first.runner.stop())
    await world.rest()
    await stopping
    first.stopped = True
    assert (record.id in world.acknowledged, world.server.sent) == (True, {})
    assert not world.head(record).dispatched
    while not world.server.sent:
        await world.tick()
    world.answer()
    await world.rest()
    assert world.head(record).status is TaskStatus.COMPLETED


async def cancelled_elsewhere(world: World, *, late: timedelta) -> TaskRecord:
    """A task that a host cancels at another replica before its insert is answered, so much later."""
    first, second, _ = world.replicas
    for replica in world.replicas:
        replica.open()
    record = world.create(first)
    await stored(world, record)
    first.stopped = True
    world.cancel(second, record.id)
    await world.rest()
    world.clock.advance(late)
    first.stopped = False
    await world.rest()
    assert record.id in world.acknowledged
    assert world.head(record).status is TaskStatus.CANCELLED
    return record


async def test_a_call_does_not_leave_whose_task_was_cancelled_elsewhere_if_its_insert_was_answered_late(
    world: World,
) -> None:
    await cancelled_elsewhere(world, late=RULES.length / 2)
    assert world.server.sent == {}


async def test_one_whose_insert_was_answered_soon_is_cancelled_at_the_next_heartbeat(world: World) -> None:
    await cancelled_elsewhere(world, late=timedelta())
    assert len(world.server.open) == 1
    world.beat(world.replicas[0])
    await world.rest()
    assert world.server.open == []


async def test_a_call_whose_task_was_refused_is_sent_by_nobody(world: World) -> None:
    """The store has it, the replica that was not told so is gone, and its host was told that there is no task."""
    first = world.replicas[0]
    record = world.create(first)
    await stored(world, record)
    world.is_down = True
    while not world.refused:
        await world.step()
    first.kill()
    world.is_down = False
    while not world.head(record).status.is_terminal:
        await world.tick()
    assert (world.head(record).status, world.server.sent) == (TaskStatus.FAILED, {})


async def test_a_call_does_not_leave_whose_mark_took_longer_to_be_answered_than_a_lease(world: World) -> None:
    first = world.replicas[0]
    held = [first.place.mount.bulkhead.acquire(name) for name in ("another", "a third")]
    record = world.create(first)
    await world.rest()
    held[0].release()
    while not world.head(record).dispatched:
        await world.step()
    first.stopped = True
    world.clock.advance(RULES.length)
    first.stopped = False
    await world.rest()
    assert world.server.sent == {}
    while not world.head(record).status.is_terminal:
        await world.tick()
    assert world.head(record).status is TaskStatus.FAILED


async def test_a_task_that_was_forgotten_is_put_back_as_soon_as_news_may_have_been_missed(world: World) -> None:
    first = world.replicas[0]
    first.open()
    record = world.create(first)
    await world.rest()
    world.go_back()
    await world.rest()
    assert not world.head(record).status.is_terminal
    assert len(world.server.open) == 1


async def test_who_finds_that_the_store_forgot_takes_nothing_over_for_a_while(world: World) -> None:
    """Others may not have found it out yet, and what the store says of their leases is old."""
    first = world.replicas[0]
    world.create(first)
    await world.rest()
    assert first.leasing.may_take_over
    world.go_back()
    world.beat(first)
    await world.rest()
    assert not first.leasing.may_take_over


@pytest.mark.parametrize("is_meanwhile", [True, False], ids=["taken again since", "had before"])
async def test_a_task_that_was_taken_again_since_is_not_the_one_that_was_lost(is_meanwhile: bool) -> None:
    one = Alone()
    record = new_record(lease=new_lease())
    listener: Any = SimpleNamespace(leave=lambda: False)
    services: Any = None
    run = TaskRun(record, listener, services)
    nothing: frozenset[str] = frozenset()
    said = HeartbeatReply(EPOCH, ended=nothing, lost=frozenset({record.id}), behind=nothing, alive=nothing, before=None)

    async def beat(*_: Any, **__: Any) -> HeartbeatReply:
        one.clock.advance(RULES.heartbeat / 5)
        if is_meanwhile:
            one.leasing.begin(run, record)
        return said

    one.leases.beat = beat  # type: ignore[method-assign]
    if not is_meanwhile:
        one.leasing.begin(run, record)
        one.clock.advance(RULES.heartbeat / 5)
    await one.leasing.beat()
    assert run.is_lost is not is_meanwhile
